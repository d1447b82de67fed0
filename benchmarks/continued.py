"""What do more epochs with R-Drop bring the shipped models, and the mean of the last checkpoints?

    python benchmarks/continued.py                                  all: two hours and a half of one core
    python benchmarks/continued.py --only "multi30k-en-de, R-Drop"  this one: 80 minutes

Each training begins with the weights of a shipped model and goes on with R-Drop, or without it for as many
passes over the text. The rate begins near where the model's own training ended, and falls faster. Then the
means of the last 1, 5, 10 and 20 checkpoints, one an epoch, are scored with greedy decoding and with the
recipe's search, beside the shipped model. The recipe's own mean is of 10; nothing is chosen on the test set,
which is reported beside `val`. What is recorded already is not done again, and a training that was cut off
goes on.
"""

import argparse
from pathlib import Path

import torch
from search import GREEDY, SPLITS, load, score
from tqdm import tqdm

import annotated
from annotated.cli.recipes import read_recipe, recipe_path
from annotated.data import load_corpus
from annotated.files import read_json, write_json
from annotated.training.checkpoint import RunFolder, average_checkpoints
from annotated.translation.evaluate import RECORDED
from annotated.translation.model_folder import find_model, load_weights, training_settings

BASE = {"max_tokens": 4096, "precision": "bf16", "keep": 20, "average": 10, "bleu_every": 0}
LOWER_CASED = {"learning_rate": 0.0014, "warmup": 200}
CONTESTANTS = {  # the shipped model to begin with, and the settings; R-Drop passes each batch twice
    "multi30k-en-de, R-Drop": (
        "multi30k-en-de",
        {"learning_rate": 0.0018, "warmup": 400, "epochs": 26, "rdrop_weight": 1.0},
    ),
    "multi30k-en-de-lc, R-Drop": ("multi30k-en-de-lc", {**LOWER_CASED, "epochs": 12, "rdrop_weight": 1.0}),
    "multi30k-en-de-lc, no R-Drop": ("multi30k-en-de-lc", {**LOWER_CASED, "epochs": 24, "rdrop_weight": 0.0}),
}
MEANS = (1, 5, 10, 20)  # checkpoints, the newest
BASES = {"1": "newest", "shipped": "shipped"}  # what all are compared with, and its name in the record


def train(model: str, settings: dict[str, object], out: Path) -> RunFolder:
    """Go on with the training of a shipped model, in the folder `out`."""
    trained = training_settings(find_model(model))
    corpus = load_corpus(trained["corpus"], trained["pair"], variant=trained["variant"])
    notes = {name: trained[name] for name in ("corpus", "pair", "variant")}
    annotated.train(corpus, out, resume=True, init_from=model, notes=notes, **settings)
    return RunFolder(out)


def scores(model: str, run: RunFolder, split: str) -> dict[str, dict]:
    """BLEU of the shipped model and of each mean, in each search, beside the newest and the shipped."""
    translator, text, tokenize = load(model, split)
    recipe = vars(read_recipe(recipe_path(model)).evaluate)
    kept = run.checkpoints()
    candidates = {str(n): average_checkpoints(kept[-n:]) for n in MEANS if n <= len(kept)}
    candidates["shipped"] = average_checkpoints([find_model(model)])
    found: dict[str, dict] = {}
    for name, search in {GREEDY: {"beam": 1}, "recipe": recipe}.items():
        lines = {}
        for which, weights in candidates.items():
            load_weights(translator.model, weights, run.path)
            lines[which] = translator.translate(text.src, **search)
        found[name] = {}
        for which, each in lines.items():
            newest, shipped = (
                score(each, lines[base], text.tgt, tokenize, what) for base, what in BASES.items()
            )
            found[name][which] = newest | {"over shipped": shipped["over shipped"]}
    return found


def main() -> None:
    """Train what is not recorded yet, and write the record after each model."""
    raw = argparse.RawDescriptionHelpFormatter
    options = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    options.add_argument("--only", nargs="+", metavar="NAME", choices=CONTESTANTS, help="these trainings")
    options.add_argument("--threads", type=int, default=1, help="default %(default)s")
    options.add_argument("--runs", type=Path, default=Path("runs/continued"), help="default %(default)s")
    options.add_argument(
        "--json", type=Path, default=RECORDED / "continued.json", metavar="FILE", help="default %(default)s"
    )
    asked = options.parse_args()
    torch.set_num_threads(asked.threads)
    for name in tqdm(asked.only or list(CONTESTANTS), unit="model"):
        if asked.json.exists() and name in read_json(asked.json):
            continue
        model, settings = CONTESTANTS[name]
        settings = {**BASE, **settings}
        run = train(model, settings, asked.runs / name.replace(", ", "-").replace(" ", "-"))
        found = {split: scores(model, run, split) for split in SPLITS}
        record = read_json(asked.json) if asked.json.exists() else {}  # another process may have written it
        write_json(asked.json, {**record, name: {"settings": settings, **found}})


if __name__ == "__main__":
    main()
