"""How fast does a trained model translate, beside Hugging Face's Marian and CTranslate2 with its weights?

    python benchmarks/decode.py                 a shipped model on test_2016_flickr
    python benchmarks/decode.py --size base     random weights of that size, on random sentences

Every engine gets the same tokens, the same rule of length (log-probability / length^alpha), the batch size
that suits it best of those tried, and as many threads; CTranslate2 uses them within a batch or on several,
whichever suits it better. First the tokens found are held to be the same for 99% of the sentences.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from engines import OURS, Decode, Sentences, engines
from report import main, parser, print_table, set_up, synchronized, write
from timing import check_agreement, compare, in_turns, seconds
from workload import CONFIGS, random_pairs

from annotated.data import load_corpus
from annotated.model import make_model
from annotated.translator import Translator


def best_of(
    make: Callable[[int], list[Decode]], rows: Sequence[int], sentences: Sentences
) -> tuple[int, Decode]:
    """The batch size, of those tried, with which an engine is fastest, and the engine set up for it."""
    tried = [(count, decode) for count in rows for decode in make(count)]
    for _, decode in tried:
        decode(sentences[:8])
    return min(tried, key=lambda each: seconds(lambda: each[1](sentences)))


def load_case(options: argparse.Namespace) -> tuple[Translator, Sentences]:
    """The model to decode with, and its sentences as it reads them."""
    translator = Translator.load(options.model, options.device)
    if options.size == "trained":
        text = load_corpus("multi30k", options.pair)["test_2016_flickr"].src[: options.sentences]
        return translator, [translator.encode(sentence) for sentence in text]
    c, size = CONFIGS[options.size], len(translator.tgt_tokenizer)
    torch.manual_seed(0)
    model = make_model(size, size, c.N, c.d_model, c.d_ff, c.h, tied_embeddings="all")
    translator.model = model.to(options.device).eval()
    return translator, random_pairs(options.sentences, size).src


def run(arguments: Sequence[str] | None = None) -> dict[str, object]:
    """Measure, print and record, greedy search and then the beam."""
    options = parser(__doc__, ("trained", *CONFIGS), rounds=2)
    options.add_argument("--model", default="multi30k-en-de", help="name or folder (default %(default)s)")
    options.add_argument("--pair", default="en-de", help="its languages (default %(default)s)")
    options.add_argument("--sentences", type=int, default=1000, help="at most (default %(default)s)")
    options.add_argument("--beams", type=int, nargs="+", default=[1, 5], help="default 1 and 5")
    options.add_argument("--alpha", type=float, default=1.0, help="of the length (default %(default)s)")
    options.add_argument("--rows", type=int, nargs="+", default=[32, 128, 512], help="batch sizes to try")
    options = options.parse_args(arguments)
    device = set_up(options)
    translator, sentences = load_case(options)
    limit = max(map(len, sentences)) + 50
    rounds: dict[str, Callable[[], object]] = {}
    chosen, agreement = {}, {}
    with TemporaryDirectory() as folder:
        for beam in options.beams:
            makes = engines(translator, Path(folder), beam, options.alpha, limit, device, options.threads)
            best = {f"{n}, beam {beam}": best_of(make, options.rows, sentences) for n, make in makes.items()}
            agreement |= check_agreement({name: decode(sentences) for name, (_, decode) in best.items()})
            chosen |= {name: rows for name, (rows, _) in best.items()}
            rounds |= {n: synchronized(partial(decode, sentences), device) for n, (_, decode) in best.items()}
        measured = in_turns(rounds, options.rounds, warm_up=0)
    pairs = [(f"{OURS}, {name.partition(', ')[2]}", name) for name in rounds]
    comparisons = [compare(measured, mine, name) for mine, name in pairs if name != mine]
    more = {"sentences": len(sentences), "rows": chosen, "agreement": agreement}
    record = write("decode", options, measured, comparisons, **more)
    show(record, comparisons)
    return record


def show(record: dict, comparisons: list) -> None:
    """The table: speeds, and how many times as fast as each of them ours is."""
    told = {comparison.peer: comparison for comparison in comparisons}
    rows = []
    for name, summary in record["candidates"].items():
        speed, spread = record["sentences"] / summary["median"], summary["spread"]
        share, against = record["agreement"][name], told.get(name, "")
        rows.append((name, f"{speed:,.1f}", f"{spread:.1%}", record["rows"][name], f"{share:.1%}", against))
    print_table(("", "sentences/s", "spread", "rows a batch", "same tokens", f"{OURS} against it"), rows)


if __name__ == "__main__":
    main(run)
