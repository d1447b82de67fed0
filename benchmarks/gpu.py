"""Everything here that wants a GPU, one after the other, in at most eight minutes.

    python benchmarks/gpu.py --out FOLDER                     on a machine with a GPU
    python benchmarks/gpu.py --out FOLDER --device cpu        show in minutes that it runs, with toys

The GPU tests; varlen_attn beside padded attention; a race of training; the shipped recipe in float32 and in
bf16; a race of decoding; memory in training. Nothing is downloaded. Each step writes a record into the
folder; a step that fails or takes too long is told, and the others run all the same.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from records import ROOT
from report import print_table

LIMIT = 480  # seconds in all
TOY = "--size toy --rounds 3 --threads 1"
# The record that a step writes; on a GPU its script with settings and its seconds at most; and on a CPU.
STEPS: dict[str | None, tuple[str, int, str]] = {
    None: ("-m pytest -q -m gpu tests/test_gpu.py", 60, "-m pytest -q tests/test_gpu.py -k attention"),
    "varlen-cuda": (
        "benchmarks/varlen.py --device cuda --minutes 0.2",
        40,
        f"benchmarks/varlen.py {TOY} --sentences 8",
    ),
    "train-base-bf16-cuda": (
        "benchmarks/train.py --device cuda --size base --tokens 16384 --precision bf16 --minutes 1",
        120,
        f"benchmarks/train.py {TOY} --tokens 128 --batches 1",
    ),
    "precision-cuda": ("benchmarks/precision.py --device cuda", 150, "benchmarks/precision.py --short"),
    "decode-base-cuda": (
        "benchmarks/decode.py --device cuda --size base --rows 64 256 --minutes 1",
        120,
        f"benchmarks/decode.py {TOY} --rows 64 --beams 1",
    ),
    "memory-cuda": (
        "benchmarks/memory.py --device cuda --rounds 3",
        90,
        f"benchmarks/memory.py {TOY} --tokens 128",
    ),
}


def attempt(command: list[str], seconds: float) -> str:
    """Run a step for so many seconds at most; returns how it ended."""
    try:
        code = subprocess.run(command, cwd=ROOT, timeout=max(1, seconds)).returncode
    except subprocess.TimeoutExpired:
        return "took too long"
    return "failed" if code else "done"


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the steps and print a table; where one is not done, the exit code is 1."""
    raw = argparse.RawDescriptionHelpFormatter
    options = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    options.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="for the records")
    options.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="default %(default)s")
    options.add_argument("--only", nargs="+", metavar="RECORD", choices=[*STEPS][1:], help="these steps")
    options = options.parse_args(arguments)
    rows, began = [], time.monotonic()
    for record, (on_gpu, most, on_cpu) in STEPS.items():
        if options.only and record not in options.only:
            continue
        started, gpu = time.monotonic(), options.device == "cuda"
        to = ["--json", str((options.out / f"{record}.json").absolute())] if record else []
        left = min(most, LIMIT - (started - began)) if gpu else LIMIT
        ended = attempt([sys.executable, *(on_gpu if gpu else on_cpu).split(), *to], left)
        rows.append((record or "tests", ended, f"{time.monotonic() - started:.0f} s"))
    print_table(("step", "", ""), rows)
    if any(ended != "done" for _, ended, _ in rows):
        sys.exit(1)


if __name__ == "__main__":
    run()
