"""How fast does a model train, in the steps that made it faster, and beside other libraries?

    python benchmarks/train.py --size tiny
    python benchmarks/train.py --size base --precision bf16

All candidates start with the same weights and get the same batches, Adam, and the same places of dropout.
First their losses and gradients without dropout are held to be equal. They differ in this:

    torch.nn.Transformer                 its stacks, all logits at once, PyTorch's cross-entropy
    torch.nn.Transformer with our loss   its stacks, and the chunked loss of ours: the model alone is another
    x-transformers as it comes           its stacks, all logits at once, PyTorch's cross-entropy
    x-transformers                       the same with attn_flash=True, PyTorch's fused attention
    readable forms                       our stacks with unfused attention, LabelSmoothing, unfused Adam
    + fused Adam                         the same with PyTorch's fused Adam
    annotated                            our stacks with fused attention, fused Adam and the chunked loss
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from report import matmul_rate, parser, print_race, set_up, synchronized, write
from timing import race
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from trainees import Trainee, candidates, check, ours
from workload import CONFIGS, random_batches

from annotated.transformer.model import EncoderDecoder


@contextmanager
def count_operations() -> Iterator[FlopCounterMode]:
    """Count those of matrix products while the block runs; attention's are seen where it is no kernel."""
    # A product added in place is one that the counter would pass over.
    in_place = {torch.ops.aten.addmm_: lambda _, a, b, **__: 2 * a[0] * a[1] * b[1]}
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False, custom_mapping=in_place) as counter:
        yield counter


def run(arguments: Sequence[str] | None = None) -> dict[str, object]:
    """Measure, print and record."""
    options = parser(__doc__, tuple(CONFIGS))
    options.add_argument("--precision", choices=("float32", "bf16"), default="float32")
    options.add_argument("--compile", action="store_true", help="torch.compile for ours and PyTorch's")
    options.add_argument("--tokens", type=int, default=2048, help="positions a batch (default %(default)s)")
    options.add_argument("--batches", type=int, default=4, help="in a round (default %(default)s)")
    options = options.parse_args(arguments)
    device, bf16 = set_up(options), options.precision == "bf16"
    config = CONFIGS[options.size]
    torch.manual_seed(0)
    model = EncoderDecoder.from_config(config).to(device).train()
    batches = [b.to(device) for b in random_batches(config, options.tokens, options.batches)]
    makers = candidates(model, device, bf16, options.compile)
    best = list(makers)[-1]
    trainees = {name: make() for name, make in makers.items()}
    check(trainees, batches[0])
    with count_operations() as counter:
        Trainee(model, ours(model)).step(batches[0])  # and then the rest, by their positions
    positions = [b.src.numel() + b.tgt.numel() for b in batches]
    work = counter.get_total_flops() * sum(positions) / positions[0]

    def train(trainee: Trainee) -> None:
        for batch in batches:
            trainee.step(batch)

    rounds = {name: synchronized(partial(train, trainee), device) for name, trainee in trainees.items()}
    pairs = [(best, name) for name in rounds if name != best]
    measured, comparisons = race(rounds, pairs, options.minutes, options.rounds)
    bounds = {"float32": matmul_rate(device), "bf16": matmul_rate(device, torch.bfloat16)}
    tokens = sum(batch.ntokens for batch in batches)
    more = {"target_tokens": tokens, "operations": work, "matmul_rate": bounds}
    record = write("train", options, measured, comparisons, **more)
    rates = {name: bounds["bf16" if "bf16" in name else "float32"] for name in measured}
    shares = {name: f"{work / each.median / rates[name]:.0%}" for name, each in measured.items()}
    print_race(record, comparisons, tokens, "target tokens", **{"of matmul rate": shares})
    return record


if __name__ == "__main__":
    run()
