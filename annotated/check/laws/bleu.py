"""The law of BLEU, the score of what a search finds (lesson 10, section 6.1)."""

import itertools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from annotated.check.adapt import Code, Missing, call, first
from annotated.check.comparing import Failure, mean_of
from annotated.check.law import law

PAIRS = {
    "the the the Cat sat on the mat today": "the black Cat sat on the mat",
    "a small dog Runs in the green park": "a small dog runs through the green park today now",
    "he reads it here": "he reads the book here in the evening",
}


def counts(texts: list[str], references: list[str], clip: bool = True) -> Tensor:
    """Count n-grams, n = 1 to 4, of texts: those that their references have, and all. (2, 4)"""
    found = torch.zeros(2, 4)
    for pair, n in itertools.product(zip(texts, references, strict=True), range(4)):
        grams, known = (Counter(zip(*(x.split()[i:] for i in range(n + 1)), strict=False)) for x in pair)
        right = grams & known if clip else {g: count for g, count in grams.items() if g in known}
        found[:, n] += torch.tensor([sum(right.values()), grams.total()])
    return found


def brevity(texts: list[str], references: list[str]) -> float:
    """Return the length of the references by that of the texts."""
    return len(" ".join(references).split()) / len(" ".join(texts).split())


def score_of(texts: list[str], references: list[str]) -> float:
    """Return BLEU as sacreBLEU has it, of words between spaces and without smoothing, from 0 to 100."""
    right, total = counts(texts, references)
    return 100 * mean_of(right / total) * min(1.0, math.exp(1 - brevity(texts, references)))


def scores_of(code: Code) -> list[tuple[float, float]]:
    """Score identical texts, and PAIRS, in each form of a call, the best for identical ones first.

    The forms are lists of words or texts, with a list of references or a reference for each. A text is also a
    list of characters, so that a wrong form need not raise an error.
    """
    texts, references = [*PAIRS], [*PAIRS.values()]
    forms: list[Callable[[list[str], list[str]], tuple[Any, Any]]] = [
        lambda h, r: ([x.split() for x in h], [x.split() for x in r]),
        lambda h, r: ([x.split() for x in h], [[x.split()] for x in r]),
        lambda h, r: (h, [r]),
        lambda h, r: (h, r),
    ]

    def score(hypotheses: Any, references: Any) -> float:
        result = call(code["bleu"], hypotheses=hypotheses, references=references)
        return float(first(getattr(result, "value", getattr(result, "score", result))))

    found, problems = [], []
    for form in forms:
        try:
            found.append((score(*form(references, references)), score(*form(texts, references))))
        except (NotImplementedError, Missing):
            raise
        except Exception as error:
            problems.append(error)
    if not found:
        raise problems[-1]
    return sorted(found, key=lambda scores: -round(scores[0], 3))


@law("10_translation", "bleu", "BLEU: sacreBLEU's number")
def bleu(code: Code) -> str | None:
    """BLEU of a corpus is what sacreBLEU says, from 0 to 100 or from 0 to 1; capitals count."""
    texts, references = [*PAIRS], [*PAIRS.values()]
    (same, got), *others = scores_of(code)
    unit = 100.0 if 0.99 < same < 1.01 else 1.0
    lower = score_of([x.lower() for x in texts], [x.lower() for x in references])
    got = next((other for _, other in others if abs(other * unit - lower) < 0.05), got)  # it wants texts
    got, wanted = got * unit, score_of(texts, references)
    if abs(got - wanted) < 0.05 and abs(same * unit - 100) < 0.05:
        if unit == 100 and code.stubs:
            raise Failure("the score is from 0 to 1", mistake="BLEU is told from 0 to 100: multiply by 100")
        return "from 0 to 1" if unit == 100 else None
    right, total = counts(texts, references)
    r, plain = brevity(texts, references), counts(texts, references, clip=False)[0]
    facts: dict[str, Any] = {"got": got, "mean": mean_of, "r": r, "penalty": min(1.0, math.exp(1 - r))}
    facts |= {"p": right / total * 100, "unclipped": plain / total * 100, "lower": lower}
    facts["one_more"] = (right + 1) / (total + 1) * 100
    facts["one_more_above"] = torch.cat([facts["p"][:1], facts["one_more"][1:]])
    facts["each"] = [score_of([text], [reference]) for text, reference in PAIRS.items()]
    raise Failure("the score is not sacreBLEU's", f"{got:.2f}, and should be {wanted:.2f}", **facts)
