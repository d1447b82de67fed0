"""Does PyTorch's varlen_attn compute what padded attention does, and how much faster on a GPU?

    python benchmarks/varlen.py --device cuda

Sentences of unlike length lie one behind the other, without padding, and each attends to itself alone.
Padded, they need a mask. Both, and each sentence by itself, must give the same outputs and gradients. The
kernel of varlen_attn is of GPUs, in half precision: on a CPU only the other two are raced.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from records import Found
from report import parser, print_table, set_up, synchronized, write
from timing import check_equal, race
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from workload import CONFIGS, random_pairs

PADDED, ALONE, VARLEN = "padded, with a mask", "each sentence alone", "varlen_attn"
Inputs = list[Tensor]  # query, key and value (tokens, h, d_k), of all sentences


def padded(inputs: Inputs, lengths: list[int]) -> Tensor:
    """Pad, attend under a mask, and take the padding out again."""
    q, k, v = (pad_sequence(x.split(lengths), batch_first=True).transpose(1, 2) for x in inputs)
    real = torch.arange(q.size(-2), device=q.device) < torch.tensor(lengths, device=q.device).unsqueeze(1)
    out = F.scaled_dot_product_attention(q, k, v, real[:, None, None])  # (B, h, longest, d_k)
    return out.transpose(1, 2)[real]


def alone(inputs: Inputs, lengths: list[int]) -> Tensor:
    """Attend in one sentence after the other."""
    sentences = zip(*(x.split(lengths) for x in inputs), strict=True)
    each = (F.scaled_dot_product_attention(*(x.transpose(0, 1) for x in one)) for one in sentences)
    return torch.cat([out.transpose(0, 1) for out in each])


def varlen(inputs: Inputs, lengths: list[int]) -> Tensor:
    """Attend without padding, in one call."""
    from torch.nn.attention.varlen import varlen_attn

    ends = torch.tensor([0, *lengths], device=inputs[0].device).cumsum(0, dtype=torch.int32)
    return varlen_attn(*inputs, ends, ends, max(lengths), max(lengths))


def gradients(attend: Callable[..., Tensor], inputs: Inputs, lengths: list[int], above: Tensor) -> Inputs:
    """Forward and backward."""
    return list(torch.autograd.grad(attend(inputs, lengths), inputs, above))


def run(arguments: Sequence[str] | None = None) -> Found:
    """Check, measure, print and record."""
    options = parser(__doc__, ("base", *(size for size in CONFIGS if size != "base")))
    options.add_argument("--sentences", type=int, default=512, help="in a batch (default %(default)s)")
    options = options.parse_args(arguments)
    device, config = set_up(options), CONFIGS[options.size]
    gpu = device.type == "cuda"
    ways = {PADDED: padded, ALONE: alone} | ({VARLEN: varlen} if gpu else {})
    lengths = list(map(len, random_pairs(options.sentences, config.src_vocab).src))
    torch.manual_seed(0)
    shape = sum(lengths), config.h, config.d_model // config.h
    dtype = torch.bfloat16 if gpu else torch.float32
    *inputs, above = (torch.randn(shape, device=device, dtype=dtype) for _ in range(4))
    inputs = [x.requires_grad_() for x in inputs]
    for what in range(4):  # the outputs, and the gradients of query, key and value
        norms = {}
        for name, attend in ways.items():
            found = [attend(inputs, lengths), *gradients(attend, inputs, lengths, above)][what]
            norms[name] = (found.float() * above.float().sin()).sum().item()  # a sum that feels every entry
        check_equal(norms, lambda _: 2e-2 if gpu else 1e-4)
    runs = {
        name: synchronized(partial(gradients, attend, inputs, lengths, above), device)
        for name, attend in ways.items()
    }
    pairs = [([*ways][-1], name) for name in [*ways][:-1]]
    measured, comparisons = race(runs, pairs, options.minutes, options.rounds, warm_up=3)
    record = write("varlen", options, measured, comparisons, tokens=sum(lengths))
    print_table(("", "ms"), [(name, f"{each.median * 1e3:.2f}") for name, each in measured.items()])
    for each in comparisons:
        print(f"{each.peer} takes {each} as long as {each.ours}")
    return record


if __name__ == "__main__":
    run()
