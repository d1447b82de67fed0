"""Break the package in several ways, each in a copy, and show that the notebook which teaches each fails.

    python tools/notebooks/mutants.py            all of them
    python tools/notebooks/mutants.py norm       those whose name holds this

A notebook that still runs to its end would teach something that it does not check. Exit code 1: one did.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[2]


class Mutant(NamedTuple):
    """A fault to put into the package: `old` stands in it once, and becomes `new`."""

    name: str
    old: str
    new: str
    notebook: str


FAULTS = tomllib.loads(Path(__file__).with_name("mutants.toml").read_text(encoding="utf-8"))
MUTANTS = [Mutant(name, **fault) for name, fault in FAULTS.items()]


def apply(mutant: Mutant, package: Path) -> Path:
    """Put the fault in; returns the module. Raises ValueError where `old` does not stand exactly once."""
    codes = {path: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    found = [path for path, code in codes.items() for _ in range(code.count(mutant.old))]
    if len(found) != 1:
        raise ValueError(f"{mutant.name}: the package holds {mutant.old!r} {len(found)} times, not once")
    found[0].write_text(codes[found[0]].replace(mutant.old, mutant.new), encoding="utf-8")
    return found[0]


def run(mutant: Mutant, folder: Path) -> str | None:
    """Where the notebook failed in a copy of the project with this fault; None if it did not."""
    for name in ("annotated", "notebooks", "images", "tools/notebooks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    apply(mutant, folder / "annotated")
    found = subprocess.run(
        [sys.executable, "tools/notebooks/build.py", mutant.notebook],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in found.stderr.splitlines() if line.strip()]
    return None if found.returncode == 0 else next((ln for ln in lines if ", cell " in ln), lines[-1])


def main(wanted: Sequence[str]) -> int:
    """Try the mutants whose names hold one of `wanted`, or all; one line each."""
    survived = 0
    for mutant in tqdm([m for m in MUTANTS if not wanted or any(w in m.name for w in wanted)], disable=None):
        with tempfile.TemporaryDirectory() as folder:
            where = run(mutant, Path(folder))
        survived += where is None
        tqdm.write(f"{mutant.name}: {where or f'{mutant.notebook} did not notice'}")
    return min(1, survived)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
