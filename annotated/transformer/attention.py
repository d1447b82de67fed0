"""Attention: equation 1, several heads of it side by side, and masks (sections 3.2.1 to 3.2.3).

Shape letters: B batch, h heads, T queries, S keys, d_k = d_model / h.
A mask is a boolean tensor, **True where attention is allowed**, of shape (batch, 1 or queries, keys).
"""

import math
from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.transformer.cache import KeyValueCache

Mask = Tensor | None  # None allows everything


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask = None,
    dropout: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention (section 3.2.1, equation 1): softmax(Q K^T / sqrt(d_k)) V.

    This is the form to read. The model computes the same by PyTorch's fused kernel, which it calls in
    `MultiHeadedAttention.attend`; `CpuKernels` takes this form for short sentences in training on a CPU.

    Args:
        query: (..., T, d_k), floating point.
        key: (..., S, d_k).
        value: (..., S, d_v).
        mask: bool, broadcastable to (..., T, S), True where attention is allowed; None allows everything.
        dropout: applied to the weights, which keeps whole value vectors from being relied upon.

    Returns:
        output (..., T, d_v) and weights (..., T, S), as they were before dropout. A row of weights sums to 1;
        a query that may see nothing gets zeros, not NaN, in its row, its output and its gradients.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))  # (..., T, S)
    if mask is not None:
        check_mask(mask)
        # The lowest finite number, not -inf: a row of -inf alone would have the softmax divide 0 by 0.
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    kept = weights if dropout is None else dropout(weights)
    return kept @ value, weights  # (..., T, d_v), (..., T, S)


def check_mask(mask: Tensor) -> None:
    """Refuse a mask that is not boolean: whether its ones allow or forbid could only be guessed."""
    if mask.dtype != torch.bool:
        raise ValueError(f"a mask must be torch.bool, True where attention is allowed, not {mask.dtype}")


def clones(module: nn.Module, N: int) -> nn.ModuleList:
    """Copy a module N times: equal at first, trained apart."""
    return nn.ModuleList(deepcopy(module) for _ in range(N))


def init_linear(linear: nn.Module, gain: float = 1.0) -> None:
    """Draw the matrix of a linear map Xavier-uniformly and zero its bias; leave other modules alone."""
    if isinstance(linear, nn.Linear):
        nn.init.xavier_uniform_(linear.weight, gain)
        if linear.bias is not None:
            nn.init.zeros_(linear.bias)


class MultiHeadedAttention(nn.Module):
    """Compute h attentions of width d_k = d_model / h, side by side (section 3.2.2).

    The four `linears` are W^Q, W^K, W^V, each holding the projections of all heads, and W^O.
    """

    def __init__(self, h: int, d_model: int, dropout: float = 0.1):
        super().__init__()
        if h < 1 or d_model % h:
            raise ValueError(f"d_model must be a multiple of h, but d_model={d_model} and h={h}")
        self.h, self.d_k = h, d_model // h
        self.linears = clones(nn.Linear(d_model, d_model), 4)
        self.dropout = nn.Dropout(dropout)

    def reset_parameters(self) -> None:
        """Draw the weights Xavier-uniformly, W^Q, W^K and W^V as one matrix (3 d_model, d_model).

        So does `torch.nn.MultiheadAttention`: with larger entries, a post-norm encoder trained at a high rate
        makes its positions all alike.
        """
        for i, linear in enumerate(self.linears):
            init_linear(linear, gain=2**-0.5 if i < 3 else 1.0)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask = None, cache: KeyValueCache | None = None
    ) -> Tensor:
        """Attend from `query` (B, T, d_model) to `key` and `value` (B, S, d_model); returns (B, T, d_model).

        `mask` is bool (B, 1 or T, S), the same for every head. With a `cache`, the new keys and values are
        appended to those of earlier steps, and S counts them all; a complete cache replaces both.
        """
        if mask is not None:
            check_mask(mask)
            if mask.dim() != 3:  # (B, S) would be taken for (T, S)
                raise ValueError(f"a mask must be (batch, 1 or queries, keys), not {tuple(mask.shape)}")
            mask = mask.unsqueeze(1)  # (B, 1, 1 or T, S)
        to_query, to_key, to_value, to_output = self.linears
        q = self.split(to_query(query))  # (B, h, T, d_k)
        if cache is not None and cache.complete:
            k, v = cache.key, cache.value  # (B, h, S, d_k)
        else:
            k, v = self.split(to_key(key)), self.split(to_value(value))  # (B, h, S, d_k)
            if cache is not None:
                k, v = cache.extend(k, v)
        heads = self.attend(q, k, v, mask)  # (B, h, T, d_k)
        if not isinstance(heads, Tensor):
            raise TypeError(f"attend must return (B, h, T, d_k) alone, not a {type(heads).__name__}")
        return to_output(self.join(heads))  # (B, T, d_model)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """Compute equation 1 for all heads at once: (B, h, T, d_k) and two (B, h, S, d_k) -> (B, h, T, d_k).

        PyTorch's fused kernel computes what `attention` does, and never holds the weights (B, h, T, S).
        """
        return F.scaled_dot_product_attention(q, k, v, mask, self.dropout.p * self.training)

    def split(self, x: Tensor) -> Tensor:
        """Cut the width into heads of d_k: (B, T, d_model) -> (B, h, T, d_k)."""
        return x.view(*x.shape[:-1], x.size(-1) // self.d_k, self.d_k).transpose(-3, -2)

    def join(self, x: Tensor) -> Tensor:
        """Concatenate the heads: (B, h, T, d_k) -> (B, T, d_model)."""
        return x.transpose(-3, -2).flatten(-2)


def subsequent_mask(size: int, device: torch.device | str | None = None) -> Tensor:
    """Let each position see itself and what came before it, never what follows (section 3.2.3).

    Returns a bool tensor (1, size, size), query down and key across: the lower triangle, diagonal included.
    """
    return torch.ones(1, size, size, dtype=torch.bool, device=device).tril()
