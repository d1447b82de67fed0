"""Does the shipped recipe train in bf16 as in float32, and how much faster?

    python benchmarks/precision.py --device cuda      on a GPU: two minutes
    python benchmarks/precision.py                    on a processor: half an hour

The settings of the recipe multi30k-en-de-lc without R-Drop, on the built-in corpus, which needs no download:
as many updates with the same seed in each precision. What is recorded are the target tokens a second after
the first tenth of the updates, and the scores of the validation text at the end.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from records import Found, save
from report import long_parser, parse_long, print_table
from workload import recipe

import annotated
from annotated.translation.data import load_corpus
from annotated.translation.training.run_folder import LOG

TEXT = ("corpus", "pair", "tokenized")
FULL = {
    **{name: value for name, value in recipe("multi30k-en-de-lc")["train"].items() if name not in TEXT},
    "vocab": 2000,
    "rdrop_weight": 0.0,
    "rdrop_from": 1,
    "max_steps": 600,
    "warmup": 150,
    "log_every": 60,
    "metric": "bleu",
    "metric_every": 1000,  # at the end alone
    "average": 1,
    "keep": 1,
}
SHORT = {**FULL, "N": 1, "d_model": 16, "d_ff": 16, "h": 2, "max_steps": 4, "log_every": 1, "warmup": 2}


def measure(settings: Found, device: str) -> Found:
    """Train one model; returns its pace and its scores."""
    with TemporaryDirectory() as folder:
        out = Path(folder, "run")
        annotated.train(load_corpus("grammar", "en-de"), out, device=device, **settings)
        log = [json.loads(line) for line in (out / LOG).read_text("utf-8").splitlines()]
    first, *_, last = (line for line in log if "loss" in line)
    found = {"tokens_per_second": (last["tokens"] - first["tokens"]) / (last["seconds"] - first["seconds"])}
    return found | {name: value for name, value in log[-1].items() if name.startswith("validation")}


def run(arguments: Sequence[str] | None = None) -> Found:
    """Train in each precision, print and record."""
    options = long_parser(__doc__, "precision")
    options.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default %(default)s")
    options = parse_long(options, arguments)
    settings = SHORT if options.short else FULL
    results = {
        precision: measure({**settings, "precision": precision}, options.device)
        for precision in ("float32", "bf16")
    }
    found = {"question": "precision", "settings": settings, "device": options.device, "results": results}
    save(found, options.json)
    rows = [(name, *(f"{value:,.3f}" for value in each.values())) for name, each in results.items()]
    print_table(("", *results["bf16"]), rows)
    return found


if __name__ == "__main__":
    run()
