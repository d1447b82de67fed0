"""What the scripts of benchmarks/ measured, a JSON file each, for the notebooks."""

import json
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent


def recorded(name: str) -> dict[str, Any]:
    """Read a record by its name, such as "variations"."""
    return json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
