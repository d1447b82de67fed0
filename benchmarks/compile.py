"""What does torch.compile cost on a processor, and win?

    python benchmarks/compile.py --size tiny     compiled and not, with nothing else at work: ten minutes

Multi30k, one thread, batches of all shapes as training has them. What is recorded are the seconds since the
first update began, after each update, as the run's log tells them; each run adds a list.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from records import Found, Record
from report import long_parser, parse_long

from annotated.translation.training.run_folder import LOG

SIZES = {
    "tiny": ["--max-steps", "100"],
    "small": ["--max-steps", "60", "--d-model", "256", "--N", "3", "--d-ff", "1024", "--h", "4"],
    "toy": ["--max-steps", "3", "--d-model", "16", "--N", "1", "--d-ff", "16", "--h", "2", "--vocab", "400"],
}
WAYS = {"eager": [], "compiled": ["--compile"]}
SETTINGS = {
    "question": "What does torch.compile cost on a processor, and win?",
    "unit": "seconds since the first update began, after each update; a list for each run",
}


def seconds(size: str, corpus: str, way: list[str], threads: int) -> list[float]:
    """Train with the command, in a process of its own."""
    with TemporaryDirectory() as folder:
        settings = ["--preset", "tiny", "--max-tokens", "2048", "--epochs", "1", "--log-every", "1"]
        where = ["--corpus", corpus, "--threads", str(threads), "--out", f"{folder}/run"]
        command = [sys.executable, "-m", "annotated", "train", *settings, *SIZES[size], *way, *where]
        subprocess.run(command, check=True, capture_output=True)
        log = map(json.loads, Path(folder, "run", LOG).read_text("utf-8").splitlines())
        return [line["seconds"] for line in log if "validation_loss" not in line]


def run(arguments: Sequence[str] | None = None) -> Found:
    """Train each way, and add to the record."""
    options = long_parser(__doc__, "compile")
    options.add_argument("--size", choices=("tiny", "small"), default="tiny", help="default %(default)s")
    options = parse_long(options, arguments)
    size, corpus = ("toy", "grammar") if options.short else (options.size, "multi30k")
    record = Record(options.json, SETTINGS)
    for name, way in WAYS.items():
        found = seconds(size, corpus, way, options.threads)
        with record.change() as known:
            ways = known.setdefault("results", {}).setdefault(size, {})
            ways.setdefault(name, []).append(found)
    return record.found()


if __name__ == "__main__":
    run()
