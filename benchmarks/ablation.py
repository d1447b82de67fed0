"""What does each part of the shipped recipe bring, and how far do seeds differ?

    python benchmarks/ablation.py                            all, three seeds of the first two: most of a day
    python benchmarks/ablation.py --only "R-Drop" --seed 0   this one, once

Each model is trained on Multi30k with the settings of the recipe multi30k-en-de-lc, in an eighth of its
epochs: what stands below is all that differs. Nothing is chosen on the test set: each finished model is
scored on it once, beside `val`. A training that was cut off goes on.
"""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

from records import Found, Record
from report import long_parser, parse_long
from tqdm import tqdm
from workload import recipe, text_of

import annotated
from annotated.search.config import SearchConfig
from annotated.translation.data import Corpus
from annotated.translation.evaluation import score_split
from annotated.translation.storage.model_folder import load_model
from annotated.translation.training.checkpoint import average_checkpoints
from annotated.translation.training.run_folder import RunFolder
from annotated.translation.translator import Translator

RECIPE = recipe("multi30k-en-de-lc")
# Of 108 epochs with R-Drop from the 61st, an eighth; the warm-up is what post-norm still bears at this rate.
FULL = {**RECIPE["train"], "epochs": 14, "rdrop_from": 9, "warmup": 400, "keep": 4, "average": 4}
TOY = {"vocab": 400, "N": 1, "d_model": 16, "d_ff": 16, "h": 2, "max_steps": 4, "max_tokens": 512}
SHORT = {**FULL, **TOY, "warmup": 2, "rdrop_from": 1, "save_every": 2}
PLAIN = {"rdrop_weight": 0.0, "rdrop_from": 1}
# R-Drop passes each batch twice: with it 8 + 2 * 6 passes over the text, as many as 20 epochs without.
CONTESTANTS: dict[str, Found] = {
    "R-Drop": {},
    "no R-Drop, as many passes": {**PLAIN, "epochs": 20},
    "no R-Drop": PLAIN,
    "and no smoothing": {**PLAIN, "smoothing": 0.0},
    "and dropout 0.1": {**PLAIN, "dropout": 0.1},
    "and three matrices": {**PLAIN, "tied_embeddings": "none"},
    "and a warm-up of 100": {**PLAIN, "warmup": 100},
}
SPLITS = ("val", "test_2016_flickr")
TEXT = ("corpus", "pair", "tokenized")


def train(corpus: Corpus, given: Found, seed: int, out: Path) -> Translator:
    """Train one model, or go on with it, in the folder `out`."""
    settings = {name: value for name, value in given.items() if name not in TEXT}
    return annotated.train(corpus, out, seed=seed, resume=True, **settings)


def score(translator: Translator, corpus: Corpus, split: str, search: SearchConfig) -> Found:
    """BLEU with its interval, and the perplexity."""
    found, _ = score_split(translator, corpus, split, True, search)
    bleu = found.tokenized_bleu
    return {"bleu": bleu.value, "low": bleu.low, "high": bleu.high, "perplexity": found.perplexity}


def averaged(run: RunFolder, corpus: Corpus, search: SearchConfig) -> dict[str, float]:
    """BLEU on `val` of the newest checkpoint and of the mean of those kept: the run left one of them."""
    model, *tokenizers = load_model(run.newest())
    translator = Translator(model, *tokenizers, tokenized=True)
    newest = score(translator, corpus, "val", search)["bleu"]
    model.load_state_dict(average_checkpoints(run.checkpoints()))
    return {"newest": newest, "mean": score(translator, corpus, "val", search)["bleu"]}


def run(arguments: Sequence[str] | None = None) -> Found:
    """Train what is not recorded yet, and write the record after each model."""
    options = long_parser(__doc__, "ablation")
    options.add_argument("--only", nargs="+", metavar="NAME", choices=CONTESTANTS, help="these contestants")
    options.add_argument("--seed", nargs="+", type=int, help="default 0 1 2 for the first two, 0 for others")
    options.add_argument("--runs", type=Path, default=Path("runs/ablation"), help="default %(default)s")
    options = parse_long(options, arguments)
    base = SHORT if options.short else FULL
    record, corpus = Record(options.json, {"settings": base}), text_of(base, options.short)
    search = SearchConfig(**RECIPE["evaluate"])
    todo = [*product([0], options.only or CONTESTANTS), *product([1, 2], [*CONTESTANTS][:2])]
    if options.seed:
        todo = [*product(options.seed, options.only or CONTESTANTS)]
    for seed, name in tqdm(todo[:2] if options.short else todo, unit="model"):
        if str(seed) in record.found().get("models", {}).get(name, {}):
            continue
        out = options.runs / f"{name.replace(' ', '-')}-{seed}"
        translator = train(corpus, {**base, **CONTESTANTS[name]}, seed, out)
        scores = {split: score(translator, corpus, split, search) for split in SPLITS}
        scores |= averaged(RunFolder(out), corpus, search)
        with record.change() as found:
            found.setdefault("models", {}).setdefault(name, {})[str(seed)] = scores
    return record.found()


if __name__ == "__main__":
    run()
