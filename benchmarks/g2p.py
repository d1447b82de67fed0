"""From spelling to sound in fifteen languages (SIGMORPHON 2020, task 1), one recipe for all.

    python benchmarks/g2p.py                        all languages, seed 0: 72 minutes of one core
    python benchmarks/g2p.py fre --json fre.json    one of them: five minutes

Each language has 3,600 words to train on. The recipe was chosen on development sets: sizes and rates on
that of French, the way to cut a word on that of Korean. The measure of the task is the percentage of words
whose phones are not all right (word error rate), and beside it the edits for 100 phones.
"""

import time
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from records import Found, Record
from report import long_parser, parse_long

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
TOY = {"N": 1, "d_model": 16, "d_ff": 16, "h": 2, "max_steps": 2, "max_tokens": 256}


def cut(word: str) -> str:
    """Cut a word into letters and the signs on them, in Korean too; a space inside it is a token as well."""
    return " ".join(unicodedata.normalize("NFD", word.replace(" ", "_")))


def splits(language: str, short: bool) -> dict[str, list[tuple[str, str]]]:
    """The pairs of a language by split, cut; or a few made-up ones that come with us."""
    if short:
        words, parts = (
            load_corpus("grammar")["train"].src,
            {"train": (0, 40), "val": (40, 46), "test": (46, 52)},
        )
        return {
            name: [(cut(word), cut(word.lower())) for word in words[slice(*part)]]
            for name, part in parts.items()
        }
    corpus = load_corpus("sigmorphon2020", language)
    return {name: [(cut(word), phones) for word, phones in corpus[name]] for name in ("train", "val", "test")}


def measure(run: Path, language: str, seed: int, short: bool) -> Found:
    """Train a model of one language, or go on with it, and score it."""
    began = time.process_time()
    pairs = splits(language, short)
    settings = {**RECIPE, **(TOY if short else {})}
    translate = annotated.train(
        pairs["train"], run, validation=pairs["val"], preset="tiny", resume=True, seed=seed, **settings
    )
    found: Found = {"language": language, "seed": seed}
    for name, split in (("dev", "val"), ("test", "test")):
        words, references = map(list, zip(*pairs[split], strict=True))
        hypotheses = translate.translate(words, beam=BEAM)
        wrong = [h != r for h, r in zip(hypotheses, references, strict=True)]
        found[f"{name}_word_error_rate"] = 100 * sum(wrong) / len(wrong)
        found[f"{name}_phone_error_rate"] = METRICS["wer"]()(hypotheses, references).value
        found[f"{name}_wrong"] = [i for i, each in enumerate(wrong) if each]
    return found | {"minutes": round((time.process_time() - began) / 60, 1)}


def run(arguments: Sequence[str] | None = None) -> Found:
    """Train what is not recorded yet, and write the record after each language."""
    options = long_parser(__doc__, "g2p")
    options.add_argument("languages", nargs="*", default=LANGUAGES, metavar="LANGUAGE")
    options.add_argument("--runs", type=Path, default=Path("runs/g2p"), help="default %(default)s")
    options.add_argument("--seed", type=int, default=0, help="default %(default)s")
    options = parse_long(options, arguments)
    record = Record(options.json, {"settings": {**RECIPE, "beam": BEAM}})
    for language in options.languages[: 1 if options.short else None]:
        known = record.found().get("results", [])
        if any((each["language"], each["seed"]) == (language, options.seed) for each in known):
            continue
        found = measure(options.runs / f"{language}-{options.seed}", language, options.seed, options.short)
        with record.change() as whole:
            whole.setdefault("results", []).append(found)
        print({name: value for name, value in found.items() if not name.endswith("_wrong")}, flush=True)
    return record.found()


if __name__ == "__main__":
    run()
