"""How long until the first update, and how much memory, for a corpus of the paper's size?

    python benchmarks/start_up.py      15 minutes, 6 GB of disk

WMT 2014 English-German has 4.5 million pairs. Here lines of about its length stand in: sentences of the
built-in corpus, joined until they have some 25 words. Each size trains for one update, from the start of the
command to its end, with the model saved: first with an empty `--cache`, then again, then with two processes
that share it. Memory is the most that any one process of the command had.
"""

import os
import random
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from records import Found, save
from report import long_parser, parse_long

from annotated.translation.data import load_corpus

SIZES = [10_000, 100_000, 1_500_000, 4_500_000]
WORDS = 25
TRAIN = ["-m", "annotated", "train", "--max-steps", "1", "--preset", "tiny", "--vocab", "8000"]


def write_pairs(path: Path, count: int) -> None:
    """Write `count` pairs, a line each, their sides tab-separated."""
    text = load_corpus("grammar", "en-de")["train"]
    sentences = list(zip(text.src, text.tgt, strict=True))
    draw = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            line, words = [], draw.gauss(WORDS, WORDS / 3)
            while not line or sum(len(english.split()) for english, _ in line) < words:
                line.append(draw.choice(sentences))
            file.write("\t".join(" ".join(side) for side in zip(*line, strict=True)) + "\n")


def measure(command: list[str]) -> dict[str, float]:
    """Run a command; return its seconds and the most memory that one of its processes had, in GB."""
    began = time.perf_counter()
    child = os.posix_spawn(sys.executable, [sys.executable, *command], os.environ)
    _, status, usage = os.wait4(child, 0)
    if status:
        raise RuntimeError(f"it failed: {' '.join(command)}")
    return {
        "seconds": round(time.perf_counter() - began, 1),
        "gigabytes": round(usage.ru_maxrss * 1024 / 1e9, 2),
    }


def size(folder: Path, count: int, short: bool) -> Found:
    """Measure one size."""
    pairs, val = folder / "pairs.tsv", folder / "val.tsv"
    write_pairs(pairs, count)
    with pairs.open(encoding="utf-8") as file:
        val.write_text("".join(islice(file, 100)), encoding="utf-8")
    given = ["--src", str(pairs), "--val-src", str(val), "--cache", str(folder / "cache")]
    two = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *TRAIN]
    record: Found = {"pairs": count, "megabytes": round(pairs.stat().st_size / 1e6)}
    commands = {"cold": TRAIN, "warm": TRAIN} | ({} if short else {"two processes": two})
    for name, command in commands.items():
        record[name] = measure([*command, *given, "--out", str(folder / name.replace(" ", "-"))])
    cache = sum(file.stat().st_size for file in (folder / "cache").rglob("*") if file.is_file())
    return record | {"cache megabytes": round(cache / 1e6)}


def run(arguments: Sequence[str] | None = None) -> Found:
    """Measure each size, and write the record."""
    options = long_parser(__doc__, "start_up")
    options.add_argument("--pairs", type=int, nargs="+", default=SIZES, help="sizes (default %(default)s)")
    options = parse_long(options, arguments)
    results = []
    for count in [300] if options.short else options.pairs:
        with TemporaryDirectory() as folder:
            results.append(size(Path(folder), count, options.short))
        print(results[-1], flush=True)
    found = {"question": "start-up", "results": results}
    save(found, options.json)
    return found


if __name__ == "__main__":
    run()
