"""How does the cost of decoding grow with the length of what is written?

    python benchmarks/scaling.py

Greedy decoding of a batch of sentences to 32, 64, ... 512 tokens, no end symbol, with the cache and, as far
as that is bearable, without it. If each token cost the same, the time would grow as length^1: the exponent is
fitted to the medians, and by its side to each of the two runs.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median

import numpy as np
import torch
from report import parser, print_table, set_up, synchronized, write
from timing import Measured, check_agreement, race
from torch import Tensor
from workload import CONFIGS

from annotated.evaluation_mode import evaluating
from annotated.search.greedy import greedy_decode
from annotated.transformer.attention import subsequent_mask
from annotated.transformer.model import EncoderDecoder
from annotated.translation.tokenizers import START

CACHED, UNCACHED = "with the cache", "without"
LENGTHS = {CACHED: [32, 64, 128, 256, 512], UNCACHED: [32, 64, 128]}
ROWS = 16  # sentences side by side
GOAL = 1.2  # the exponent to stay below


def cached(model: EncoderDecoder, src: Tensor, length: int) -> Tensor:
    """What the package does."""
    return greedy_decode(model, src, None, length + 1, START)


def uncached(model: EncoderDecoder, src: Tensor, length: int) -> Tensor:
    """The textbook loop: all positions again at each step."""
    with evaluating(model):
        memory = model.encode(src, None)
        tokens = src.new_full((len(src), 1), START)
        for _ in range(length):
            mask = subsequent_mask(tokens.size(1), src.device)
            states = model.decode(memory, None, tokens, mask)
            tokens = torch.cat([tokens, model.generator(states[:, -1:]).argmax(dim=-1)], dim=1)
    return tokens


WAYS = {CACHED: cached, UNCACHED: uncached}


def exponent(measured: Mapping[int, Measured], turns: slice = slice(None)) -> float:
    """The power of the length with which the time grows, over the turns given."""
    times = [median(each.turns[turns]) for each in measured.values()]
    return float(np.polyfit(np.log(list(measured)), np.log(times), 1)[0])


def run(arguments: Sequence[str] | None = None) -> dict[str, object]:
    """Measure, print and record."""
    options = parser(__doc__, tuple(CONFIGS)).parse_args(arguments)
    device, config = set_up(options), CONFIGS[options.size]
    torch.manual_seed(0)
    model = EncoderDecoder.from_config(config).to(device)
    src = torch.randint(4, config.src_vocab, (ROWS, 20), device=device)
    check_agreement({name: make(model, src, 32).tolist() for name, make in WAYS.items()})
    rounds = {
        f"{name}, {n}": synchronized(partial(make, model, src, n), device)
        for name, make in WAYS.items()
        for n in LENGTHS[name]
    }
    measured, _ = race(rounds, [], rounds=options.rounds or 2, warm_up=0)
    found = {name: {n: measured[f"{name}, {n}"] for n in LENGTHS[name]} for name in WAYS}
    turns = slice(None), slice(0, None, 2), slice(1, None, 2)
    exponents = {name: [exponent(each, some) for some in turns] for name, each in found.items()}
    whole, first, second = exponents[CACHED]
    if abs(first - second) >= abs(whole - GOAL):
        raise ValueError(f"too noisy: two runs give {first:.3f} and {second:.3f}, the goal is {GOAL}")
    record = write("scaling", options, measured, [], exponents=exponents)
    rows = [
        (name, n, f"{each.median / n / ROWS * 1e6:,.1f}", f"{each.spread:.1%}")
        for name, group in found.items()
        for n, each in group.items()
    ]
    print_table(("", "length", "µs a token", "spread"), rows)
    for name, (all_turns, *runs) in exponents.items():
        print(f"{name}: length^{all_turns:.3f} (its two runs: {runs[0]:.3f}, {runs[1]:.3f})")
    return record


if __name__ == "__main__":
    run()
