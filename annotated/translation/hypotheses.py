"""What a beam search weighs and ends with, its length penalty, and which settings are refused."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor  # which takes seconds to import, and `annotated --help` reads what is below

EXTRA = 50  # tokens that a translation may have more than its source, section 6.1
MAX_BEAM = 256  # each step takes memory for beam^2 pairs of hypotheses


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


def weighed(
    begun: "Tensor", token: "Tensor", log_probs: "Tensor", end_symbol: int, k: int
) -> list[Candidate]:
    """One sentence's continuations as a watcher sees them, the impossible left out.

    `begun` (2k, length) is what each continues, `token` (2k,) with what, `log_probs` (2k,) falling.
    """
    candidates, going_on = [], 0
    for rank, (row, new, log_prob) in enumerate(
        zip(begun.tolist(), token.tolist(), log_probs.tolist(), strict=True)
    ):
        fate: Fate = "dropped"
        if new == end_symbol:
            fate = "ended" if rank < k else fate
        else:
            fate = "kept" if going_on < k else fate
            going_on += 1
        if log_prob > -math.inf:
            candidates.append(Candidate((*row, new), log_prob, fate))
    return candidates


Penalty = Literal["gnmt", "power"]


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


def check_count(name: str, value: Any, most: int | None = None) -> None:
    """Raise ValueError unless `value` is a whole number from 1 to `most`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    if int(value) < 1:
        raise ValueError(f"{name} must be at least 1, not {value}")
    if most is not None and int(value) > most:
        raise ValueError(f"{name} must be at most {most}, not {value}")


def check_search(beam: Any, n_best: Any, alpha: Any) -> None:
    """Raise ValueError for settings with which no beam search could be made."""
    check_count("beam", beam, MAX_BEAM)
    check_count("n_best", n_best, beam)
    if isinstance(alpha, bool) or not isinstance(alpha, Real) or not math.isfinite(alpha):
        raise ValueError(f"alpha must be a number, not {alpha!r}")
    if alpha < 0:
        raise ValueError(f"alpha must not be negative, not {alpha}: long sentences would be penalised twice")


def check_tokens(
    prefixes: list[tuple[int, ...]], sentences: int, end_symbol: int, forbidden: Sequence[int]
) -> None:
    """Raise ValueError for prefixes or forbidden tokens with which no search could end well."""
    if len(prefixes) != sentences:
        raise ValueError(f"there must be a prefix for each of {sentences} sentences, not {len(prefixes)}")
    begun = set(chain(*prefixes))
    if end_symbol in begun:
        raise ValueError(f"a prefix must not contain the end symbol {end_symbol}")
    if refused := (begun | {end_symbol}).intersection(forbidden):
        raise ValueError(f"{sorted(refused)} cannot be forbidden: a prefix or the end needs them")
