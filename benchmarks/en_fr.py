"""How well does the recipe of multi30k-en-de-lc do on a pair that it was not tuned on?

    python benchmarks/en_fr.py      English-French, 80 minutes of one core

The recipe at a quarter of its length: 27 epochs of 108, R-Drop from the 15th instead of the 61st, its search,
one seed. Each test set is scored once. A training that was cut off goes on.
"""

import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path

from ablation import RECIPE, TOY, train
from records import Found, save
from report import long_parser, parse_long
from workload import text_of

from annotated.search.config import SearchConfig
from annotated.translation.evaluation import score_split
from annotated.translation.storage.model_folder import training_settings
from annotated.translation.training.run_folder import LOG

FULL = {
    **RECIPE["train"],
    "pair": "en-fr",
    "epochs": 27,
    "rdrop_from": 15,
    "metric": "bleu",
    "metric_every": 5,
}
SHORT = {**FULL, **TOY, "warmup": 2, "rdrop_from": 1, "epochs": 1, "metric_every": 1}
SPLITS = ("val", "test_2016_flickr", "test_2017_flickr")


def run(arguments: Sequence[str] | None = None) -> Found:
    """Train, score and write the record."""
    options = long_parser(__doc__, "en_fr")
    options.add_argument("--out", type=Path, default=Path("runs/en-fr"), help="default %(default)s")
    options = parse_long(options, arguments)
    began = time.perf_counter()
    settings = SHORT if options.short else FULL
    corpus, search = text_of(settings, options.short), SearchConfig(**RECIPE["evaluate"])
    translator = train(corpus, settings, 0, options.out)
    log = [json.loads(line) for line in (options.out / LOG).read_text("utf-8").splitlines()]
    measures = "epoch", "step", "validation_loss", "validation_accuracy", "validation_bleu"
    found = {
        "question": "en-fr",
        "settings": training_settings(options.out),
        "minutes": round((time.perf_counter() - began) / 60, 1),
        "validation": [
            {name: line[name] for name in measures if name in line}
            for line in log
            if "validation_loss" in line
        ],
        "scores": {
            split: dataclasses.asdict(score_split(translator, corpus, split, True, search)[0])
            for split in SPLITS
        },
    }
    save(found, options.json)
    return found


if __name__ == "__main__":
    run()
