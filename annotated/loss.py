"""Label smoothing (section 5.4), twice: to be read, and to be fast. The two agree in value and in gradient.

The target distribution puts 1 - smoothing on the right token, spreads `smoothing` evenly over all others but
padding, and nothing on padding: with `size` symbols, each of the size - 2 others gets smoothing / (size - 2).
"""

import math

import torch
from torch import Tensor, nn


def check_smoothing(size: int, smoothing: float) -> None:
    """Raise ValueError unless `smoothing` is a share, and `size` leaves symbols to spread it over."""
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing must be in [0, 1), not {smoothing}")
    if size < 3:
        raise ValueError(f"label smoothing needs padding, a right token and others: size {size} is below 3")


class LabelSmoothing(nn.Module):
    """The readable form: build the target distribution, then take the Kullback-Leibler divergence from it.

    After a call, `true_dist` (n, size) holds the target distributions.
    Raises ValueError for a smoothing outside [0, 1) or a size below 3.
    """

    def __init__(self, size: int, padding_idx: int, smoothing: float = 0.0):
        super().__init__()
        check_smoothing(size, smoothing)
        self.size = size
        self.padding_idx = padding_idx
        self.smoothing = smoothing
        self.true_dist: Tensor | None = None

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Log-probabilities (n, size) and right tokens (n,), int64 -> the divergence summed over all rows.

        Rows whose target is padding count nothing.
        """
        if x.size(-1) != self.size:
            raise ValueError(f"expected log-probabilities of {self.size} symbols, not {x.size(-1)}")
        true_dist = torch.full_like(x, self.smoothing / (self.size - 2), requires_grad=False)
        true_dist.scatter_(1, target.unsqueeze(1), 1 - self.smoothing)
        true_dist[:, self.padding_idx] = 0
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
    """The fast form of generator and `LabelSmoothing` in one: never holds all logits, skips padding.

    Args:
        states: the decoder's states (n, d_model).
        weight, bias: the output projection's, (size, d_model) and (size,).
        target: right tokens (n,), int64.
        chunk: how many tokens' logits are held at a time.

    Returns the same sum as `LabelSmoothing(size, padding_idx, smoothing)(log_softmax(logits), target)`.
    A second derivative, which that form has, raises RuntimeError here.
    """
    check_smoothing(len(weight), smoothing)
    if not torch.is_grad_enabled():
        weight, bias = weight.detach(), bias.detach()  # else their gradients would be computed all the same
    kept = target != padding_idx
    return ChunkedLoss.apply(states[kept], weight, bias, target[kept], smoothing, padding_idx, chunk)


class ChunkedLoss(torch.autograd.Function):
    """Computes each chunk's gradients while its logits are at hand, so that none need be kept or made again.

    For one row with logits z, log-sum-exp L, right token t, padding b, a = 1 - smoothing and
    e = smoothing / (size - 2), the divergence is

        a log a + smoothing log e + L - (a - e) z_t - e (sum z - z_b)

    and its gradient by z is softmax(z) - e, but for softmax(z) - a at t and softmax(z) at b.
    """

    @staticmethod
    def forward(ctx, states, weight, bias, target, smoothing, padding_idx, chunk):
        """Return the summed divergence; keep those gradients by states, weight and bias that are wanted."""
        a, e = 1 - smoothing, smoothing / (len(weight) - 2)
        sums = weight.sum(dim=0)  # so that a row's sum of logits is one dot product
        loss = torch.zeros_like(sums[0])
        by_states, by_weight, by_bias = gradients = zeros_where_wanted(ctx, states, weight, bias)
        # The same memory for all chunks: on a CPU fresh memory costs as much each time as the softmax.
        room = [states.new_empty(min(chunk, len(states)), len(weight)) for _ in range(2)]
        for rows in torch.arange(len(states), device=states.device).split(chunk):
            t = target[rows].unsqueeze(1)  # (chunk, 1)
            logits, log_probs = (x[: len(rows)] for x in room)  # each (chunk, size)
            torch.addmm(bias, states[rows], weight.t(), out=logits)
            torch.log_softmax(logits, dim=1, out=log_probs)
            # L is z_t less the token's log-probability, so L - (a - e) z_t is this:
            loss += ((1 - a + e) * logits.gather(1, t) - log_probs.gather(1, t)).sum()
            loss -= e * ((states[rows] @ sums + bias.sum()).sum() - logits[:, padding_idx].sum())
            slope = log_probs.exp_().sub_(e)
            slope[:, padding_idx] += e
            slope.scatter_add_(1, t, slope.new_full(t.shape, e - a))
            if by_states is not None:
                by_states[rows] = slope @ weight
            if by_weight is not None:
                by_weight.addmm_(slope.t(), states[rows])
            if by_bias is not None:
                by_bias += slope.sum(dim=0)
        ctx.save_for_backward(*gradients)
        return loss + len(states) * (a * math.log(a) + (smoothing * math.log(e) if smoothing else 0.0))

    @staticmethod
    def backward(ctx, slope):
        """Scale the gradients that forward kept."""
        return *scaled(ctx, slope), None, None, None, None


def zeros_where_wanted(ctx, *inputs: Tensor) -> list[Tensor | None]:
    """Zeros in the shape of each of a function's first inputs, or None for one that needs no gradient."""
    wanted = zip(inputs, ctx.needs_input_grad, strict=False)  # the settings that follow need none
    return [torch.zeros_like(x) if needed else None for x, needed in wanted]


def scaled(ctx, slope: Tensor) -> list[Tensor | None]:
    """Scale the gradients that a forward pass kept.

    Raises RuntimeError where they are to be differentiated again: autograd would take them for constants.
    """
    if torch.is_grad_enabled():
        raise RuntimeError("a fast loss has no second derivative (create_graph): use LabelSmoothing for that")
    return [None if gradient is None else slope * gradient for gradient in ctx.saved_tensors]
