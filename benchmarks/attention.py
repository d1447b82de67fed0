"""From which length of sentence on is the fused attention kernel faster in training than the readable form?

    python benchmarks/attention.py
    python benchmarks/attention.py --size base

All heads of one layer, forward and backward, on a batch of so many positions cut into sentences of 8, 16, ...
tokens, a mask on the padding. `annotated.cpu_kernels.UNFUSED_UP_TO` is set by what this finds on a CPU.
"""

from collections.abc import Sequence
from functools import partial

import torch
from report import parser, print_table, set_up, synchronized, write
from timing import check_equal, race
from torch import Tensor
from torch.nn import functional as F
from workload import CONFIGS

from annotated.transformer.attention import attention
from annotated.transformer.model import TransformerConfig

READABLE, FUSED = "readable", "fused"
FORMS = {READABLE: lambda *inputs: attention(*inputs)[0], FUSED: F.scaled_dot_product_attention}


def heads(
    config: TransformerConfig, tokens: int, length: int, device: torch.device
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Query, key and value (B, h, length, d_k), a mask on a tenth of the keys, and a gradient from above.

    They lie in memory as a model's do, the heads of a word side by side.
    """
    rows, d_k = max(tokens // length, 1), config.d_model // config.h
    parts = [torch.randn(rows, length, config.h, d_k, device=device).transpose(1, 2) for _ in range(4)]
    mask = (torch.arange(length, device=device) < 0.9 * length).expand(rows, 1, 1, length)
    return [part.requires_grad_() for part in parts[:3]], mask, parts[3]


def gradients(form: str, inputs: list[Tensor], mask: Tensor, above: Tensor) -> tuple[Tensor, ...]:
    """Forward and backward."""
    return torch.autograd.grad(FORMS[form](*inputs, mask), inputs, above)


def run(arguments: Sequence[str] | None = None) -> dict[str, object]:
    """Measure, print and record."""
    options = parser(__doc__, tuple(CONFIGS))
    options.add_argument("--tokens", type=int, default=2048, help="positions a batch (default %(default)s)")
    options.add_argument("--lengths", type=int, nargs="+", default=[8, 16, 24, 32, 48, 64, 96, 128, 256])
    options = options.parse_args(arguments)
    device = set_up(options)
    rounds = {}
    for n in options.lengths:
        case = heads(CONFIGS[options.size], options.tokens, n, device)
        norms = {form: sum(g.norm().item() for g in gradients(form, *case)) for form in FORMS}
        check_equal(norms)
        rounds |= {f"{form}, {n}": synchronized(partial(gradients, form, *case), device) for form in FORMS}
    pairs = [(f"{READABLE}, {n}", f"{FUSED}, {n}") for n in options.lengths]
    measured, comparisons = race(rounds, pairs, options.minutes, options.rounds, warm_up=3)
    record = write("attention", options, measured, comparisons)
    rows = [
        (n, *(f"{measured[f'{form}, {n}'].median * 1e3:.2f}" for form in FORMS), told)
        for n, told in zip(options.lengths, comparisons, strict=True)
    ]
    print_table(("length", f"{READABLE}, ms", f"{FUSED}, ms", f"{READABLE} against {FUSED}"), rows)
    return record


if __name__ == "__main__":
    run()
