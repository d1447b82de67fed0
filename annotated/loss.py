"""The training loss: label-smoothed cross-entropy (section 5.4).

LabelSmoothing           the readable form
smoothed_cross_entropy   the same fast, and with little memory

The target distribution puts 1 - smoothing on the right token, spreads `smoothing` evenly over all others but
padding, and nothing on padding: with `size` symbols, each of the size - 2 others gets smoothing / (size - 2).
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from annotated.transformer.config import PAD


class LabelSmoothing(nn.Module):
    """Build the target distribution, then take the Kullback-Leibler divergence from it.

    After a call, `true_dist` (..., size) holds the target distributions.
    """

    def __init__(self, size: int, padding_idx: int, smoothing: float = 0.0):
        super().__init__()
        check_smoothing(smoothing, size, padding_idx)
        self.size = size
        self.padding_idx = padding_idx
        self.smoothing = smoothing
        self.true_dist: Tensor | None = None

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Log-probabilities (..., size) and right tokens (...), int64 -> the divergence summed over all rows.

        Rows whose target is padding count nothing.
        """
        if x.size(-1) != self.size:
            raise ValueError(f"expected log-probabilities of {self.size} symbols, not {x.size(-1)}")
        true_dist = torch.full_like(x, self.smoothing / (self.size - 2), requires_grad=False)
        true_dist.scatter_(-1, target.unsqueeze(-1), 1 - self.smoothing)
        true_dist[..., self.padding_idx] = 0
        true_dist[target == self.padding_idx] = 0
        self.true_dist = true_dist
        # Where the target probability is 0 so is the term, even if the predicted one is 0 too and x is -inf.
        return (torch.xlogy(true_dist, true_dist) - true_dist * x.masked_fill(true_dist == 0, 0)).sum()


def smoothed_cross_entropy(
    states: Tensor,
    weight: Tensor,
    bias: Tensor,
    target: Tensor,
    smoothing: float = 0.0,
    padding_idx: int = PAD,
    chunk: int = 256,
) -> Tensor:
    """Compute generator and `LabelSmoothing` in one, without ever holding all logits.

    Args:
        states: the decoder's states (n, d_model).
        weight, bias: the output projection's, (size, d_model) and (size,).
        target: right tokens (n,), int64.
        smoothing: probability that is spread over the other tokens, in [0, 1).
        padding_idx: the target that counts nothing.
        chunk: number of tokens whose logits are in memory at a time.

    Returns the same sum as `LabelSmoothing(size, padding_idx, smoothing)(log_softmax(logits), target)`.
    A second derivative, which that form has, raises RuntimeError here.
    """
    check_smoothing(smoothing, len(weight), padding_idx)
    real = target != padding_idx
    return ChunkedLoss.apply(states[real], weight, bias, target[real], smoothing, padding_idx, chunk)


def check_smoothing(smoothing: float, size: int, padding_idx: int) -> None:
    """Raise ValueError for a smoothing that cannot be, too few symbols to spread it over, or no padding."""
    if not 0 <= smoothing < 1 or size < 3:
        raise ValueError(f"smoothing must be in [0, 1) and size at least 3, not {smoothing} and {size}")
    if not 0 <= padding_idx < size:
        raise ValueError(f"padding_idx must be one of the {size} symbols, from 0, not {padding_idx}")


class ChunkedLoss(torch.autograd.Function):
    """Compute each chunk's gradients while its logits are in memory, so that none is kept or made again."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor,
        target: Tensor,
        smoothing: float,
        padding_idx: int,
        chunk: int,
    ) -> Tensor:
        """Return the summed divergence; keep its gradients with respect to states, weight and bias."""
        right, other = 1 - smoothing, smoothing / (len(weight) - 2)  # the target's probabilities
        entropy = -right * math.log(right) - (smoothing * math.log(other) if smoothing else 0)
        grad_states, grad_weight, grad_bias = (torch.zeros_like(x) for x in (states, weight, bias))
        wide = torch.promote_types(states.dtype, torch.float32)  # sums of half precision would lose digits
        loss = states.new_zeros((), dtype=wide)
        # The same memory for all chunks: on a CPU fresh memory costs as much each time as the softmax.
        scratch = [states.new_empty(min(chunk, len(states)), len(weight)) for _ in range(2)]
        for rows in torch.arange(len(states), device=states.device).split(chunk):
            tokens = target[rows].unsqueeze(1)  # (chunk, 1)
            logits, log_probs = (x[: len(rows)] for x in scratch)  # each (chunk, size)
            torch.addmm(bias, states[rows], weight.t(), out=logits)
            torch.log_softmax(logits, dim=1, out=log_probs)
            loss -= (right - other) * log_probs.gather(1, tokens).sum(dtype=wide) + len(rows) * entropy
            if other:  # 0 times -inf, of a token that cannot be, is not 0
                loss -= other * (log_probs.sum(dtype=wide) - log_probs[:, padding_idx].sum(dtype=wide))
            grad = log_probs.exp_().sub_(other)  # by the logits: softmax minus target distribution
            grad[:, padding_idx] += other
            grad.scatter_add_(1, tokens, grad.new_full(tokens.shape, other - right))
            grad_states[rows] = grad @ weight
            grad_weight.addmm_(grad.t(), states[rows])
            grad_bias += grad.sum(dim=0)
        ctx.save_for_backward(grad_states, grad_weight, grad_bias)
        return loss.to(states.dtype)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        """Scale the gradients that `forward` kept, which autograd would take for constants."""
        if torch.is_grad_enabled():
            raise RuntimeError("there is no second derivative (create_graph) here: use LabelSmoothing for it")
        return *(grad_output * grad for grad in ctx.saved_tensors), None, None, None, None
