"""What the scripts here have in common: options, a table on the screen, a race's record."""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from records import save
from timing import Comparison, Measured, seconds

from annotated.recorded import RECORDED


def plain_parser(description: str) -> argparse.ArgumentParser:
    """The options of every script that writes a record."""
    raw = argparse.RawDescriptionHelpFormatter
    options = argparse.ArgumentParser(description=description, formatter_class=raw)
    options.add_argument("--json", type=Path, metavar="FILE", help="also write the record here")
    return options


def long_parser(description: str, name: str) -> argparse.ArgumentParser:
    """The options of a script that goes on with its record, `name`, and has a short form."""
    options = plain_parser(description)
    options.set_defaults(json=RECORDED / f"{name}.json")
    options.add_argument("--short", action="store_true", help="show in seconds that it runs, with toys")
    options.add_argument("--threads", type=int, default=1, help="default %(default)s")
    return options


def parse_long(options: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse them, and take the threads asked for; a short run leaves the record alone that comes with us."""
    default, asked = options.get_default("json"), options.parse_args(arguments)
    torch.set_num_threads(asked.threads)
    if asked.short and asked.json == default:
        asked.json = None
    return asked


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
        **more,
        "candidates": {name: each.summary() for name, each in measured.items()},
        "comparisons": [comparison.summary() for comparison in comparisons],
    }
    save(record, options.json)
    return record


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
