"""What do beam and length penalty of section 6.1 bring in BLEU?

    python benchmarks/search.py                                      both models, two splits: half an hour
    python benchmarks/search.py --model multi30k-en-de --split val   this one on this text
    python benchmarks/search.py --beam 2 4 5                         these beams; 50 takes half the time

Each search is compared with greedy decoding of the same model on the same sentences (paired bootstrap).
Nothing is chosen on the test set: it is reported beside `val`. What is done already is read from the file
that is written, and not done again; two processes may write the same file.
"""

import argparse
import dataclasses
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import torch
from tqdm import tqdm

from annotated.data import ParallelText, load_corpus
from annotated.files import read_json, write_json
from annotated.metrics import paired_bootstrap
from annotated.translation.evaluate import RECORDED
from annotated.translation.model_folder import find_model, training_settings
from annotated.translation.translator import Translator

MODELS = ("multi30k-en-de", "multi30k-en-de-lc")
SPLITS = ("val", "test_2016_flickr")
BEAMS = (2, 4, 5, 10, 20, 50)
PENALTIES = {"none": ("gnmt", 0.0), "gnmt 0.6": ("gnmt", 0.6), "length": ("power", 1.0)}
GREEDY = "greedy"


def searches(beams: Sequence[int] = BEAMS) -> dict[str, dict]:
    """Each search by its name, as `Translator.translate` takes it; greedy first, the dearest last."""
    found = {GREEDY: {"beam": 1}}
    for beam, (name, (penalty, alpha)) in product(beams, PENALTIES.items()):
        found[f"beam {beam}, {name}"] = {"beam": beam, "penalty": penalty, "alpha": alpha}
    return found


def load(model: str, split: str) -> tuple[Translator, ParallelText, str]:
    """The model, the text of a split as the model wants it, and how sacreBLEU should cut it."""
    translator, trained = Translator.load(model), training_settings(find_model(model))
    if trained["variant"] == "tok":
        translator.pass_tokenized()
    corpus = load_corpus(trained["corpus"], trained["pair"], variant=trained["variant"])
    return translator, corpus[split], "none" if trained["variant"] == "tok" else "13a"


def score(
    found: list[str], base: list[str], references: list[str], tokenize: str, what: str = GREEDY
) -> dict:
    """BLEU, its difference from that of `base`, both with their intervals, and the length of the output."""
    compared = paired_bootstrap(found, base, references, tokenize=tokenize)
    words = [sum(len(line.split()) for line in lines) for lines in (found, references)]
    return {
        "bleu": dataclasses.asdict(compared.a),
        f"over {what}": dataclasses.asdict(compared.difference),
        "wins": compared.wins,
        "length": words[0] / words[1],
    }


def keep(path: Path, model: str, split: str, name: str, scores: dict) -> None:
    """Add a search's scores to the file as it is by now: another process may have written it since."""
    record = read_json(path) if path.exists() else {}
    done = record.setdefault(model, {}).get(split, {}) | {name: scores}
    record[model][split] = {each: done[each] for each in searches() if each in done}
    write_json(path, record)


def main() -> None:
    """Search as is not recorded yet, and write the record after each search."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--model", nargs="+", default=MODELS, metavar="NAME", help="these models")
    options.add_argument("--split", nargs="+", default=SPLITS, metavar="NAME", help="of their corpora, these")
    options.add_argument("--beam", nargs="+", type=int, default=BEAMS, choices=BEAMS, help="these beams")
    options.add_argument("--threads", type=int, default=1, help="default %(default)s")
    options.add_argument(
        "--json", type=Path, default=RECORDED / "search.json", metavar="FILE", help="default %(default)s"
    )
    asked = options.parse_args()
    torch.set_num_threads(asked.threads)
    for model, split in product(asked.model, asked.split):
        record = read_json(asked.json) if asked.json.exists() else {}
        done = record.get(model, {}).get(split, {})
        missing = [name for name in searches(asked.beam) if name not in done]
        if missing:
            translator, text, tokenize = load(model, split)
            greedy = translator.translate(text.src, **searches()[GREEDY])
        for name in tqdm(missing, desc=f"{model}, {split}"):
            found = translator.translate(text.src, **searches()[name])
            keep(asked.json, model, split, name, score(found, greedy, text.tgt, tokenize))


if __name__ == "__main__":
    main()
