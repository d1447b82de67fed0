"""R-Drop (Liang et al., 2021): two passes of a batch, each with dropout of its own, should predict the same.

Not of the paper; it is meant to keep a model from learning a small corpus by heart. There is a
form to be read and a fast one; the two agree in value and in gradient.
"""

from typing import Any

import torch
from torch import Tensor

from annotated.fast import add_gradients, scaled, subtract_target, target_entropy, zeros_where_wanted
from annotated.transformer.loss import check_smoothing


def symmetric_divergence(x: Tensor, y: Tensor) -> Tensor:
    """(KL(p || q) + KL(q || p)) / 2, summed over all rows; x is log p and y is log q, both (n, size).

    The paper on R-Drop weighs this with 5 beside the sum of two cross-entropies: 2.5 beside their mean.
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
    """Add `rdrop_weight` times two passes' `symmetric_divergence` to their mean `smoothed_cross_entropy`.

    Args:
        first, second: the decoder's states (n, d_model) in each pass.
        weight, bias: the output projection's, (size, d_model) and (size,).
        target: right tokens (n,), int64; rows of padding count nothing.
        rdrop_weight: how much the passes' disagreement costs.
        chunk: how many tokens' logits are held at a time.

    Returns a sum over rows. Raises ValueError, and RuntimeError for a second derivative, as
    `smoothed_cross_entropy` does.
    """
    check_smoothing(len(weight), smoothing)
    if not torch.is_grad_enabled():
        weight, bias = weight.detach(), bias.detach()  # else their gradients would be computed all the same
    kept = target != padding_idx
    states = first[kept], second[kept]
    return PairedLoss.apply(*states, weight, bias, target[kept], rdrop_weight, smoothing, padding_idx, chunk)


class PairedLoss(torch.autograd.Function):
    """Both terms, and their gradients chunk by chunk while the logits are at hand, as `ChunkedLoss` has them.

    For one row, with p and q what the two passes predict, t the target distribution, c the weight and
    D = KL(p || q), the gradient of the whole by the first pass's logits is

        (p - t) / 2 + c / 2 (p (log p - log q - D) + p - q)

    and by the second's the same with p and q in each other's place.
    """

    @staticmethod
    def forward(
        ctx: Any,
        first: Tensor,
        second: Tensor,
        weight: Tensor,
        bias: Tensor,
        target: Tensor,
        rdrop_weight: float,
        smoothing: float,
        padding_idx: int,
        chunk: int,
    ) -> Tensor:
        """Return the sum over rows; keep those gradients by states, weight and bias that are wanted."""
        c, a, e = rdrop_weight, 1 - smoothing, smoothing / (len(weight) - 2)
        loss = torch.zeros_like(bias[0])
        *by_passes, by_weight, by_bias = kept = zeros_where_wanted(ctx, first, second, weight, bias)
        passes = list(zip((first, second), by_passes, strict=True))
        room = [first.new_empty(min(chunk, len(first)), len(weight)) for _ in range(5)]
        for rows in torch.arange(len(first), device=first.device).split(chunk):
            t = target[rows].unsqueeze(1)  # (chunk, 1)
            slope, *made = (x[: len(rows)] for x in room)  # each (chunk, size)
            predicted = list(zip(made[:2], made[2:], strict=True))  # for each pass log p and p
            for (states, _), (log_p, p) in zip(passes, predicted, strict=True):
                torch.addmm(bias, states[rows], weight.t(), out=slope)
                torch.log_softmax(slope, dim=1, out=log_p)
                torch.exp(log_p, out=p)
                loss -= (
                    (a - e) * log_p.gather(1, t).sum() + e * (log_p.sum() - log_p[:, padding_idx].sum())
                ) / 2
            for (states, by_states), this, other in zip(passes, predicted, predicted[::-1], strict=True):
                (log_p, p), (log_q, q) = this, other
                torch.sub(log_p, log_q, out=slope)
                divergence = torch.linalg.vecdot(p, slope).unsqueeze(1)  # (chunk, 1): D
                loss += c / 2 * divergence.sum()
                slope.sub_(divergence - 1).mul_(c).add_(1).mul_(p).sub_(q, alpha=c)
                subtract_target(slope, t, smoothing, padding_idx).div_(2)
                add_gradients((by_states, by_weight, by_bias), slope, rows, states, weight)
        ctx.save_for_backward(*kept)
        return loss - len(first) * target_entropy(len(weight), smoothing)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        """Scale the gradients that forward kept."""
        return *scaled(ctx, slope), None, None, None, None, None
