"""Records: what a script found, and the command, commit, date and machine of each run that found some of it.

A long script writes its record after each step, and does not do again what stands there. So it can be
stopped, and several of it can write the same file.
"""

import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from annotated.translation.files import replacing

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = ("annotated-transformer", "torch", "transformers", "ctranslate2", "x-transformers", "numpy")
Found = dict[str, Any]


class Record:
    """A record that grows in the file `path`, or in memory where there is none.

    `settings` stand in it and are the same for all that it holds.
    """

    def __init__(self, path: Path | None, settings: Found):
        self.path, self.settings, self.run = path, settings, this_run()
        self.memory: Found = {"made": [], "found": dict(settings)}
        self.found()

    def found(self) -> Found:
        """Read what was found by now. Raises ValueError for a record with other settings."""
        found = self.read()["found"]
        if {name: found.get(name) for name in self.settings} != json.loads(json.dumps(self.settings)):
            raise ValueError(f"{self.path} was recorded with other settings: name another file with --json")
        return found

    @contextmanager
    def change(self) -> Iterator[Found]:
        """Let the block change what was found, in the file as it is by now, and name this run as a maker."""
        record = self.read()
        yield record["found"]
        if self.run not in record["made"]:
            record["made"].append(self.run)
        self.memory = record
        if self.path:
            write(record, self.path)

    def read(self) -> Found:
        """Read the whole record; a new one has its settings alone."""
        if self.path and self.path.exists():
            return json.loads(self.path.read_text(encoding="utf-8"))
        return self.memory


def save(found: Found, path: Path | None) -> None:
    """Write the record of one run, if there is where to."""
    if path:
        write({"made": [this_run()], "found": found}, path)


def write(record: Found, path: Path) -> None:
    """Write a record's file, the old one in place until the new one is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        partial.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def this_run() -> dict[str, object]:
    """Tell the command that runs, the commit of its code, the date, and the machine."""
    script = Path(sys.argv[0]).resolve()
    name = script.relative_to(ROOT) if script.is_relative_to(ROOT) else script.name
    return {
        "command": shlex.join(["python", str(name), *sys.argv[1:]]),
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
    }


def machine() -> dict[str, object]:
    """Describe what numbers depend on besides the settings."""
    cuda = torch.cuda.is_available()
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if cuda else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: found for name in LIBRARIES if (found := installed(name))},
    }


def commit() -> str | None:
    """The commit that is checked out, and whether code differs from it; None where git does not tell."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True).stdout.strip()

    with suppress(OSError):
        if found := git("rev-parse", "HEAD"):
            code = "annotated", "benchmarks", "notebooks", ":!annotated/recorded"
            return found + (", changed" if git("status", "--porcelain", "--", *code) else "")
    return None


def processor() -> str:
    """Its name, and whether it multiplies matrices of bf16 (AMX), where the system tells."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    facts = {name.strip(): value.strip() for name, value in facts.items()}
    amx = ", AMX" if "amx_bf16" in facts.get("flags", "") else ""
    return facts.get("model name", platform.processor() or platform.machine()) + amx


def installed(name: str) -> str | None:
    """A package's version, None if it is not there."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
