"""The training loss: label-smoothed cross-entropy (section 5.4), and R-Drop, which is newer than the paper.

LabelSmoothing           the readable form
smoothed_cross_entropy   the same fast, and with little memory
rdrop_cross_entropy      with the divergence of two passes (R-Drop, Liang et al., 2021)
SummedLoss               model and loss in one module, as the `Trainer` wants it

The target distribution puts 1 - smoothing on the right token, spreads `smoothing` evenly over all others but
padding, and nothing on padding: with `size` symbols, each of the size - 2 others gets smoothing / (size - 2).
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from annotated.transformer.model import EncoderDecoder, Generator


class LabelSmoothing(nn.Module):
    """Build the target distribution, then take the Kullback-Leibler divergence from it.

    After a call, `true_dist` (..., size) holds the target distributions.
    """

    def __init__(self, size: int, padding_idx: int, smoothing: float = 0.0):
        super().__init__()
        if not 0 <= smoothing < 1 or size < 3:
            raise ValueError(f"smoothing must be in [0, 1) and size at least 3, not {smoothing} and {size}")
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
    padding_idx: int = 2,
    chunk: int = 256,
) -> Tensor:
    """Compute generator and `LabelSmoothing` in one, without ever holding all logits.

    Args:
        states: the decoder's states (n, d_model).
        weight, bias: the output projection's, (size, d_model) and (size,).
        target: right tokens (n,), int64.
        chunk: number of tokens whose logits are in memory at a time.

    Returns the same sum as `LabelSmoothing(size, padding_idx, smoothing)(log_softmax(logits), target)`.
    A second derivative, which that form has, raises RuntimeError here.
    """
    real = target != padding_idx
    return ChunkedLoss.apply(states[real], weight, bias, target[real], smoothing, padding_idx, chunk)


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
        """Return the summed divergence; keep its gradients by states, weight and bias."""
        right, other = 1 - smoothing, smoothing / (len(weight) - 2)  # the target's probabilities
        entropy = -right * math.log(right) - (smoothing * math.log(other) if smoothing else 0)
        by_states, by_weight, by_bias = (torch.zeros_like(x) for x in (states, weight, bias))
        loss = states.new_zeros(())
        # The same memory for all chunks: on a CPU fresh memory costs as much each time as the softmax.
        memory = [states.new_empty(min(chunk, len(states)), len(weight)) for _ in range(2)]
        for rows in torch.arange(len(states), device=states.device).split(chunk):
            tokens = target[rows].unsqueeze(1)  # (chunk, 1)
            logits, log_probs = (x[: len(rows)] for x in memory)  # each (chunk, size)
            torch.addmm(bias, states[rows], weight.t(), out=logits)
            torch.log_softmax(logits, dim=1, out=log_probs)
            loss -= (right - other) * log_probs.gather(1, tokens).sum() + len(rows) * entropy
            if other:  # 0 times -inf, of a token that cannot be, is not 0
                loss -= other * (log_probs.sum() - log_probs[:, padding_idx].sum())
            slope = log_probs.exp_().sub_(other)  # the gradient by logits: softmax minus target distribution
            slope[:, padding_idx] += other
            slope.scatter_add_(1, tokens, slope.new_full(tokens.shape, other - right))
            by_states[rows] = slope @ weight
            by_weight.addmm_(slope.t(), states[rows])
            by_bias += slope.sum(dim=0)
        ctx.save_for_backward(by_states, by_weight, by_bias)
        return loss

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        """Scale the gradients that `forward` kept, which autograd would take for constants."""
        if torch.is_grad_enabled():
            raise RuntimeError("there is no second derivative (create_graph) here: use LabelSmoothing for it")
        return *(slope * gradient for gradient in ctx.saved_tensors), None, None, None, None


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
    """Compute the mean smoothed loss of two passes, plus `rdrop_weight` times their divergence.

    `first` and `second` are the decoder's states (n, d_model) of each pass; for the rest see
    `smoothed_cross_entropy`. Backward computes the logits of a chunk again.
    """
    criterion = LabelSmoothing(len(weight), padding_idx, smoothing)

    def chunk_loss(first: Tensor, second: Tensor, weight: Tensor, bias: Tensor, target: Tensor) -> Tensor:
        x, y = (F.linear(states, weight, bias).log_softmax(dim=-1) for states in (first, second))
        mean = (criterion(x, target) + criterion(y, target)) / 2
        return mean + rdrop_weight * symmetric_divergence(x, y)

    kept = target != padding_idx
    loss = first.new_zeros(())
    for one, other, tokens in zip(*(x[kept].split(chunk) for x in (first, second, target)), strict=True):
        loss = loss + checkpoint(chunk_loss, one, other, weight, bias, tokens, use_reentrant=False)
    return loss


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
