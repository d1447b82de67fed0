"""Greedy search: the likeliest token at each step, with a cache."""

from collections.abc import Iterable, Sequence
from operator import index

import torch
from torch import Tensor

from annotated.evaluation_mode import evaluating
from annotated.transformer.cache import DecoderCache
from annotated.transformer.config import START
from annotated.transformer.model import EncoderDecoder


def greedy_decode(
    model: EncoderDecoder,
    src: Tensor,
    src_mask: Tensor | None,
    max_len: int,
    start_symbol: int = START,
    end_symbol: int | None = None,
    forbidden: Sequence[int] = (),
) -> Tensor:
    """Take the likeliest token at each step, for a batch of sentences at once.

    Args:
        src: int64 (B, src_len); `src_mask`: bool (B or 1, 1, src_len), or None.
        max_len: length limit, start symbol included; less where the model has fewer positions.
        start_symbol: by default the tokenizers', as in `beam_search`; rows of `data_gen` start with 1.
        end_symbol: ends a sentence, and fills up its row; without it, every row reaches `max_len`.
        forbidden: tokens that are never generated.

    Returns int64 (B, at most max_len), each row beginning with `start_symbol`.
    No gradients are kept. Raises ValueError for a `max_len` below 1, a mask of another shape, an end or
    forbidden symbol outside of the vocabulary, and scores that are no numbers.
    """
    if (max_len := index(max_len)) < 1:
        raise ValueError(f"max_len must be at least 1, not {max_len}")
    max_len = min(max_len, (model.max_positions or max_len) + 1)  # the last token is not read
    src_mask = source_mask(src, src_mask)
    end = -1 if end_symbol is None else end_symbol
    forbidden = as_tokens(forbidden)
    required_tokens = forbidden if end_symbol is None else (*forbidden, end_symbol)
    with evaluating(model):
        memory = model.encode(src, src_mask)  # (B, src_len, d_model)
        cache = DecoderCache(len(model.decoder.layers))
        columns = [src.new_full((len(src),), start_symbol)]  # of the result, (B,) each
        active = torch.arange(len(src), device=src.device)  # rows that have not ended
        while len(columns) < max_len and len(active):
            newest = columns[-1][active].unsqueeze(1)
            states = model.decode(memory, src_mask, newest, None, cache)  # (active, 1, d_model)
            log_probs = model.generator(states[:, -1])  # (active, V)
            check_tokens(required_tokens, log_probs.size(-1))
            log_probs[..., list(forbidden)] = -torch.inf
            best, token = log_probs.max(dim=-1)  # argmax is slower
            if not best.isfinite().all():
                raise ValueError("the scores are not finite, or all tokens are forbidden")
            columns.append(torch.full_like(columns[0], end).index_copy(0, active, token))
            remaining = (token != end).nonzero().flatten()
            if len(remaining) < len(active):  # rows that have ended leave the batch
                active, memory, src_mask = active[remaining], memory[remaining], src_mask[remaining]
                cache.select(remaining)
    return torch.stack(columns, dim=1)


def source_mask(src: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mask (B, 1, src_len) of a source (B, src_len). Raises ValueError for other shapes."""
    if not isinstance(src, Tensor):
        raise TypeError("src must be a tensor (B, src_len), as torch.tensor([[5, 6]]) is")
    if src.dim() != 2:
        raise ValueError(f"src must be (B, src_len), not {tuple(src.shape)}; of one, use src.unsqueeze(0)")
    if len(src) and not src.size(1):
        raise ValueError("a source needs a token: src has the shape (B, 0)")
    size = len(src), 1, src.size(1)
    if mask is None:
        return src.new_ones(size, dtype=torch.bool)
    if mask.shape not in (size, (1, *size[1:])):
        raise ValueError(f"src_mask must be (B or 1, 1, src_len), here {size}, not {tuple(mask.shape)}")
    return mask.expand(size)


def as_tokens(forbidden: Iterable[int]) -> tuple[int, ...]:
    """Return the forbidden tokens. Raises TypeError for a single number."""
    if not isinstance(forbidden, Iterable):
        raise TypeError(f"forbidden must be a list of tokens, as [{forbidden}], not {forbidden}")
    return (*forbidden,)


def check_tokens(tokens: Iterable[int], vocab: int) -> None:
    """Raise ValueError for a token that a vocabulary of this size does not have."""
    if unknown := [token for token in tokens if not 0 <= token < vocab]:
        raise ValueError(f"there is no token {unknown[0]} in a vocabulary of {vocab}")
