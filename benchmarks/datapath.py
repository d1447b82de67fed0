"""Does the data keep up? Tokenising, batching and padding a corpus beside one epoch's computing.

    python benchmarks/datapath.py

The corpus is Multi30k's 29,000 pairs. Text is cut into subwords once a run, or once an epoch under subword
dropout; batches are cut and padded in every epoch. An epoch's computing is taken from some of its batches.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from report import main, parser, print_table, set_up, synchronized, write
from timing import in_turns
from trainees import Trainee, ours
from workload import CONFIGS

from annotated.data import TokenBatches, encode_corpus, load_corpus
from annotated.tokenizers import PAD
from annotated.transformer.model import EncoderDecoder
from annotated.translation.translator import Translator

TOKENISE, BATCH, COMPUTE = "tokenise", "batch and pad", "compute"


def all_batches(batches: TokenBatches) -> int:
    """Make every batch of an epoch; how many there are."""
    return sum(1 for _ in batches.epoch(0))


def run(arguments: Sequence[str] | None = None) -> dict[str, object]:
    """Measure, print and record."""
    options = parser(__doc__, tuple(CONFIGS), rounds=2)
    options.add_argument("--corpus", default="multi30k", help="default %(default)s")
    options.add_argument("--pair", default="en-de", help="its languages (default %(default)s)")
    options.add_argument("--model", default="multi30k-en-de", help="whose subwords (default %(default)s)")
    options.add_argument("--tokens", type=int, default=4096, help="positions a batch (default %(default)s)")
    options.add_argument("--sample", type=int, default=8, help="batches computed (default %(default)s)")
    options = options.parse_args(arguments)
    device = set_up(options)
    text = load_corpus(options.corpus, options.pair)["train"]
    translator = Translator.load(options.model)
    tokenizers = translator.src_tokenizer, translator.tgt_tokenizer
    batches = TokenBatches(encode_corpus(text, *tokenizers), options.tokens, PAD)
    sample = [b.to(device) for _, b in zip(range(options.sample), batches.epoch(0), strict=False)]
    trainee = trainee_for(options.size, len(tokenizers[1]), device)

    def compute() -> None:
        for batch in sample:
            trainee.step(batch)

    rounds: dict[str, Callable[[], object]] = {
        TOKENISE: partial(encode_corpus, text, *tokenizers),
        BATCH: partial(all_batches, batches),
        COMPUTE: synchronized(compute, device),
    }
    measured = in_turns(rounds, options.rounds)
    seconds = {name: each.median for name, each in measured.items()}
    seconds[COMPUTE] *= len(batches) / len(sample)
    shares = {name: seconds[name] / seconds[COMPUTE] for name in rounds}
    more = {"pairs": len(text), "batches": len(batches), "epoch_seconds": seconds, "shares": shares}
    record = write("datapath", options, measured, [], **more)
    rows = [
        (name, f"{seconds[name]:.2f}", f"{measured[name].spread:.1%}", f"{shares[name]:.2%}")
        for name in rounds
    ]
    print_table((f"{len(text):,} pairs", "seconds an epoch", "spread", "of the computing"), rows)
    return record


def trainee_for(size: str, vocab: int, device: torch.device) -> Trainee:
    """A model of ours of that size and vocabulary, in training."""
    c = CONFIGS[size]
    config = type(c)(vocab, vocab, c.N, c.d_model, c.d_ff, c.h, c.dropout)
    model = EncoderDecoder.from_config(config).to(device).train()
    return Trainee(model, ours(model))


if __name__ == "__main__":
    main(run)
