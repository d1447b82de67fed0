"""From spelling to sound in fifteen languages (SIGMORPHON 2020, task 1), one recipe for all.

    python benchmarks/g2p.py --json annotated/recorded/g2p.json             all languages, seed 0: hours
    python benchmarks/g2p.py fre --runs runs/g2p --json fre.json            one of them: ten minutes

Each language has 3,600 words to train on. The recipe was chosen on development sets: sizes and rates on
that of French, the way to cut a word on that of Korean. A language whose record stands in the file is left
out, so a script that was stopped goes on where it was. The measure of the task is the percentage of words
whose phones are not all right (word error rate), and beside it the edits for 100 phones.
"""

import json
import time
import unicodedata
from pathlib import Path

import torch
from report import plain_parser, save

import annotated
from annotated.metrics import METRICS
from annotated.translation.data import load_corpus

LANGUAGES = [
    *("ady", "arm", "bul", "dut", "fre", "geo", "gre", "hin"),
    *("hun", "ice", "jpn", "kor", "lit", "rum", "vie"),
]
RECIPE = {
    "tokenizer": "spaces",
    "keep_equal": True,
    "N": 3,
    "d_model": 128,
    "d_ff": 512,
    "h": 4,
    "dropout": 0.3,
    "norm_first": True,
    "max_tokens": 2048,
    "epochs": 100,
    "learning_rate": 0.002,
    "warmup": 400,
    "precision": "bf16",
    "average": 5,
}
BEAM = 5


def cut(word: str) -> str:
    """Cut a word into letters and the signs on them, in Korean too; a space inside it is a token as well."""
    return " ".join(unicodedata.normalize("NFD", word.replace(" ", "_")))


def measure(runs: Path, language: str, seed: int) -> dict[str, object]:
    """Train a model of one language, or go on with it, and score it."""
    began = time.process_time()
    corpus = load_corpus("sigmorphon2020", language)
    run = runs / f"{language}-{seed}"
    train, dev, test = (
        [(cut(word), phones) for word, phones in corpus[split]] for split in ("train", "val", "test")
    )
    translate = annotated.train(train, run, validation=dev, resume=True, seed=seed, **RECIPE)
    record: dict[str, object] = {"language": language, "seed": seed}
    for name, pairs in (("dev", dev), ("test", test)):
        words, references = map(list, zip(*pairs, strict=True))
        hypotheses = translate.translate(words, beam=BEAM)
        wrong = [h != r for h, r in zip(hypotheses, references, strict=True)]
        record[f"{name}_word_error_rate"] = 100 * sum(wrong) / len(wrong)
        record[f"{name}_phone_error_rate"] = METRICS["wer"]()(hypotheses, references).value
        record[f"{name}_wrong"] = [i for i, each in enumerate(wrong) if each]
    return record | {"minutes": round((time.process_time() - began) / 60, 1)}


def main() -> None:
    options = plain_parser(__doc__)
    options.add_argument("languages", nargs="*", default=LANGUAGES, metavar="LANGUAGE")
    options.add_argument("--runs", type=Path, default=Path("runs/g2p"), help="default %(default)s")
    options.add_argument("--seed", type=int, default=0, help="default %(default)s")
    options.set_defaults(json=Path("annotated/recorded/g2p.json"))
    given = options.parse_args()
    torch.set_num_threads(1)
    for language in given.languages:
        known = json.loads(given.json.read_text())["results"] if given.json.exists() else []
        if any((each["language"], each["seed"]) == (language, given.seed) for each in known):
            continue
        found = measure(given.runs, language, given.seed)
        save({"settings": {**RECIPE, "beam": BEAM}, "results": [*known, found]}, given.json)
        print({name: value for name, value in found.items() if not name.endswith("_wrong")}, flush=True)


if __name__ == "__main__":
    main()
