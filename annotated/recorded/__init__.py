"""What the scripts of benchmarks/ measured, a JSON file each: what was found, and the runs that found it."""

import json
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent


def recorded(name: str) -> dict[str, Any]:
    """Read what a record says, by its name, such as "variations"."""
    return json.loads((RECORDED / f"{name}.json").read_text("utf-8"))["found"]


def made(name: str) -> list[dict[str, Any]]:
    """Read which runs made a record: of each the command, the commit, the date and the machine.

    A run from before these were recorded names its script, and says so.
    """
    return json.loads((RECORDED / f"{name}.json").read_text("utf-8"))["made"]
