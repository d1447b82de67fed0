"""What every script here has: its options, a table on the screen, a record of the run in JSON."""

import argparse
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from timing import Comparison, Measured, seconds

PEERS = ("annotated-transformer", "torch", "transformers", "ctranslate2", "x-transformers", "numpy")


def plain_parser(description: str) -> argparse.ArgumentParser:
    """The options of every script that writes a record."""
    raw = argparse.RawDescriptionHelpFormatter
    options = argparse.ArgumentParser(description=description, formatter_class=raw)
    options.add_argument("--json", type=Path, metavar="FILE", help="also write the record here")
    return options


def parser(description: str, sizes: Sequence[str]) -> argparse.ArgumentParser:
    """The options of every race, the first size by default."""
    options = plain_parser(description)
    options.add_argument("--size", choices=sizes, default=sizes[0], help="of the model (default %(default)s)")
    options.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default %(default)s")
    options.add_argument("--minutes", type=float, default=10, help="that it may last (default %(default)s)")
    options.add_argument("--rounds", type=int, help="of two turns each (default: until the ratios are known)")
    options.add_argument("--threads", type=int, default=os.cpu_count(), help="default: one a core")
    return options


def set_up(options: argparse.Namespace) -> torch.device:
    """Take the threads asked for, and a device that is there. Raises ValueError for one that is not."""
    torch.set_num_threads(options.threads)
    if options.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("there is no cuda device here; use --device cpu")
    return torch.device(options.device)


def write(
    question: str,
    options: argparse.Namespace,
    measured: Mapping[str, Measured],
    comparisons: Sequence[Comparison],
    **more: object,
) -> dict[str, object]:
    """Put together the record of a run, and keep it if asked to; `more` is added as it is.

    Raises ValueError, and writes nothing, where the turns are too few to tell anything.
    """
    if comparisons and not any(comparison.bounds for comparison in comparisons):
        raise ValueError("too few turns to tell anything: --rounds takes 3 or more")
    settings = {name: value for name, value in vars(options).items() if name != "json"}
    record = {
        "question": question,
        "settings": settings,
        "machine": machine(),
        **more,
        "candidates": {name: each.summary() for name, each in measured.items()},
        "comparisons": [comparison.summary() for comparison in comparisons],
    }
    save(record, options.json)
    return record


def save(record: dict[str, object], path: Path | None) -> None:
    """Write a record as JSON, if there is where to."""
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def machine() -> dict[str, object]:
    """What the numbers depend on besides the settings."""
    cuda = torch.cuda.is_available()
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if cuda else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: found for name in PEERS if (found := installed(name))},
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
    }


def commit() -> str | None:
    """The commit that is checked out here; None where this is no checkout, or there is no git."""
    asked = ["git", "-C", Path(__file__).parent, "rev-parse", "HEAD"]
    with suppress(OSError):
        return subprocess.run(asked, capture_output=True, text=True).stdout.strip() or None


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


def matmul_rate(device: torch.device, dtype: torch.dtype = torch.float32) -> float:
    """Operations a second that a square matrix product reaches here, the best of ten: the bound."""
    size = 8192 if device.type == "cuda" else 1536
    a, b = torch.randn(2, size, size, device=device, dtype=dtype)
    run = synchronized(lambda: a @ b, device)
    run()
    return 2 * size**3 / min(seconds(run) for _ in range(10))


def synchronized(run: Callable[[], object], device: torch.device) -> Callable[[], object]:
    """The same, but it waits until a GPU has done what it was told."""
    if device.type != "cuda":
        return run

    def run_and_wait() -> None:
        run()
        torch.cuda.synchronize(device)

    return run_and_wait


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as they need to be, the first to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for first, *rest in cells:
        right = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        print("  ".join([first.ljust(widths[0]), *right]).rstrip())


def print_race(
    record: dict, comparisons: Sequence[Comparison], total: float, unit: str, **columns: Mapping[str, object]
) -> None:
    """Print a row for each candidate: its speed, what `columns` tell, how many times as fast ours is."""
    told = {comparison.peer: comparison for comparison in comparisons}
    rows = [
        (name, f"{total / each['median']:,.1f}", f"{each['spread']:.1%}", *more, told.get(name, ""))
        for name, each in record["candidates"].items()
        for more in [[column[name] for column in columns.values()]]
    ]
    print_table(("", f"{unit}/s", "spread", *columns, "ours against it"), rows)
