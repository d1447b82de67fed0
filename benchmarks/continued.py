"""What do more epochs with R-Drop bring the shipped models, and the mean of the last checkpoints?

    python benchmarks/continued.py                                  all: two hours and a half of one core
    python benchmarks/continued.py --only "multi30k-en-de, R-Drop"  this one: 80 minutes

Each training begins with the weights of a shipped model and goes on with R-Drop, or without it for as many
passes over the text. The rate begins near where the model's own training ended, and falls faster. Then the
means of the last 1, 5, 10 and 20 checkpoints, one an epoch, are scored with greedy decoding and with the
recipe's search, beside the shipped model. The recipe's own mean is of 10; nothing is chosen on the test set,
which is reported beside `val`. A training that was cut off goes on.
"""

from collections.abc import Sequence
from pathlib import Path

from records import Found, Record
from report import long_parser, parse_long
from search import GREEDY, SPLITS, compared, load
from tqdm import tqdm
from workload import recipe, text_of

import annotated
from annotated.translation.storage.model_folder import find_model, training_settings
from annotated.translation.training.checkpoint import average_checkpoints
from annotated.translation.training.run_folder import RunFolder

BASE = {"max_tokens": 4096, "precision": "bf16", "keep": 20, "average": 10}
LOWER_CASED = {"learning_rate": 0.0014, "warmup": 200}
CONTESTANTS: dict[str, tuple[str, Found]] = {  # the shipped model to begin with; R-Drop passes a batch twice
    "multi30k-en-de, R-Drop": (
        "multi30k-en-de",
        {"learning_rate": 0.0018, "warmup": 400, "epochs": 26, "rdrop_weight": 1.0},
    ),
    "multi30k-en-de-lc, R-Drop": ("multi30k-en-de-lc", {**LOWER_CASED, "epochs": 12, "rdrop_weight": 1.0}),
    "multi30k-en-de-lc, no R-Drop": ("multi30k-en-de-lc", {**LOWER_CASED, "epochs": 24, "rdrop_weight": 0.0}),
}
SHORT = {"max_tokens": 1024, "max_steps": 2, "save_every": 1, "warmup": 1}
MEANS = (1, 5, 10, 20)  # checkpoints, the newest
BASES = {"1": "newest", "shipped": "shipped"}  # what all are compared with, and its name in the record


def train(model: str, settings: Found, out: Path, short: bool) -> RunFolder:
    """Go on with the training of a shipped model, in the folder `out`."""
    trained = training_settings(find_model(model))
    annotated.train(text_of(trained, short), out, resume=True, init_from=model, **settings)
    return RunFolder(out)


def scores(model: str, run: RunFolder, split: str, short: bool) -> Found:
    """BLEU of the shipped model and of each mean, in each search, beside the newest and the shipped."""
    translator, text, tokenize = load(model, split, short)
    kept = run.checkpoints()
    candidates = {str(n): average_checkpoints(kept[-n:]) for n in MEANS if n <= len(kept)}
    candidates["shipped"] = average_checkpoints([find_model(model)])
    found: Found = {}
    for name, search in {GREEDY: {"beam": 1}, "recipe": recipe(model)["evaluate"]}.items():
        lines = {}
        for which, weights in candidates.items():
            translator.model.load_state_dict(weights)
            lines[which] = translator.translate(text.src, **search)
        found[name] = {}
        for which, each in lines.items():
            newest, shipped = (compared(each, lines[b], text, tokenize, what) for b, what in BASES.items())
            found[name][which] = newest | {"over shipped": shipped["over shipped"]}
    return found


def run(arguments: Sequence[str] | None = None) -> Found:
    """Train what is not recorded yet, and write the record after each model."""
    options = long_parser(__doc__, "continued")
    options.add_argument("--only", nargs="+", metavar="NAME", choices=CONTESTANTS, help="these trainings")
    options.add_argument("--runs", type=Path, default=Path("runs/continued"), help="default %(default)s")
    options = parse_long(options, arguments)
    record = Record(options.json, {})
    for name in tqdm(options.only or [*CONTESTANTS][: 1 if options.short else None], unit="model"):
        if name in record.found():
            continue
        model, settings = CONTESTANTS[name]
        settings = {**BASE, **settings, **(SHORT if options.short else {})}
        out = options.runs / name.replace(", ", "-").replace(" ", "-")
        trained = train(model, settings, out, options.short)
        found = {split: scores(model, trained, split, options.short) for split in SPLITS}
        with record.change() as known:
            known[name] = {"settings": settings, **found}
    return record.found()


if __name__ == "__main__":
    run()
