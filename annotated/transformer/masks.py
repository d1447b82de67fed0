"""Masks: who may see whom.

A mask is a boolean tensor, **True where attention is allowed**, of shape (batch, 1 or queries, keys).
"""

import torch
from torch import Tensor

Mask = Tensor | None  # None allows everything


def subsequent_mask(size: int, device: torch.device | str | None = None) -> Tensor:
    """Let each position see itself and what came before it, never what follows (section 3.2.3).

    Returns a bool tensor (1, size, size), query down and key across: the lower triangle, diagonal included.
    Raises ValueError for a negative size.
    """
    if size < 0:
        raise ValueError(f"subsequent_mask needs a size of 0 or more, not {size}")
    return torch.ones(1, size, size, dtype=torch.bool, device=device).tril()


def padding_mask(tokens: Tensor, pad: int) -> Tensor:
    """Let every query see the real tokens and none of the padding.

    `tokens` (batch, len), integer; returns a bool tensor (batch, 1, len) that serves every query alike.
    """
    return (tokens != pad).unsqueeze(-2)
