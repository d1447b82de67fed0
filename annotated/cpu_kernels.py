"""Faster ways on a CPU to compute dropout, and attention of short sentences, in training."""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from annotated.transformer.attention import attention

UNFUSED_UP_TO = 48  # positions up to which `attention` beats the fused kernel (benchmarks/attention.py)


class CpuKernels(TorchFunctionMode):
    """Replace two of PyTorch's functions in training on a CPU while the block runs, in this thread.

        with CpuKernels():
            loss = model(src, tgt, src_mask, tgt_mask)...

    Dropout is `quick_dropout`, attention is `short_attention`: the fused kernel takes one head of one
    sentence after the other, and for short sentences one product for all heads is faster.
    Everything else, and everything on a GPU, stays as it is.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call `func`, or its replacement."""
        kwargs = kwargs or {}
        if func is F.dropout:
            return quick_dropout(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            return short_attention(*args, **kwargs)
        return func(*args, **kwargs)


def short_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Tensor:
    """Compute attention as `F.scaled_dot_product_attention` does, by `attention` where that is faster.

    That is in training, over at most `UNFUSED_UP_TO` positions, with a boolean mask and no further `options`.
    """
    short = max(query.size(-2), key.size(-2)) <= UNFUSED_UP_TO
    plain = not (is_causal or options) and (attn_mask is None or attn_mask.dtype == torch.bool)
    if short and plain and query.requires_grad and query.device.type == "cpu":
        return attention(query, key, value, attn_mask, partial(quick_dropout, p=dropout_p))[0]
    return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, **options)


def quick_dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Set a share p of the entries to 0, scale the others by 1 / (1 - p), as `F.dropout` does (section 5.4).

    On a CPU, torch's own draws a 64-bit number for each entry, which costs more than a small model's matrix
    products; here one such draw serves four entries, so p is rounded to a multiple of 1 / 65,536.
    """
    dropped = round(p * 65536)
    if not training or inplace or x.device.type != "cpu" or not 0 < dropped < 65536:
        return F.dropout(x, p, training, inplace)
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device="cpu").random_(-(2**63), None)
    uniform = draws.view(torch.int16)[: x.numel()].view(x.shape)  # each of 65,536 values equally likely
    return x * (uniform >= dropped - 32768) * (65536 / (65536 - dropped))
