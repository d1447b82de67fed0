"""Run commands as other processors would compute: with fewer instructions than this machine has.

    python benchmarks/processors.py "-m pytest tests/transformer/test_attention.py"
    python benchmarks/processors.py --only avx2 "-m pytest tests" "-m pytest --nbval-lax notebooks"

Each command is what follows `python`, and runs once under each set. Libraries choose their kernels when they
are loaded, and most have a variable that keeps them from the newest; ONNX Runtime has none. What a machine
lacks cannot be imitated: AMX is tested on a machine that has it, ARM on an ARM.
"""

import argparse
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence

import torch
from report import print_table

# The variables of PyTorch, oneDNN, MKL, OpenBLAS, NumPy, CTranslate2 and the C library. CTranslate2 leaves
# matrix products to MKL or oneDNN, so these two decide whether int8 has VNNI: under none of the sets it has.
SETS = {
    "sse": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "OPENBLAS_CORETYPE": "Nehalem",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4",
        "CT2_FORCE_CPU_ISA": "GENERIC",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA",
    },
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4",
        "CT2_FORCE_CPU_ISA": "AVX2",
    },
    "avx512": {
        "ATEN_CPU_CAPABILITY": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
        "OPENBLAS_CORETYPE": "SkylakeX",
        "CT2_FORCE_CPU_ISA": "AVX512",
    },
}
# What PyTorch calls the best that a machine has, and the sets that it can imitate.
IMITABLE = {"DEFAULT": ["sse"], "AVX2": ["sse", "avx2"], "AVX512": ["sse", "avx2", "avx512"]}


def imitable() -> list[str]:
    """The sets that this machine can be kept to."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return []
    return IMITABLE[torch.backends.cpu.get_cpu_capability()]


def kept_to(name: str) -> dict[str, str]:
    """The environment of a process that is to compute with this set."""
    return {**os.environ, **SETS[name]}


def attempt(name: str, command: str) -> tuple[bool, str]:
    """Run a command under a set, passing its output on: whether it succeeded, and its last line."""
    last = ""
    words = [sys.executable, *shlex.split(command)]
    with subprocess.Popen(words, env=kept_to(name), stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip(" =\n") or last
    return process.returncode == 0, last


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the commands and print a table; where one fails, the exit code is 1."""
    raw = argparse.RawDescriptionHelpFormatter
    options = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    options.add_argument("commands", nargs="*", metavar="COMMAND", help="what follows `python`, as one word")
    options.add_argument("--only", action="append", choices=SETS, help="this set; may be given again")
    options = options.parse_args(arguments)
    rows, failed = [], []
    for name in options.only or SETS:
        if name not in imitable():
            rows.append((name, "", "skipped: this machine lacks it"))
            continue
        for command in options.commands:
            succeeded, last = attempt(name, command)
            rows.append((name, command.split()[-1], last))
            failed += [] if succeeded else [name]
    print_table(("set", "tests", "result"), rows)
    if failed:
        sys.exit(f"failed under {', '.join(dict.fromkeys(failed))}")


if __name__ == "__main__":
    run()
