"""Beam search over a tree of which everything is known, as it should be and as people get it wrong."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from operator import truediv
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
        """Return what right searches find, whose rules are a matter of taste; max_len may count the start."""
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
    wide: int = 1  # among how many times the beam's width those that end are looked for
    long: bool = False  # whether one that never ended competes, too
    count: int = 0  # what is added to the length that is counted, the end symbol included
    plain: bool = False  # whether the length itself is the divisor
    patience: bool = False  # whether it stops once as many have ended as the beam is wide
    forbidden: Tokens = ()  # what is never written

    summed: Callable[[float, float], float] = field(default=lambda score, p: score + p)
    divide: Callable[[float, float], float] = field(default=lambda score, penalty: score / penalty)
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


# Mistakes, by what they do to the rules of a beam of some width and alpha.
WRONG_RULES: dict[str, Callable[[int, float], Rules]] = {
    "greedy": lambda k, a: Rules(1, a),
    "sums": lambda k, a: Rules(k, a, summed=lambda score, p: p),
    "products": lambda k, a: Rules(k, a, summed=lambda score, p: score * p if score else p),
    "probabilities": lambda k, a: Rules(k, a, summed=lambda score, p: score + math.exp(p)),
    "worst": lambda k, a: Rules(k, a, worst=True),
    "mean": lambda k, a: Rules(k, 1.0, plain=True),
    "first": lambda k, a: Rules(k, a, first_ended=True),
    "parents": lambda k, a: Rules(k, a, keeps_parents=False),
    "ended": lambda k, a: Rules(k, a, keeps_ended=True),
    "multiplied": lambda k, a: Rules(k, a, divide=lambda score, penalty: score * penalty),
    "each step": lambda k, a: Rules(k, a, at_each_step=True),
    "no alpha": lambda k, a: Rules(k, 0.0),
}
