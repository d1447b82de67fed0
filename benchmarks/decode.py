"""How fast does a trained model translate, beside Hugging Face's Marian and CTranslate2 with its weights?

    python benchmarks/decode.py                 a shipped model on test_2016_flickr
    python benchmarks/decode.py --size base     random weights of that size, on random sentences

Every engine gets the same tokens, the same rule of length (log-probability / length), and the batch
size and the way of using the threads that suit it best of those tried on a third of the sentences, the best
of them tried twice. First the tokens found are held to be the same for 99% of the sentences.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
from engines import OURS, Decode, Sentences, engines
from report import parser, print_race, set_up, synchronized, write
from timing import check_agreement, leaving_out, race, seconds
from tqdm import tqdm
from workload import CONFIGS, random_pairs

from annotated.transformer.model import make_model
from annotated.translation.data import load_corpus
from annotated.translation.translator import Translator


class Choice(NamedTuple):
    """An engine set up with a batch size and a way of using the threads."""

    rows: int
    threads: str
    decode: Decode


def best_of(make: Callable[[int], dict[str, Decode]], rows: Sequence[int], sentences: Sentences) -> Choice:
    """The engine as it is fastest, of all that is tried; those near the best are tried twice."""
    tried = [Choice(count, threads, decode) for count in rows for threads, decode in make(count).items()]
    took = []
    for each in tried:
        each.decode(sentences[:8])
        took.append(seconds(partial(each.decode, sentences)))
    near = [(time, each) for time, each in zip(took, tried, strict=True) if time < 1.5 * min(took)]
    again = [min(time, seconds(partial(each.decode, sentences))) for time, each in near]
    return near[again.index(min(again))][1]


def load_case(options: argparse.Namespace) -> tuple[Translator, Sentences]:
    """The model to decode with, and a thousand sentences as it reads them; a toy has twenty."""
    translator = Translator.load("multi30k-en-de", options.device)
    if options.size == "trained":
        text = load_corpus("multi30k", "en-de")["test_2016_flickr"].src
        return translator, [translator.encode(sentence) for sentence in text]
    c, size = CONFIGS[options.size], len(translator.tgt_tokenizer)
    torch.manual_seed(0)
    model = make_model(size, size, c.N, c.d_model, c.d_ff, c.h, tied_embeddings="all")
    translator.model = model.to(options.device).eval()
    return translator, random_pairs(20 if options.size == "toy" else 1000, size).src


def run(arguments: Sequence[str] | None = None) -> dict[str, object]:
    """Measure, print and record, greedy search and then the beam."""
    options = parser(__doc__, ("trained", *CONFIGS))
    options.add_argument("--beams", type=int, nargs="+", default=[1, 5], help="default 1 and 5")
    options.add_argument("--rows", type=int, nargs="+", default=[16, 64, 128, 256], help="batch sizes to try")
    options = options.parse_args(arguments)
    device = set_up(options)
    started = time.monotonic()
    translator, sentences = load_case(options)
    limit = max(map(len, sentences)) + 50
    rounds: dict[str, Callable[[], object]] = {}
    chosen: dict[str, Choice] = {}
    agreement: dict[str, float] = {}
    with TemporaryDirectory() as folder:
        for beam in options.beams:
            makes = engines(translator, Path(folder), beam, limit, device, options.threads)
            best = {}
            for name in tqdm(list(makes), f"settings for beam {beam}", unit="engine", disable=None):
                with leaving_out(makes, name):
                    best[f"{name}, beam {beam}"] = best_of(makes[name], options.rows, sentences[::3])
            agreement |= check_agreement({name: each.decode(sentences) for name, each in best.items()})
            chosen |= best
            rounds |= {
                name: synchronized(partial(each.decode, sentences), device) for name, each in best.items()
            }
        ours = {name: f"{OURS}, {name.partition(', ')[2]}" for name in rounds}
        pairs = [(mine, name) for name, mine in ours.items() if name != mine]
        minutes = options.minutes - (time.monotonic() - started) / 60
        measured, comparisons = race(rounds, pairs, minutes, options.rounds, warm_up=0)
    record = write(
        "decode", options, measured, comparisons,
        sentences=len(sentences), agreement=agreement,
        rows={name: each.rows for name, each in chosen.items()},
        threads={name: each.threads for name, each in chosen.items()},
    )  # fmt: skip
    shares = {name: f"{share:.1%}" for name, share in agreement.items()}
    settings = {name: f"{each.rows} rows, threads {each.threads}" for name, each in chosen.items()}
    columns = {"settings": settings, "same tokens": shares}
    print_race(record, comparisons, len(sentences), "sentences", **columns)
    return record


if __name__ == "__main__":
    run()
