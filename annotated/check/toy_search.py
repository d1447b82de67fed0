"""Beam search over a tree of which everything is known, as it should be and as people get it wrong."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import add, mul, truediv
from typing import Any

import torch
from torch import Tensor

Tokens = tuple[int, ...]


@dataclass
class Tree:
    """Log-probabilities of every next token after every beginning of up to `depth` tokens."""

    after: dict[Tokens, list[float]]
    depth: int
    start: int
    end: int

    @classmethod
    def of(cls, model: Callable[[Tensor], Tensor], vocab: int, depth: int, start: int, end: int) -> "Tree":
        """Read a tree off a model (n, T) -> (n, T, vocab), by causality all beginnings from the longest."""
        texts = [*itertools.product(range(vocab), repeat=depth - 1)]
        rows = model(torch.tensor([[start, *text] for text in texts])).tolist()
        after = {text[:n]: row[n] for text, row in zip(texts, rows, strict=True) for n in range(depth)}
        return cls(after, depth, start, end)

    def score(self, tokens: Tokens, alpha: float) -> float:
        """The score of a text that then ends; of one too long, minus infinity."""
        text = (*tokens, self.end)
        if len(text) > self.depth:
            return -math.inf
        return sum(self.after[text[:n]][t] for n, t in enumerate(text)) / ((5 + len(text)) / 6) ** alpha

    def right(self, width: int, alpha: float) -> set[Tokens]:
        """Return what right searches find: they differ in taste, and max_len may count the start."""
        taste: list[dict[str, Any]] = [{}, {"refill": True}, {"long": True}, {"patience": True}]
        taste += [{"forbidden": (0, 1, self.start)}, *({"refill": True, "wide": n} for n in (2, 99))]
        taste += [{"count": -1}, {"plain": True}] if alpha else []
        return finds(self, *(Rules(width, alpha, **x) for x in taste))


@dataclass
class Rules:
    """How a search goes about it. The first lines are questions of taste, the rest are mistakes."""

    width: int
    alpha: float = 0.0
    refill: bool = False  # whether others take the places of those that have ended
    wide: int = 1  # ended ones are looked for among the best `wide * width`
    long: bool = False  # whether one that never ended competes, too
    count: int = 0  # what is added to the length that is counted, the end symbol included
    plain: bool = False  # whether the length itself is the divisor
    patience: bool = False  # whether it stops once as many have ended as the beam is wide
    forbidden: Tokens = ()  # what is never written

    summed: Callable[[float, float], float] = add
    divide: Callable[[float, float], float] = truediv
    at_each_step: bool = False  # the penalty is applied in the beam, too
    first_ended: bool = False
    keeps_parents: bool = True
    keeps_ended: bool = False  # whether ended ones are continued
    worst: bool = False
    unlike: bool = False  # whether those that never ended are ranked rightly, the others not


def find(tree: Tree, rules: Rules) -> Tokens:
    """Search a tree."""
    live: list[tuple[float, Tokens]] = [(0.0, ())]
    ended: list[tuple[float, Tokens]] = []

    def ranked(score: float, tokens: Tokens, divide: Callable[[float, float], float] = rules.divide) -> float:
        length = max(1, len(tokens) + rules.count)
        penalty = (length if rules.plain else (5 + length) / 6) ** rules.alpha
        return divide(score, penalty)

    for _ in range(tree.depth):
        every = ((s, tokens, t, p) for s, tokens in live for t, p in enumerate(tree.after[tokens]))
        every = (x for x in every if x[2] not in rules.forbidden)
        options = [(rules.summed(s, p), (*tokens, t)) for s, tokens, t, p in every]
        if rules.at_each_step:
            options = [(ranked(*option), option[1]) for option in options]
        options.sort(reverse=not rules.worst)
        best = options[: rules.width]
        if not rules.keeps_parents and len(best) == len(live):
            best = [(score, (*live[i][1], text[-1])) for i, (score, text) in enumerate(best)]
        among = best if rules.wide == 1 else options[: rules.wide * rules.width]
        stops = [o for o in among if o[1][-1] == tree.end]
        if rules.refill:
            best = [o for o in options if o[1][-1] != tree.end][: rules.width]
        kept = best if rules.keeps_ended else [o for o in best if o not in stops]
        ended += [(ranked(*o), o[1][:-1]) for o in stops]
        live = kept
        if not live or (rules.first_ended and ended) or (rules.patience and len(ended) >= rules.width):
            break
    if not ended or (rules.long and not (rules.patience and len(ended) >= rules.width)):
        ended += [(ranked(*o, truediv if rules.unlike else rules.divide), o[1]) for o in live]
    _, text = min(ended) if rules.worst else max(ended)
    return text[: text.index(tree.end)] if tree.end in text else text


def finds(tree: Tree, *rules: "Rules") -> set[Tokens]:
    """Return what searches with some rules find, whether max_len counts the start or not."""
    return {find(replace(tree, depth=tree.depth - n), one) for one in rules for n in (0, 1)}


# Mistakes, likeliest first, and what each changes in the rules of a right search.
WRONG_RULES: dict[str, dict[str, Any]] = {
    "it is greedy: all hypotheses of a step must compete by their sums": {"width": 1},
    "hypotheses that have ended are continued: set them aside": {"keeps_ended": True},
    "the penalty is multiplied: divide by ((5 + length) / 6) ** alpha": {"divide": mul},
    "the penalty is applied at each step, too: it is for hypotheses that have ended": {"at_each_step": True},
    "alpha changes nothing: divide the scores of ended texts by ((5 + length) / 6) ** alpha": {"alpha": 0.0},
    "scores are divided by the length although alpha is 0": {"alpha": 1.0, "plain": True},
    "only the last token counts: add its log-probability to the score": {"summed": lambda s, p: p},
    "the first hypothesis that ends is taken: others may still be better": {"first_ended": True},
    "hypotheses lose their parents: each candidate belongs to its own beginning": {"keeps_parents": False},
    "scores are multiplied: log-probabilities are added up": {"summed": lambda s, p: s * p if s else p},
    "probabilities are added up: add up their logarithms": {"summed": lambda s, p: s + math.exp(p)},
    "the worst is returned: sort by falling score": {"worst": True},
}
