"""Beam search with a length penalty (section 6.1): of many beginnings of a sentence, the likeliest are kept.

Shape letters: B sentences, k hypotheses kept for each (the beam), V target vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from annotated.search.cache import DecoderCache
from annotated.search.greedy import mask_each
from annotated.search.inference import evaluating
from annotated.search.limits import (
    EXTRA,
    Penalty,
    check_search,
    check_tokens,
)
from annotated.transformer.model import EncoderDecoder


@dataclass(frozen=True)
class Hypothesis:
    """A translation that beam search ended: tokens without start and end, and how good it is held to be."""

    tokens: tuple[int, ...]
    log_prob: float  # of all tokens and the end symbol
    score: float  # log_prob divided by the length penalty


Fate = Literal["kept", "dropped", "ended"]


@dataclass(frozen=True)
class Candidate:
    """A continuation that beam search weighed in one step, and what became of it."""

    tokens: tuple[int, ...]  # all generated so far, the newest last
    log_prob: float
    fate: Fate


def length_penalty(length: int, alpha: float, penalty: Penalty = "gnmt") -> float:
    """What a hypothesis of `length` tokens, the end symbol counted, has its log-probability divided by.

    "gnmt" is ((5 + length) / 6)^alpha, of Wu et al. 2016, which section 6.1 uses with alpha 0.6;
    "power" is length^alpha, as Hugging Face and CTranslate2 have it. Raises ValueError for another name, and
    for an alpha with which no float could hold the result.
    """
    if penalty not in ("gnmt", "power"):
        raise ValueError(f"penalty must be 'gnmt' or 'power', not {penalty!r}")
    try:
        return ((5 + length) / 6 if penalty == "gnmt" else float(length)) ** alpha
    except OverflowError:
        raise ValueError(f"alpha must be smaller than {alpha}: {length} tokens are too many for it") from None


def beam_search(
    model: EncoderDecoder,
    src: Tensor,
    src_mask: Tensor | None,
    max_len: int | Sequence[int] | None = None,
    start_symbol: int = 0,
    end_symbol: int = 1,
    beam: int = 4,
    alpha: float = 0.6,
    penalty: Penalty = "gnmt",
    n_best: int = 1,
    prefixes: Sequence[Sequence[int]] | None = None,
    forbidden: Sequence[int] = (),
    watch: Callable[[int, list[Candidate]], None] | None = None,
) -> list[list[Hypothesis]]:
    """Keep the `beam` likeliest beginnings of each sentence at every step; return its best ends.

    A hypothesis whose end symbol is among its sentence's `beam` best continuations is done; at its length
    limit it has to end. A sentence is done when no unfinished hypothesis can still reach the `n_best`, as a
    log-probability only falls while the sentence grows; with a penalty, also when `beam` hypotheses are.

    Args:
        src: int64 (B, src_len); `src_mask`: bool (B or 1, 1, src_len), or None.
        max_len: tokens generated at most, the end symbol included, for all sentences or for each; None is the
            paper's input length + 50. Less where the model has fewer positions; a longer prefix is kept.
        start_symbol, end_symbol: our tokenizers'; `data_gen` starts with 1, and has no end.
        alpha, penalty: see `length_penalty`; alpha 0 compares plain log-probabilities.
        n_best: hypotheses returned for each sentence, the best first (fewer, where fewer were found).
        prefixes: for each sentence, tokens with which its translation must begin.
        forbidden: tokens that are never taken.
        watch: called after each step for each sentence with its number in the batch and its candidates,
            likeliest first; `plots.plot_beam` draws them as a tree.

    Raises ValueError for a beam outside 1 to 256, an n_best above the beam, a negative alpha, an unknown
    penalty, a mask of another shape, and prefixes that are not one a sentence, end, or are forbidden.
    """
    check_search(beam, n_best, alpha)
    src_mask = src.new_ones(len(src), 1, src.size(1), dtype=torch.bool) if src_mask is None else src_mask
    src_mask = mask_each(src, src_mask)
    begun = [tuple(prefix) for prefix in ([()] * len(src) if prefixes is None else prefixes)]
    check_tokens(begun, len(src), end_symbol, forbidden)
    if max_len is None:
        max_len = [length + EXTRA for length in src_mask.sum(dim=(1, 2)).tolist()]
    limits = max_len if isinstance(max_len, Sequence) else [max_len] * len(src)
    if min(limits, default=1) < 1:
        raise ValueError(f"max_len must be at least 1, not {min(limits)}")
    rules = beam, n_best, alpha, penalty
    watches = [None if watch is None else partial(watch, i) for i in range(len(src))]
    searches = [
        SentenceSearch(min(limit, model.max_positions or limit), *rules, prefix, watcher)
        for limit, prefix, watcher in zip(limits, begun, watches, strict=True)
    ]
    with evaluating(model):
        run_beams(model, src, src_mask, searches, beam, start_symbol, end_symbol, forbidden)
    return [search.best() for search in searches]


@dataclass
class SentenceSearch:
    """What one sentence's search holds besides tensors: its limit, its rules, what has ended."""

    limit: int  # tokens at most, the end symbol counted
    beam: int
    n_best: int
    alpha: float
    penalty: Penalty
    prefix: tuple[int, ...]
    watch: Callable[[list[Candidate]], None] | None = None
    ended: list[Hypothesis] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.limit = max(self.limit, len(self.prefix) + 1)
        length_penalty(self.limit, self.alpha, self.penalty)  # an unknown penalty is refused before any work

    def end(self, tokens: Sequence[int], log_prob: float) -> None:
        """Take in a hypothesis whose end symbol has just been counted into `log_prob`."""
        score = log_prob / length_penalty(len(tokens) + 1, self.alpha, self.penalty)
        self.ended.append(Hypothesis(tuple(tokens), log_prob, score))

    def best(self) -> list[Hypothesis]:
        """The n_best hypotheses that have ended, best first."""
        return sorted(self.ended, key=lambda hypothesis: -hypothesis.score)[: self.n_best]

    def done(self, length: int, log_prob: float) -> bool:
        """Whether to stop, when the best unfinished hypothesis has this length and log-probability."""
        if length >= self.limit or log_prob == -torch.inf:
            return True
        if self.alpha > 0 and len(self.ended) >= self.beam:
            return True
        best_left = log_prob / length_penalty(self.limit, self.alpha, self.penalty)
        return len(self.ended) >= self.n_best and self.best()[-1].score >= best_left

    def only(self, length: int, end_symbol: int) -> int | None:
        """The one token allowed after `length` tokens, or None where all are."""
        if length < len(self.prefix):
            return self.prefix[length]
        return end_symbol if length + 1 >= self.limit else None


def run_beams(
    model: EncoderDecoder,
    src: Tensor,
    src_mask: Tensor,
    searches: list[SentenceSearch],
    k: int,
    start_symbol: int,
    end_symbol: int,
    forbidden: Sequence[int],
) -> None:
    """Search all sentences side by side, dropping each from the batch when it is done.

    The hypotheses of a sentence are a tree, and so the cache keeps them: each step adds k tokens to it, which
    see themselves and those that they continue. Nothing in it has to move when hypotheses die or branch.
    """
    memory = model.encode(src, src_mask)  # (B, src_len, d_model)
    cache = DecoderCache(len(model.decoder.layers))
    tokens = src.new_full((len(src), k, 1), start_symbol)
    itself = torch.eye(k, dtype=torch.bool, device=src.device)
    seen = itself.expand(len(src), k, k)  # of each of the k newest tokens: which of all so far are its own
    # All beams of a sentence begin alike: all but the first count as impossible, or the k would stay alike.
    scores = memory.new_full((len(src), k), -torch.inf)  # (B, k) log-probabilities
    scores[:, 0] = 0
    while searches:
        length = tokens.size(-1)  # of a hypothesis after this step
        log_probs = next_log_probs(model, memory, src_mask, tokens, seen, cache, forbidden)  # (B, k, V)
        for log_prob, search in zip(log_probs, searches, strict=True):
            if (only := search.only(length - 1, end_symbol)) is not None:
                log_prob[:, torch.arange(log_prob.size(-1), device=log_prob.device) != only] = -torch.inf
        # Twice the beam: even if half of them end, k remain to go on.
        best, origin, token = continuations(scores, log_probs, 2 * k)  # each (B, 2k)
        ends = (token[:, :k] == end_symbol) & best[:, :k].isfinite()
        for i, j in ends.nonzero().tolist():
            searches[i].end(tokens[i, origin[i, j], 1:].tolist(), best[i, j].item())
        for i, search in enumerate(searches):
            if search.watch is not None:
                search.watch(weighed(tokens[i, origin[i], 1:], token[i], best[i], end_symbol, k))
        scores, slot = best.masked_fill(token == end_symbol, -torch.inf).topk(k)  # (B, k)
        origin, token = origin.gather(1, slot), token.gather(1, slot)
        likeliest = scores[:, 0].tolist()
        left = [i for i, search in enumerate(searches) if not search.done(length, likeliest[i])]
        if len(left) < len(searches):
            searches = [searches[i] for i in left]
            going = torch.tensor(left, dtype=torch.long, device=src.device)
            cache.select(going)
            scores, origin, token, tokens, seen, memory, src_mask = (
                x[going] for x in (scores, origin, token, tokens, seen, memory, src_mask)
            )
        sentence = torch.arange(len(searches), device=src.device).unsqueeze(1)
        tokens = torch.cat([tokens[sentence, origin], token.unsqueeze(-1)], dim=-1)
        seen = torch.cat([seen[sentence, origin], itself.expand(len(searches), k, k)], dim=-1)


def next_log_probs(
    model: EncoderDecoder,
    memory: Tensor,
    src_mask: Tensor,
    tokens: Tensor,
    seen: Tensor,
    cache: DecoderCache,
    forbidden: Sequence[int],
) -> Tensor:
    """Log-probabilities (B, k, V) of what follows the hypotheses `tokens` (B, k, len).

    The last token of each is new to the cache. They stand side by side there, but have one position; `seen`
    (B, k, k * len) has which of the cache's tokens, the new ones counted, each may see.
    """
    newest = model.tgt_embed(tokens[:, :, -1:].flatten(0, 1), tokens.size(-1) - 1)  # (B * k, 1, d_model)
    states = model.decoder(newest.view(*tokens.shape[:2], -1), memory, src_mask, seen, cache)
    log_probs = model.generator(states)
    log_probs[..., list(forbidden)] = -torch.inf
    return log_probs


def continuations(scores: Tensor, log_probs: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The likeliest ways to go on with one more token from the hypotheses of each sentence.

    `scores` (B, k) are theirs, `log_probs` (B, k, V) of what comes next. Returns (B, count) log-probabilities
    that fall, the hypotheses continued, from 0 to k - 1, and the tokens; fewer where k * V is less.
    """
    # The `count` best of a sentence are among the `count` best of each of its hypotheses: nothing has size V.
    top, token = log_probs.topk(min(count, log_probs.size(-1)))  # (B, k, count)
    totals = scores.unsqueeze(-1) + top
    best, index = totals.flatten(1).topk(min(count, totals[0].numel()))  # (B, count)
    return best, index // top.size(-1), token.flatten(1).gather(1, index)


def weighed(begun: Tensor, token: Tensor, log_probs: Tensor, end_symbol: int, k: int) -> list[Candidate]:
    """One sentence's continuations as a watcher sees them, the impossible left out.

    `begun` (2k, length) is what each continues, `token` (2k,) with what, `log_probs` (2k,) falling.
    """
    candidates, going_on = [], 0
    of_each = zip(begun.tolist(), token.tolist(), log_probs.tolist(), strict=True)
    for rank, (row, new, log_prob) in enumerate(of_each):
        if new == end_symbol:
            fate: Fate = "ended" if rank < k else "dropped"
        else:
            fate = "kept" if going_on < k else "dropped"
            going_on += 1
        if log_prob > -torch.inf:
            candidates.append(Candidate((*row, new), log_prob, fate))
    return candidates
