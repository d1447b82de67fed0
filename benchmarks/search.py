"""What do beam and length penalty of section 6.1 bring in BLEU?

    python benchmarks/search.py                          the shipped English-German models: an hour
    python benchmarks/search.py --model multi30k-en-de   this one

Each search is compared with greedy decoding of the same model on the same sentences (paired bootstrap).
Nothing is chosen on the test set: it is reported beside `val`. What is done already is read from the file
that is written, and not done again.
"""

import argparse
import dataclasses
from itertools import product
from pathlib import Path

import torch
from tqdm import tqdm

from annotated.data import ParallelText, load_corpus
from annotated.files import read_json, write_json
from annotated.translation.evaluation import paired_bootstrap
from annotated.translation.model_folder import find_model, training_settings
from annotated.translation.scoring import RECORDED
from annotated.translation.translator import Translator

MODELS = ("multi30k-en-de", "multi30k-en-de-lc")
SPLITS = ("val", "test_2016_flickr")
BEAMS = (2, 4, 5, 10, 20, 50)
PENALTIES = {"none": ("gnmt", 0.0), "gnmt 0.6": ("gnmt", 0.6), "length": ("power", 1.0)}
GREEDY = "greedy"


def searches() -> dict[str, dict]:
    """Each search by its name, as `Translator.translate` takes it; greedy first, the dearest last."""
    found = {GREEDY: {"beam": 1}}
    for beam, (name, (penalty, alpha)) in product(BEAMS, PENALTIES.items()):
        found[f"beam {beam}, {name}"] = {"beam": beam, "penalty": penalty, "alpha": alpha}
    return found


def load(model: str, split: str) -> tuple[Translator, ParallelText, str]:
    """The model, the text of a split as the model wants it, and how sacreBLEU should cut it."""
    translator, trained = Translator.load(model), training_settings(find_model(model))
    if trained["variant"] == "tok":
        translator.pass_tokenized()
    corpus = load_corpus(trained["corpus"], trained["pair"], variant=trained["variant"])
    return translator, corpus[split], "none" if trained["variant"] == "tok" else "13a"


def score(found: list[str], greedy: list[str], references: list[str], tokenize: str) -> dict:
    """BLEU, its difference from greedy decoding, both with their intervals, and the length of the output."""
    compared = paired_bootstrap(found, greedy, references, tokenize=tokenize)
    words = [sum(len(line.split()) for line in lines) for lines in (found, references)]
    return {
        "bleu": dataclasses.asdict(compared.a),
        "over greedy": dataclasses.asdict(compared.difference),
        "wins": compared.wins,
        "length": words[0] / words[1],
    }


def main() -> None:
    """Search as is not recorded yet, and write the record after each search."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--model", nargs="+", default=MODELS, metavar="NAME", help="these models")
    options.add_argument("--threads", type=int, default=1, help="default %(default)s")
    options.add_argument(
        "--json", type=Path, default=RECORDED / "search.json", metavar="FILE", help="default %(default)s"
    )
    asked = options.parse_args()
    torch.set_num_threads(asked.threads)
    record = read_json(asked.json) if asked.json.exists() else {}
    for model, split in product(asked.model, SPLITS):
        done = record.setdefault(model, {}).setdefault(split, {})
        missing = [name for name in searches() if name not in done]
        if missing:
            translator, text, tokenize = load(model, split)
            greedy = translator.translate(text.src, **searches()[GREEDY])
        for name in tqdm(missing, desc=f"{model}, {split}"):
            found = translator.translate(text.src, **searches()[name])
            done[name] = score(found, greedy, text.tgt, tokenize)
            write_json(asked.json, record)


if __name__ == "__main__":
    main()
