"""From the model's probabilities to a sentence: greedy search and beam search (section 6.1), with a cache.

Shape letters: B sentences, k hypotheses kept for each (the beam), V target vocabulary.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from annotated.transformer.model import EncoderDecoder
from annotated.translation.cache import DecoderCache
from annotated.translation.hypotheses import (
    EXTRA,
    Candidate,
    Hypothesis,
    Penalty,
    check_count,
    check_search,
    check_tokens,
    length_penalty,
    weighed,
)
from annotated.translation.watching import evaluating


def within(model: EncoderDecoder, length: int) -> int:
    """As many tokens as can be generated, of `length`: for each, the model reads one position before it."""
    return length if model.max_positions is None else min(length, model.max_positions)


def mask_each(src: Tensor, src_mask: Tensor) -> Tensor:
    """Give each of B sentences its row of a mask (B or 1, 1, src_len); raise ValueError for another shape."""
    expected = (len(src), 1, src.size(1))
    if src_mask.shape not in (expected, (1, *expected[1:])):
        raise ValueError(
            f"src_mask must be (batch, 1, src_len), here {expected}, not {tuple(src_mask.shape)}"
        )
    return src_mask.expand(len(src), -1, -1)


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
        max_len: the length at most, start symbol included; less where the model has not so many positions.
        end_symbol: a sentence ends here, and is filled up with it; None goes on to `max_len`.
        forbidden: tokens that are never taken.

    Returns int64 (B, at most max_len), each row beginning with `start_symbol`.
    The model is put in evaluation mode for the time, and no gradients are kept. Raises ValueError for a
    `max_len` below 1 and a mask of another shape.
    """
    check_count("max_len", max_len)
    max_len = within(model, max_len - 1) + 1  # the last token is not read
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

    A hypothesis whose end symbol is among its sentence's `beam` best continuations is done. A sentence is
    done when no unfinished hypothesis can still reach the `n_best`, for a log-probability only falls as a
    sentence grows. A penalty puts that proof off; with one, a sentence is done as well when `beam`
    hypotheses are. At its length limit a hypothesis has to end.

    Args:
        src: int64 (B, src_len); `src_mask`: bool (B or 1, 1, src_len), or None.
        max_len: tokens generated at most, the end symbol included, for all sentences or for each; None is the
            paper's input length + 50. Less where the model has not so many positions; a longer prefix is kept
            whole, and ended.
        start_symbol, end_symbol: those of our tokenizers, unless the model was trained with others: those of
            `data_gen` start with 1, and have no end.
        alpha, penalty: see `length_penalty`; alpha 0 compares plain log-probabilities.
        n_best: hypotheses returned for each sentence, the best first (fewer, where fewer were found).
        prefixes: for each sentence, tokens with which its translation must begin.
        forbidden: tokens that are never taken.
        watch: called after each step for each sentence with its number in the batch and its candidates,
            likeliest first; `plots.plot_beam` draws them as a tree.

    Raises ValueError for a beam outside 1 to 256, an n_best above the beam, a negative alpha, an unknown
    penalty, a mask of another shape, and for prefixes that are not one a sentence, that end before they are
    over, or that `forbidden` rules out.
    """
    check_search(beam, n_best, alpha)
    src_mask = src.new_ones(len(src), 1, src.size(1), dtype=torch.bool) if src_mask is None else src_mask
    src_mask = mask_each(src, src_mask)
    begun = [tuple(prefix) for prefix in ([()] * len(src) if prefixes is None else prefixes)]
    check_tokens(begun, len(src), end_symbol, forbidden)
    if max_len is None:
        max_len = [length + EXTRA for length in src_mask.sum(dim=(1, 2)).tolist()]
    limits = max_len if isinstance(max_len, Sequence) else [max_len] * len(src)
    for limit in limits:
        check_count("max_len", limit)
    searches = [
        SentenceSearch(within(model, limit), beam, n_best, alpha, penalty, prefix)
        for limit, prefix in zip(limits, begun, strict=True)
    ]
    if watch is not None:
        for i, search in enumerate(searches):
            search.watch = partial(watch, i)
    with evaluating(model):
        run_beams(model, src, src_mask, searches, beam, start_symbol, end_symbol, forbidden)
    return [search.best() for search in searches]


class SentenceSearch:
    """What one sentence's search holds besides tensors: its limit, its rules, what has ended."""

    def __init__(
        self, limit: int, beam: int, n_best: int, alpha: float, penalty: Penalty, prefix: tuple[int, ...]
    ):
        self.limit = max(limit, len(prefix) + 1)
        self.beam = beam
        self.n_best = n_best
        self.alpha = alpha
        self.penalty = penalty
        self.prefix = prefix
        self.ended: list[Hypothesis] = []
        self.watch: Callable[[list[Candidate]], None] | None = None
        length_penalty(self.limit, alpha, penalty)  # an unknown penalty is refused before any work

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
    `seen` lets see themselves and those that they continue. Nothing in the cache has to move when hypotheses
    die or branch, and the sentence itself is there once for all of them.
    """
    memory = model.encode(src, src_mask)  # (B, src_len, d_model)
    cache = DecoderCache(len(model.decoder.layers))
    tokens = src.new_full((len(src), k, 1), start_symbol)
    itself = torch.eye(k, dtype=torch.bool, device=src.device)
    seen = itself.expand(len(src), k, k)  # of each of the k newest tokens: which of all so far are its own
    # All beams of a sentence begin alike: all but the first count as impossible, or the k would stay alike.
    scores = memory.new_full((len(src), k), -torch.inf)  # (B, k) log-probabilities
    scores[:, 0] = 0
    length = 0  # tokens generated so far
    while searches:
        log_probs = next_log_probs(model, memory, src_mask, tokens, seen, cache, forbidden)  # (B, k, V)
        for log_prob, search in zip(log_probs, searches, strict=True):
            if (only := search.only(length, end_symbol)) is not None:
                log_prob[:, torch.arange(log_prob.size(-1), device=log_prob.device) != only] = -torch.inf
        # Twice the beam: even if half of them end, k remain to go on.
        best, origin, token = continuations(scores, log_probs, 2 * k)  # each (B, 2k)
        collect_ended(searches, tokens, best, origin, token == end_symbol, k)
        for i, search in enumerate(searches):
            if search.watch is not None:
                search.watch(weighed(tokens[i, origin[i], 1:], token[i], best[i], end_symbol, k))
        length += 1
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

    The last token of each is new to the cache. They stand side by side there, but have one position; which of
    the cache's tokens each may see, the new ones counted, `seen` (B, k, k * len) says.
    """
    newest = model.tgt_embed(tokens[:, :, -1:].flatten(0, 1), tokens.size(-1) - 1)  # (B * k, 1, d_model)
    states = model.decoder(newest.view(*tokens.shape[:2], -1), memory, src_mask, seen, cache)
    log_probs = model.generator(states)
    if forbidden:
        log_probs[..., list(forbidden)] = -torch.inf
    return log_probs


def continuations(scores: Tensor, log_probs: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The likeliest ways to go on with one more token from the hypotheses of each sentence.

    `scores` (B, k) are theirs, `log_probs` (B, k, V) of what comes next; no sum over all of V is made, for
    the `count` best of a sentence are among the `count` best of each of its hypotheses.

    Returns (B, count) log-probabilities, falling; the hypotheses continued, from 0 to k - 1; the tokens.
    There are fewer than `count` where k * V is less.
    """
    top, token = log_probs.topk(min(count, log_probs.size(-1)))  # (B, k, count)
    totals = scores.unsqueeze(-1) + top
    best, index = totals.flatten(1).topk(min(count, totals[0].numel()))  # (B, count)
    return best, index // top.size(-1), token.flatten(1).gather(1, index)


def collect_ended(
    searches: list[SentenceSearch], tokens: Tensor, best: Tensor, origin: Tensor, is_end: Tensor, k: int
) -> None:
    """Hand each search those of its k best continuations that end: tokens (B, k, len), the rest (B, 2k)."""
    ends = is_end[:, :k] & best[:, :k].isfinite()
    for i, j in ends.nonzero().tolist():
        searches[i].end(tokens[i, origin[i, j], 1:].tolist(), best[i, j].item())
