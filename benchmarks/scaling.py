"""How does the cost of decoding grow with the length of what is written?

    python benchmarks/scaling.py

Greedy decoding of a batch of sentences to 32, 64, ... 512 tokens, no end symbol, with the cache and, as far
as that is bearable, without it. If each token cost the same, the time would grow as length^1: the exponent is
fitted to the medians, and by its side to each of the two runs.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median

import numpy as np
import torch
from report import main, parser, print_table, set_up, synchronized, write
from timing import Measured, check_agreement, in_turns
from torch import Tensor
from workload import CONFIGS

from annotated.modes import evaluating
from annotated.search.greedy import greedy_decode
from annotated.tokenizers import START
from annotated.transformer.attention import subsequent_mask
from annotated.transformer.model import EncoderDecoder

CACHED, UNCACHED = "with the cache", "without"
Decode = Callable[[EncoderDecoder, Tensor, int], Tensor]


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


def exponent(measured: Mapping[int, Measured], turns: slice = slice(None)) -> float:
    """The power of the length with which the time grows, over the turns given."""
    times = [median(each.turns[turns]) for each in measured.values()]
    return float(np.polyfit(np.log(list(measured)), np.log(times), 1)[0])


def run(arguments: Sequence[str] | None = None) -> dict[str, object]:
    """Measure, print and record."""
    options = parser(__doc__, tuple(CONFIGS), rounds=2)
    options.add_argument("--rows", type=int, default=16, help="sentences side by side (default %(default)s)")
    options.add_argument("--lengths", type=int, nargs="+", default=[32, 64, 128, 256, 512])
    options.add_argument("--uncached", type=int, default=128, help="longest without the cache")
    options.add_argument("--goal", type=float, default=1.2, help="the exponent to stay below")
    options = options.parse_args(arguments)
    device, config = set_up(options), CONFIGS[options.size]
    torch.manual_seed(0)
    model = EncoderDecoder.from_config(config).to(device)
    src = torch.randint(4, config.src_vocab, (options.rows, 20), device=device)
    check_agreement({name: make(model, src, options.lengths[0]).tolist() for name, make in WAYS.items()})
    lengths = {CACHED: options.lengths, UNCACHED: [n for n in options.lengths if n <= options.uncached]}
    rounds = {
        f"{name}, {n}": synchronized(partial(WAYS[name], model, src, n), device)
        for name in WAYS
        for n in lengths[name]
    }
    measured = in_turns(rounds, options.rounds, warm_up=0)
    found = {name: {n: measured[f"{name}, {n}"] for n in lengths[name]} for name in WAYS}
    exponents = {
        name: [exponent(each, turns) for turns in (slice(None), slice(0, None, 2), slice(1, None, 2))]
        for name, each in found.items()
        if len(each) > 1
    }
    refuse_noise(exponents[CACHED], options.goal)
    record = write("scaling", options, measured, [], exponents=exponents)
    rows = [
        (name, n, f"{each.median / n / options.rows * 1e6:,.1f}", f"{each.spread:.1%}")
        for name, group in found.items()
        for n, each in group.items()
    ]
    print_table(("", "length", "µs a token", "spread"), rows)
    for name, (all_turns, *runs) in exponents.items():
        print(f"{name}: length^{all_turns:.3f} (its two runs: {runs[0]:.3f}, {runs[1]:.3f})")
    return record


WAYS: dict[str, Decode] = {CACHED: cached, UNCACHED: uncached}


def refuse_noise(exponents: Sequence[float], goal: float) -> None:
    """Raise ValueError where the two runs' exponents are further apart than the whole is from the goal."""
    whole, first, second = exponents
    if abs(first - second) >= abs(whole - goal):
        raise ValueError(f"too noisy: two runs give {first:.3f} and {second:.3f}, the goal is {goal}")


if __name__ == "__main__":
    main(run)
