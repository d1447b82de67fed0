"""How much memory does training take at its peak, beside `torch.nn.Transformer`?

    python benchmarks/memory.py --size base

Every candidate trains for three updates in a process of its own, over and over, in turns: what counts is the
most that this process ever had (the most that was allocated, on a GPU), PyTorch itself among it.
Linux tells that.
"""

import re
from collections.abc import Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch
from report import parser, print_table, set_up, write
from timing import race
from trainees import OURS, TORCH, candidates, check
from workload import CONFIGS, random_batches

from annotated.transformer.model import EncoderDecoder

RACE = (TORCH, "readable forms", OURS)
UPDATES = 3
MEBI = 2**20


def peak(name: str, size: str, tokens: int, device: torch.device, threads: int) -> float:
    """Train a candidate in this process; the most memory that took, in MiB."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    config = CONFIGS[size]
    model = EncoderDecoder.from_config(config).to(device)
    trainee = candidates(model, device)[name]()
    del model
    for batch in random_batches(config, tokens, UPDATES):
        trainee.step(batch.to(device))
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / MEBI
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text("utf-8"))[1]) / 1024


def peak_apart(*arguments: object) -> float:
    """The same in a fresh process."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(peak, arguments)


def run(arguments: Sequence[str] | None = None) -> dict[str, object]:
    """Measure, print and record."""
    options = parser(__doc__, ("base", *(size for size in CONFIGS if size != "base")))
    options.add_argument("--tokens", type=int, default=4096, help="positions a batch (default %(default)s)")
    options = options.parse_args(arguments)
    device = set_up(options)
    torch.manual_seed(0)
    model = EncoderDecoder.from_config(CONFIGS[options.size])
    makers = candidates(model, torch.device("cpu"))
    check({name: makers[name]() for name in RACE}, random_batches(CONFIGS[options.size], 128, 1)[0])
    settings = options.size, options.tokens, device, options.threads
    # A candidate, run, tells its own memory: there is nothing to warm up.
    runs = {name: partial(peak_apart, name, *settings) for name in RACE}
    pairs = [(OURS, name) for name in RACE if name != OURS]
    measured, comparisons = race(
        runs, pairs, options.minutes, options.rounds, measure=lambda run: run(), warm_up=0
    )
    record = write("memory", options, measured, comparisons, unit="MiB")
    rows = [
        (name, f"{each.median:,.0f}", f"{each.spread:.1%}", f"{each.median / measured[TORCH].median:.2f} x")
        for name, each in measured.items()
    ]
    print_table(("", "peak MiB", "spread", f"of {TORCH}"), rows)
    for comparison in comparisons:
        print(f"{comparison.peer} takes {comparison} as much as {OURS}")
    return record


if __name__ == "__main__":
    run()
