"""Greedy search: the likeliest token at each step, with a cache."""

from collections.abc import Sequence

import torch
from torch import Tensor

from annotated.search.cache import DecoderCache
from annotated.search.inference import evaluating
from annotated.transformer.model import EncoderDecoder


def mask_each(src: Tensor, src_mask: Tensor) -> Tensor:
    """Give each of B sentences its row of a mask (B or 1, 1, src_len); raise ValueError for another shape."""
    wanted = (len(src), 1, src.size(1))
    if src_mask.shape not in (wanted, (1, *wanted[1:])):
        raise ValueError(f"src_mask must be (batch, 1, src_len), here {wanted}, not {tuple(src_mask.shape)}")
    return src_mask.expand(wanted)


def greedy_decode(
    model: EncoderDecoder,
    src: Tensor,
    src_mask: Tensor | None,
    max_len: int,
    start_symbol: int,
    end_symbol: int | None = None,
    forbidden: Sequence[int] = (),
) -> Tensor:
    """Take the likeliest token at each step, for a batch of sentences at once.

    Args:
        src: int64 (B, src_len); `src_mask`: bool (B or 1, 1, src_len), or None.
        max_len: the length at most, start symbol included; less where the model has fewer positions.
        end_symbol: a sentence ends here, and is filled up with it; None goes on to `max_len`.
        forbidden: tokens that are never taken.

    Returns int64 (B, at most max_len), each row beginning with `start_symbol`.
    No gradients are kept. Raises ValueError for a `max_len` below 1 and a mask of another shape.
    """
    if max_len < 1:
        raise ValueError(f"max_len must be at least 1, not {max_len}")
    max_len = min(max_len, (model.max_positions or max_len) + 1)  # the last token is not read
    src_mask = None if src_mask is None else mask_each(src, src_mask)
    with evaluating(model):
        memory = model.encode(src, src_mask)
        cache = DecoderCache(len(model.decoder.layers))
        columns = [src.new_full((len(src),), start_symbol)]  # of the result, (B,) each
        going = torch.arange(len(src), device=src.device)  # numbers of the sentences that have not ended
        while len(columns) < max_len and (end_symbol is None or len(going)):
            states = model.decode(memory, src_mask, columns[-1][going].unsqueeze(1), None, cache)
            logits = model.generator.proj(states[:, -1])  # (sentences going on, V)
            logits[:, list(forbidden)] = -torch.inf
            token = logits.max(dim=-1).indices  # (sentences going on,); argmax is slower
            columns.append(torch.full_like(columns[0], end_symbol or 0).index_copy(0, going, token))
            left = (token != end_symbol).nonzero().flatten() if end_symbol is not None else going
            if len(left) < len(going):  # who has ended makes no more work
                going, memory = going[left], memory[left]
                src_mask = None if src_mask is None else src_mask[left]
                cache.select(left)
    return torch.stack(columns, dim=1)
