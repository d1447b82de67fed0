"""R-Drop (Liang et al., 2021), which is newer than the paper: two passes, and the divergence between them."""

from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from annotated.loss import LabelSmoothing


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
