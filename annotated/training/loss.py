"""The training loss: label-smoothed cross-entropy (section 5.4), and R-Drop, which is newer than the paper.

R-Drop (Liang et al., 2021) passes each batch twice, each time with other dropout, and adds the divergence of
the two predictions to the loss. It is meant to keep a model from memorising a small corpus.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from annotated.fast import smoothed_cross_entropy
from annotated.transformer.loss import LabelSmoothing
from annotated.transformer.model import EncoderDecoder


class SummedLoss(nn.Module):
    """Model, generator and loss as one module, for `torch.compile` and DistributedDataParallel to wrap.

    While `rdrop_weight` is above 0, each batch passes twice (see `rdrop_cross_entropy`).
    """

    def __init__(self, model: EncoderDecoder, smoothing: float, pad: int):
        super().__init__()
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
        with torch.autocast(states.device.type, enabled=False):
            states = states.to(proj.weight.dtype)
            rest = proj.weight, proj.bias, tgt_y.flatten()
            options: dict[str, Any] = {"smoothing": self.smoothing, "padding_idx": self.pad}
            if states.device.type != "cpu":
                options["chunk"] = 4096  # fewer rows would leave a GPU idle
            if self.rdrop_weight:
                first, second = states.chunk(2)
                return rdrop_cross_entropy(first, second, *rest, self.rdrop_weight, **options)
            return smoothed_cross_entropy(states, *rest, **options)


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
    smoothing: float = 0.0,
    padding_idx: int = 2,
    chunk: int = 128,
) -> Tensor:
    """Compute the mean smoothed loss of two passes plus `rdrop_weight` times their divergence.

    Args:
        first, second: decoder states (n, d_model) of each pass.
        weight, bias: the output projection, (size, d_model) and (size,).
        target: target tokens (n,), int64; padding is not counted.
        chunk: number of tokens whose logits are in memory at a time; backward computes them again.

    Returns a sum over tokens.
    """
    criterion = LabelSmoothing(len(weight), padding_idx, smoothing)

    def chunk_loss(first: Tensor, second: Tensor, weight: Tensor, bias: Tensor, target: Tensor) -> Tensor:
        x, y = (F.linear(states, weight, bias).log_softmax(dim=-1) for states in (first, second))
        mean = (criterion(x, target) + criterion(y, target)) / 2
        return mean + rdrop_weight * symmetric_divergence(x, y)

    kept = target != padding_idx
    loss = first.new_zeros(())
    for one, other, tokens in zip(
        first[kept].split(chunk), second[kept].split(chunk), target[kept].split(chunk), strict=True
    ):
        loss = loss + checkpoint(chunk_loss, one, other, weight, bias, tokens, use_reentrant=False)
    return loss
