"""Compare two runs: settings that differ, curves, and scores with an interval of their difference.

    python examples/compare_runs.py runs/a runs/b test.tsv curves.png [variants.py]

test.tsv is text that neither run has seen, lines of source<TAB>target: paste test.en test.de > test.tsv
A first line with the languages' names, such as en<TAB>de, says which column is which.
"""

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt

import annotated
from annotated.metrics import Comparison
from annotated.translation.cli.main import register_variants
from annotated.translation.data import own_text
from annotated.translation.files import read_json
from annotated.translation.languages import bleu_tokenizer
from annotated.translation.training.config import PATHS


def settings(run: str) -> dict[str, Any]:
    """Read how a run was trained, with what its preset gave the model."""
    return read_json(Path(run) / "training.json") | read_json(Path(run) / "config.json")["model"]


def main(a: str, b: str, test: str, picture: str) -> Comparison:
    """Print and draw the comparison of two run folders on a TSV file of sentence pairs."""
    for run in (a, b):
        if not (Path(run) / "log.jsonl").is_file():
            raise ValueError(
                f"{run} is not the folder of a run, which has a log.jsonl; a shipped model has none"
            )
    first, second = map(settings, (a, b))
    pair = first.get("pair")
    if second.get("pair") != pair:
        raise ValueError(f"{a} was trained for {pair}, {b} for {second.get('pair')}: no test fits both")
    text = own_text(test, "test", pair=pair)
    for name in sorted((first.keys() | second.keys()).difference((*PATHS, "columns"))):
        if first.get(name) != second.get(name):
            print(f"{name}: {first.get(name)} in {a}, {second.get(name)} in {b}")

    for run in (a, b):
        log = map(json.loads, (Path(run) / "log.jsonl").read_text(encoding="utf-8").splitlines())
        points = [(line["step"], line["validation_loss"]) for line in log if "validation_loss" in line]
        plt.plot(*zip(*points, strict=True), "o-", label=run)
    plt.gca().set(xlabel="update", ylabel="validation cross-entropy (nats a token)")
    plt.legend()
    plt.savefig(picture)
    print(f"{picture}: validation losses")

    translations = [annotated.Translator.load(run).translate(text.src) for run in (a, b)]
    tokenize = "none" if first.get("tokenized") else bleu_tokenizer(str(pair or "").partition("-")[2])
    scores = annotated.paired_bootstrap(*translations, text.tgt, tokenize=tokenize)
    d = scores.difference
    print(f"BLEU {scores.a.value:.1f} of {a}, {scores.b.value:.1f} of {b}, on {len(text):,} sentences")
    print(f"{a} less {b}: {d.value:+.1f}, in 95% of resampled test sets from {d.low:+.1f} to {d.high:+.1f}")
    return scores


if __name__ == "__main__":
    if len(sys.argv) not in (5, 6):
        sys.exit(__doc__)
    try:
        for variants in sys.argv[5:]:
            register_variants(Path(variants))
        main(*sys.argv[1:5])
    except (ValueError, OSError, ImportError) as error:
        sys.exit(str(error))
