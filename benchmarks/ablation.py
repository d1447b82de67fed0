"""What does each part of the shipped recipe bring, and how far do seeds differ?

    python benchmarks/ablation.py                            all, three seeds each: most of a day
    python benchmarks/ablation.py --only "R-Drop" --seed 0   this one, once

Each model is trained on Multi30k with the settings of the recipe multi30k-en-de-lc, in an eighth of its
epochs: what stands below is all that differs. Nothing is chosen on the test set: each finished model is
scored on it once, beside `val`. What is done already is read from the file that is written, and not done
again; a training that was cut off goes on. Several of these may run side by side, each with its own --only
or --seed.
"""

import argparse
from itertools import product
from pathlib import Path

import torch
from tqdm import tqdm

import annotated
from annotated.cli.recipes import read_recipe, recipe_path
from annotated.data import Corpus, load_corpus
from annotated.files import read_json, write_json
from annotated.training.checkpoint import RunFolder, average_checkpoints
from annotated.translation.evaluate import RECORDED, score_split
from annotated.translation.model_folder import load_model, load_weights
from annotated.translation.translator import Translator

RECIPE = "multi30k-en-de-lc"
# Of 108 epochs with R-Drop from the 61st, an eighth; the warm-up is what post-norm still bears at this rate.
BASE = {"epochs": 14, "rdrop_from": 9, "warmup": 400, "keep": 4, "average": 4, "bleu_every": 0}
PLAIN = {"rdrop_weight": 0.0}
# R-Drop passes each batch twice: with it 8 + 2 * 6 passes over the text, as many as 20 epochs without.
CONTESTANTS = {
    "R-Drop": {},
    "no R-Drop, as many passes": {**PLAIN, "epochs": 20},
    "no R-Drop": PLAIN,
    "and no smoothing": {**PLAIN, "smoothing": 0.0},
    "and dropout 0.1": {**PLAIN, "dropout": 0.1},
    "and three matrices": {**PLAIN, "tied_embeddings": "none"},
    "and subword dropout 0.1": {**PLAIN, "subword_dropout": 0.1},
    "and a warm-up of 100": {**PLAIN, "warmup": 100},
}
SPLITS = ("val", "test_2016_flickr")
CORPUS = ("corpus", "pair", "variant")


def train(corpus: Corpus, given: dict[str, object], seed: int, out: Path) -> Translator:
    """Train one model, or go on with it, in the folder `out`."""
    settings = {name: value for name, value in given.items() if name not in CORPUS}
    notes = {name: given[name] for name in CORPUS}
    return annotated.train(corpus, out, seed=seed, resume=True, notes=notes, **settings)


def score(translator: Translator, corpus: Corpus, search: dict[str, object]) -> dict[str, dict]:
    """BLEU with its interval and the perplexity, of each split."""
    found = {split: score_split(translator, corpus, split, True, **search)[0] for split in SPLITS}
    return {
        split: {
            "bleu": each.tokenized_bleu.value,
            "low": each.tokenized_bleu.low,
            "high": each.tokenized_bleu.high,
            "perplexity": each.perplexity,
        }
        for split, each in found.items()
    }


def averaged(out: Path, corpus: Corpus, search: dict[str, object]) -> dict[str, float]:
    """BLEU on `val` of the newest checkpoint and of the mean of those kept: the run left one of them."""
    run = RunFolder(out)
    model, *tokenizers = load_model(run.newest())
    translator = Translator(model.eval(), *tokenizers, lower_cased=True)
    newest = score_split(translator, corpus, "val", True, **search)[0].tokenized_bleu.value
    load_weights(model, average_checkpoints(run.checkpoints()), out)
    mean = score_split(translator, corpus, "val", True, **search)[0].tokenized_bleu.value
    return {"newest": newest, "mean": mean}


def recorded(path: Path, base: dict[str, object]) -> dict[str, dict]:
    """Read what was recorded with these settings. Raises ValueError if it was recorded with others."""
    record = read_json(path) if path.exists() else {"settings": base, "models": {}}
    if record["settings"] != base:
        raise ValueError(f"{path} was recorded with other settings: name another file with --json")
    return record


def main() -> None:
    """Train what is not recorded yet, and write the record after each model."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--only", nargs="+", metavar="NAME", choices=CONTESTANTS, help="these contestants")
    options.add_argument("--seed", nargs="+", type=int, default=(0, 1, 2), help="default 0 1 2")
    options.add_argument("--threads", type=int, default=1, help="default %(default)s")
    options.add_argument("--runs", type=Path, default=Path("runs/ablation"), help="default %(default)s")
    options.add_argument(
        "--json", type=Path, default=RECORDED / "ablation.json", metavar="FILE", help="default %(default)s"
    )
    asked = options.parse_args()
    torch.set_num_threads(asked.threads)
    recipe = read_recipe(recipe_path(RECIPE))
    base = {**recipe.train, **BASE}
    corpus = load_corpus(base["corpus"], base["pair"], variant=base["variant"])
    search = vars(recipe.evaluate)
    for seed, name in tqdm(list(product(asked.seed, asked.only or CONTESTANTS)), unit="model"):
        if str(seed) in recorded(asked.json, base)["models"].get(name, {}):
            continue
        out = asked.runs / f"{name.replace(' ', '-')}-{seed}"
        translator = train(corpus, {**base, **CONTESTANTS[name]}, seed, out)
        scores = {**score(translator, corpus, search), **averaged(out, corpus, search)}
        record = recorded(asked.json, base)  # read again: another process may have written it since
        record["models"].setdefault(name, {})[str(seed)] = scores
        write_json(asked.json, record)


if __name__ == "__main__":
    main()
