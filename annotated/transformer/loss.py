"""Label smoothing (section 5.4). `annotated.fast.smoothed_cross_entropy` computes the same faster.

The target distribution puts 1 - smoothing on the right token, spreads `smoothing` evenly over all others but
padding, and nothing on padding: with `size` symbols, each of the size - 2 others gets smoothing / (size - 2).
"""

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
