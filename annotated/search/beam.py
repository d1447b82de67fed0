"""Beam search with a length penalty (section 6.1).

Shape letters: B sentences, k hypotheses of each (the beam), V target vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import index
from typing import Any, Literal

import torch
from torch import Tensor

from annotated.evaluation_mode import evaluating
from annotated.search.config import EXTRA_TOKENS, Penalty, SearchConfig
from annotated.search.greedy import as_tokens, check_tokens, source_mask
from annotated.transformer.attention import MultiHeadedAttention
from annotated.transformer.cache import DecoderCache
from annotated.transformer.config import END, START
from annotated.transformer.layers import DecoderLayer
from annotated.transformer.model import Decoder, EncoderDecoder


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation: its tokens without start and end symbol, and its scores."""

    tokens: tuple[int, ...]
    log_prob: float  # of all tokens and the end symbol
    score: float  # log_prob divided by the length penalty


Fate = Literal["kept", "dropped", "ended"]


@dataclass(frozen=True)
class Candidate:
    """A continuation that one step of a beam search considered, and its fate."""

    tokens: tuple[int, ...]  # all generated so far, the newest last
    log_prob: float
    fate: Fate


def beam_search(
    model: EncoderDecoder,
    src: Tensor,
    src_mask: Tensor | None,
    max_len: int | Sequence[int] | Tensor | None = None,
    start_symbol: int = START,
    end_symbol: int = END,
    beam: int = SearchConfig.beam,
    alpha: float = SearchConfig.alpha,
    penalty: Penalty = SearchConfig.penalty,
    n_best: int = SearchConfig.n_best,
    no_repeat_ngram: int = SearchConfig.no_repeat_ngram,
    prefixes: Sequence[Sequence[int]] | None = None,
    forbidden: Sequence[int] = (),
    on_step: Callable[[int, list[Candidate]], None] | None = None,
) -> list[list[Hypothesis]]:
    """Translate a batch: at every step, keep the `beam` likeliest hypotheses of each sentence.

    A hypothesis is finished when the end symbol is among the `beam` best continuations of its sentence, and
    must end at the length limit. A sentence is done when no unfinished hypothesis can still reach its
    `n_best`, because log-probabilities only fall; with a penalty, also when `beam` hypotheses are finished.

    Args:
        src: int64 (B, src_len); `src_mask`: bool (B or 1, 1, src_len), or None.
        max_len: length limit, for all sentences or for each, start and end symbol included. By default 50
            tokens are generated more than the input has, as in the paper. The model's number of positions is
            a limit too, and a longer prefix is kept.
        start_symbol, end_symbol: by default the tokenizers'. Rows of `data_gen` start with 1, without an end.
        beam: number of unfinished hypotheses kept of each sentence.
        alpha, penalty: see `length_penalty`; alpha 0 compares plain log-probabilities.
        n_best: number of hypotheses returned for each sentence, best first (fewer, if fewer were found).
        no_repeat_ngram: length of the sequences of tokens of which none is generated twice in a translation
            (Paulus et al. 2018); 0 lets all repeat. Prefixes stay as they are.
        prefixes: for each sentence, the tokens with which its translation must begin.
        forbidden: tokens that are never generated.
        on_step: called after each step for each sentence with its index in the batch and its candidates,
            likeliest first; `plots.plot_beam` draws them as a tree.

    Raises ValueError as `SearchConfig` does, for a limit below 2, a mask of another shape, a forbidden end
    symbol, prefixes with it or forbidden tokens, unknown tokens, and scores that are no numbers.
    """
    settings = SearchConfig(beam, alpha, penalty, n_best, no_repeat_ngram)
    if not len(src):
        return []
    src_mask = source_mask(src, src_mask)
    if max_len is None:
        max_len = src_mask.sum(dim=(1, 2)) + EXTRA_TOKENS + 1
    limits: Any = max_len.tolist() if isinstance(max_len, Tensor) else max_len
    limits = limits if isinstance(limits, Sequence) else [limits] * len(src)
    prefixes = [()] * len(src) if prefixes is None else prefixes
    for name, values in {"limits": limits, "prefixes": prefixes}.items():
        if len(values) != len(src):
            raise ValueError(f"there must be as many {name} as sentences, not {len(values)} for {len(src)}")
    if end_symbol in (forbidden := as_tokens(forbidden)):
        raise ValueError(f"the end symbol, {end_symbol}, is forbidden, but every translation needs it")
    searches = []
    for i, (limit, prefix) in enumerate(zip(map(index, limits), prefixes, strict=True)):
        if limit < 2:
            raise ValueError(f"max_len must be at least 2, for the start and the end symbol, not {limit}")
        if excluded := {*prefix} & {end_symbol, *forbidden}:
            raise ValueError(f"prefix {prefix} contains {min(excluded)}, the end symbol or a forbidden token")
        limit = max(min(limit - 1, model.max_positions or limit), len(prefix) + 1)
        watcher = None if on_step is None else partial(on_step, i)
        searches.append(SentenceSearch(settings, limit, tuple(prefix), end_symbol, on_step=watcher))
    with evaluating(model):
        run_beams(model, src, src_mask, searches, start_symbol=start_symbol, forbidden=forbidden)
    if not all(search.finished for search in searches):  # each comparison with NaN was false
        raise ValueError("the scores are not finite, or all tokens are forbidden")
    return [search.best() for search in searches]


@dataclass
class SentenceSearch:
    """The search of one sentence: its rules and its finished hypotheses."""

    settings: SearchConfig
    limit: int  # of generated tokens, the end symbol counted
    prefix: tuple[int, ...]
    end_symbol: int
    on_step: Callable[[list[Candidate]], None] | None = None
    finished: list[Hypothesis] = field(default_factory=list)

    def forced_token(self, length: int) -> int | None:
        """Return the only token allowed after `length` tokens; None if all are."""
        if length < len(self.prefix):
            return self.prefix[length]
        return self.end_symbol if length + 1 >= self.limit else None

    def best(self) -> list[Hypothesis]:
        """Return the `n_best` finished hypotheses, best first."""
        return sorted(self.finished, key=lambda hypothesis: -hypothesis.score)[: self.settings.n_best]

    def is_done(self, length: int, log_prob: float) -> bool:
        """Decide whether to stop, from the length and log-probability of the best unfinished hypothesis."""
        if length >= self.limit or log_prob == -torch.inf:
            return True
        if self.settings.alpha > 0 and len(self.finished) >= self.settings.beam:
            return True
        # At best it grows to the limit, and every further token has probability 1.
        best_possible = self.settings.score(log_prob, self.limit)
        return len(self.finished) >= self.settings.n_best and self.best()[-1].score >= best_possible

    def candidates(self, hypotheses: Tensor, token: Tensor, log_probs: Tensor) -> list[Candidate]:
        """List the continuations of `hypotheses` (2k, length) by `token` (2k,), likeliest first."""
        candidates = []
        unfinished = 0  # so far, of which the first k are kept
        continuations = zip(hypotheses.tolist(), token.tolist(), log_probs.tolist(), strict=True)
        for rank, (hypothesis, newest, log_prob) in enumerate(continuations):
            ends = newest == self.end_symbol
            survives = (rank if ends else unfinished) < self.settings.beam
            unfinished += not ends
            fate: Fate = "dropped" if not survives else "ended" if ends else "kept"
            if log_prob > -torch.inf:
                candidates.append(Candidate((*hypothesis, newest), log_prob, fate))
        return candidates


def run_beams(
    model: EncoderDecoder,
    src: Tensor,
    src_mask: Tensor,
    searches: list[SentenceSearch],
    start_symbol: int,
    forbidden: Sequence[int],
) -> None:
    """Search all sentences side by side until each is done.

    The hypotheses of a sentence form a tree, and the cache holds the tree: each step appends k tokens to it,
    and `visible` says which tokens of the tree belong to which hypothesis. So nothing in the cache moves
    when a hypothesis branches or is dropped:

        <s> ─┬─ ein ─┬─ Hund ─── ...       the cache of this sentence:    <s>  ein  die  Hund  Mann
             │       └─ Mann ─── ...       visible to "<s> ein Hund":      x    x          x
             └─ die  (dropped)             visible to "<s> ein Mann":      x    x                x

    A variant may compute by where a token stands in the cache, as rotary positions do. For such a model each
    hypothesis has a row of the cache for itself, which is copied when the hypothesis branches.
    """
    k = searches[0].settings.beam
    end_symbol = searches[0].end_symbol
    memory = model.encode(src, src_mask)  # (B, src_len, d_model)
    required_tokens = {end_symbol, *forbidden, *(token for search in searches for token in search.prefix)}
    share_cache = can_share_cache(model)
    if not share_cache:
        memory, src_mask = (x.repeat_interleave(k, dim=0) for x in (memory, src_mask))  # (B * k, ...)
    cache = DecoderCache(len(model.decoder.layers))
    tokens = src.new_full((len(src), k, 1), start_symbol)  # (B, k, length)
    own_slot = torch.eye(k, dtype=torch.bool, device=src.device)  # the newest token of each, in the tree
    visible = own_slot.expand(len(src), k, k)  # (B, k, k * length)
    # The k hypotheses of a sentence begin alike. All but the first count as impossible, or they stayed alike.
    exact = torch.promote_types(memory.dtype, torch.float32)  # sums of half precision lose what decides
    scores = memory.new_full((len(src), k), -torch.inf, dtype=exact)  # (B, k) log-probabilities
    scores[:, 0] = 0
    while searches:
        length = tokens.size(-1)  # of a hypothesis after this step, without the start symbol
        mask = visible if share_cache else None
        log_probs = next_log_probs(model, memory, src_mask, tokens=tokens, visible=mask, cache=cache)
        check_tokens(required_tokens, log_probs.size(-1))
        log_probs[..., list(forbidden)] = -torch.inf
        restrict(log_probs, tokens, searches)
        # Twice the beam: even if half of the continuations end, k remain.
        best, origin, token = best_continuations(scores, log_probs, 2 * k)  # each (B, 2k)
        finish(searches, tokens, best=best, origin=origin, token=token)
        scores, rank = best.masked_fill(token == end_symbol, -torch.inf).topk(k)  # (B, k)
        origin, token = origin.gather(1, rank), token.gather(1, rank)
        likeliest = scores[:, 0].tolist()
        remaining = [i for i, search in enumerate(searches) if not search.is_done(length, likeliest[i])]
        rows = torch.tensor(remaining, dtype=torch.long, device=src.device)
        if len(remaining) < len(searches):  # the sentences that are done leave the batch
            searches = [searches[i] for i in remaining]
            scores, origin, token = scores[rows], origin[rows], token[rows]
        parents = rows.unsqueeze(1), origin  # the hypotheses that are continued
        cache_rows = rows if share_cache else (rows.unsqueeze(1) * k + origin).flatten()
        if not share_cache or len(remaining) < len(memory):
            cache.select(cache_rows)
            memory, src_mask = memory[cache_rows], src_mask[cache_rows]
        tokens = torch.cat([tokens[parents], token.unsqueeze(-1)], dim=-1)
        visible = torch.cat([visible[parents], own_slot.expand(len(remaining), k, k)], dim=-1)


def can_share_cache(model: EncoderDecoder) -> bool:
    """Tell whether all that reads the cache is the paper's, with none of its methods replaced."""
    layers = [*model.decoder.layers]
    modules = [model, model.decoder, *layers, *(x.self_attn for x in layers if type(x) is DecoderLayer)]
    paper = EncoderDecoder, Decoder, DecoderLayer, MultiHeadedAttention
    return all(type(x) in paper and vars(type(x)).keys().isdisjoint(vars(x)) for x in modules)


def restrict(log_probs: Tensor, tokens: Tensor, searches: list[SentenceSearch]) -> None:
    """Set to -inf the log-probabilities (B, k, V) of what may not follow the hypotheses `tokens`."""
    for i, search in enumerate(searches):
        if (forced := search.forced_token(tokens.size(-1) - 1)) is not None:
            forced_log_probs = log_probs[i, :, forced].clone()
            log_probs[i] = -torch.inf
            log_probs[i, :, forced] = forced_log_probs
        elif search.settings.no_repeat_ngram:
            for j, hypothesis in enumerate(tokens[i, :, 1:].tolist()):
                log_probs[i, j, repeating(hypothesis, search.settings.no_repeat_ngram)] = -torch.inf


def finish(
    searches: list[SentenceSearch], tokens: Tensor, best: Tensor, origin: Tensor, token: Tensor
) -> None:
    """Keep the hypotheses that end, and show each sentence's candidates to its watcher.

    `best`, `origin` and `token` are what `best_continuations` found for the hypotheses `tokens`.
    """
    k = searches[0].settings.beam
    ends = (token[:, :k] == searches[0].end_symbol) & best[:, :k].isfinite()
    for i, j in ends.nonzero().tolist():
        hypothesis = tuple(tokens[i, origin[i, j], 1:].tolist())
        log_prob = best[i, j].item()
        score = searches[i].settings.score(log_prob, len(hypothesis) + 1)  # the end symbol counts
        searches[i].finished.append(Hypothesis(hypothesis, log_prob, score))
    for i, search in enumerate(searches):
        if search.on_step is not None:
            search.on_step(search.candidates(tokens[i, origin[i], 1:], token[i], best[i]))


def repeating(tokens: list[int], n: int) -> list[int]:
    """List the tokens that would repeat a sequence of `n` tokens, the last of which they would be."""
    ending = tokens[len(tokens) - n + 1 :]  # the first n - 1 of that sequence
    return [tokens[i + n - 1] for i in range(len(tokens) - n + 1) if tokens[i : i + n - 1] == ending]


def next_log_probs(
    model: EncoderDecoder, memory: Tensor, src_mask: Tensor,
    tokens: Tensor, visible: Tensor | None, cache: DecoderCache,
) -> Tensor:  # fmt: skip
    """Compute the log-probabilities (B, k, V) of what follows the hypotheses `tokens` (B, k, length).

    Only the last token of each is computed. With `visible` (B, k, k * length), which masks the cache, the new
    tokens included, the k stand side by side, as a sequence does, but have one position.
    """
    newest = tokens[:, :, -1:].flatten(0, 1)  # (B * k, 1)
    if visible is None:
        states = model.decode(memory, src_mask, newest, None, cache)  # (B * k, 1, d_model)
    else:
        x = model.tgt_embed(newest, tokens.size(-1) - 1).view(*tokens.shape[:2], -1)  # (B, k, d_model)
        states = model.decoder(x, memory, src_mask, visible, cache)
    return model.generator(states).view(*tokens.shape[:2], -1)


def best_continuations(scores: Tensor, log_probs: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Find the likeliest hypotheses that are one token longer.

    `scores` (B, k) belong to the hypotheses, `log_probs` (B, k, V) to their next tokens. Returns three times
    (B, count), fewer where k * V is less: falling log-probabilities, the hypothesis continued, the token.
    """
    # The `count` best of a sentence are among the `count` best of each of its hypotheses.
    top, token = log_probs.topk(min(count, log_probs.size(-1)))  # (B, k, count)
    totals = (scores.unsqueeze(-1) + top).flatten(1)  # (B, k * count)
    best, position = totals.topk(min(count, totals.size(1)))  # (B, count)
    return best, position // top.size(-1), token.flatten(1).gather(1, position)
