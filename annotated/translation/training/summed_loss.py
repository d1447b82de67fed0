"""What a run minimizes: model and loss in one module, R-Drop, which is newer than the paper, and bf16."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from annotated.cpu_kernels import CpuKernels
from annotated.loss import LabelSmoothing, smoothed_cross_entropy
from annotated.transformer.model import EncoderDecoder, Generator


class SummedLoss(nn.Module):
    """Model, generator and loss as one module, for `torch.compile` and DistributedDataParallel to wrap.

    While `rdrop_weight` is above 0, each batch passes twice, each time with other dropout.
    """

    def __init__(self, model: EncoderDecoder, smoothing: float, pad: int):
        super().__init__()
        if type(model.generator).forward is not Generator.forward:
            raise TypeError("the Trainer's loss is of the paper's generator; train another with run_epoch")
        self.model = model
        self.smoothing = smoothing
        self.pad = pad
        self.rdrop_weight = 0.0

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor, tgt_mask: Tensor, tgt_y: Tensor) -> Tensor:
        """Compute the label-smoothed loss, summed over the target tokens of the batch."""
        inputs = [src, tgt, src_mask, tgt_mask]
        if self.rdrop_weight:
            inputs = [torch.cat([x, x]) for x in inputs]
        states = self.model(*inputs).flatten(0, 1)  # (batch * tgt_len, d_model)
        proj = self.model.generator.proj
        options: dict[str, Any] = {"smoothing": self.smoothing, "padding_idx": self.pad}
        if states.device.type != "cpu":
            options["chunk"] = 4096  # fewer rows would leave a GPU idle
        with torch.autocast(states.device.type, enabled=False):
            states = states.to(proj.weight.dtype)
            output = proj.weight, proj.bias, tgt_y.flatten()
            if self.rdrop_weight:
                first, second = states.chunk(2)
                return rdrop_cross_entropy(first, second, *output, self.rdrop_weight, **options)
            return smoothed_cross_entropy(states, *output, **options)


# ---- R-Drop (Liang et al. 2021): two passes, and the divergence between them


def symmetric_divergence(x: Tensor, y: Tensor) -> Tensor:
    """Compute (KL(p || q) + KL(q || p)) / 2, summed over all rows; x is log p and y is log q, both (n, size).

    The R-Drop paper gives this a weight of 5 next to the sum of two cross-entropies: 2.5 next to their mean.
    """
    return ((x.exp() - y.exp()) * (x - y)).sum() / 2


def rdrop_cross_entropy(
    first: Tensor,
    second: Tensor,
    weight: Tensor,
    bias: Tensor,
    target: Tensor,
    rdrop_weight: float,
    smoothing: float,
    padding_idx: int,
    chunk: int = 128,
) -> Tensor:
    """Compute the mean smoothed loss of two passes, plus `rdrop_weight` times their divergence.

    `first` and `second` are the decoder's states (n, d_model) of each pass; for the rest see
    `smoothed_cross_entropy`. Backward computes the logits of a chunk again.
    """
    criterion = LabelSmoothing(len(weight), padding_idx, smoothing)

    def chunk_loss(first: Tensor, second: Tensor, weight: Tensor, bias: Tensor, target: Tensor) -> Tensor:
        x, y = (F.linear(states, weight, bias).log_softmax(dim=-1) for states in (first, second))
        mean = (criterion(x, target) + criterion(y, target)) / 2
        return mean + rdrop_weight * symmetric_divergence(x, y)

    counted = target != padding_idx
    loss = first.new_zeros(())
    for one, other, tokens in zip(*(x[counted].split(chunk) for x in (first, second, target)), strict=True):
        loss = loss + checkpoint(chunk_loss, one, other, weight, bias, tokens, use_reentrant=False)
    return loss


# ---- how it is computed


@contextmanager
def compute_context(device: torch.device, precision: str) -> Iterator[None]:
    """Compute in a block as a run does: with the precision of its settings and, on a CPU, by `CpuKernels`."""
    half = half_precision(device) if precision == "bf16" else nullcontext()
    with half, CpuKernels() if device.type == "cpu" else nullcontext():
        yield


@contextmanager
def half_precision(device: torch.device) -> Iterator[None]:
    """Compute matrix products in bf16 while the block runs, forward and backward; all else stays float32.

    On a GPU that is autocast. On a CPU products round their numbers inside, if it has AMX: autocast would
    spend more on conversions than it saves in a small model, and the fused attention is slower there.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    on_cpu = device.type == "cpu"
    try:
        with sdpa_kernel(SDPBackend.MATH) if on_cpu else torch.autocast(device.type, torch.bfloat16):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
