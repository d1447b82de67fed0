"""The settings of a search: the beam and its penalty, and how long sentences may be.

Nothing here imports PyTorch, which takes seconds: `annotated --help` reads it.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Literal

from annotated.search.penalty import Penalty, length_penalty
from annotated.settings import check_fields

EXTRA_TOKENS = 50  # tokens that a translation may have more than its source, section 6.1
MAX_BEAM = 256  # each step takes memory for beam^2 pairs of hypotheses
MAX_ALPHA = 10  # a penalty of any length is then a finite number

ENGINES = ("auto", "pytorch", "ctranslate2")
QUANTIZATIONS = ("float32", "float16", "bfloat16", "int16", "int8")  # of the matrices in CTranslate2


@dataclass(frozen=True)
class Search:
    """The settings of a beam search. Raises ValueError for those that cannot be."""

    beam: int = 4  # hypotheses kept at each step; 1 searches greedily
    alpha: float = 0.6  # exponent of the length penalty; 0 for none
    penalty: Penalty = "gnmt"  # ((5 + length) / 6)^alpha (gnmt, section 6.1), or length^alpha (power)
    n_best: int = 1  # hypotheses returned of each sentence

    def __post_init__(self) -> None:
        check_fields(self, unbounded=("alpha",))
        if not self.n_best <= self.beam <= MAX_BEAM or self.alpha > MAX_ALPHA:
            raise ValueError(f"n_best <= beam <= {MAX_BEAM} and alpha <= {MAX_ALPHA} must hold, not {self}")

    def score(self, log_prob: float, length: int) -> float:
        """Divide the log-probability of `length` tokens by the length penalty."""
        return log_prob / length_penalty(length, self.alpha, self.penalty)


@dataclass(frozen=True)
class Limits:
    """The greatest lengths of sources and translations: time and memory grow with their square."""

    max_source: int = 1024  # tokens of a source at most, the end symbol counted
    max_length: int = 1024  # tokens of a translation at most, the end symbol counted
    too_long: Literal["cut", "refuse"] = "cut"  # treatment of a longer source: translate its start, or stop

    def __post_init__(self) -> None:
        check_fields(self)

    def within(self, positions: int | None) -> "Limits":
        """Return the limits of a model with this number of positions; None is any number."""
        if positions is None:
            return self
        shorter = min(self.max_source, positions), min(self.max_length, positions)
        return replace(self, max_source=shorter[0], max_length=shorter[1])

    def cut(self, tokens: list[int], around: int, name: str) -> list[int]:
        """Cut a source, which stands between `around` symbols, and warn; or refuse it with a ValueError."""
        if (length := len(tokens) + around) <= self.max_source:
            return tokens
        message = f"{name} has {length:,} tokens, but max_source is {self.max_source:,}"
        if self.too_long == "refuse":
            raise ValueError(message)
        warnings.warn(f"{message}: the rest of it is not translated", stacklevel=2)
        return tokens[: max(0, self.max_source - around)]

    def longest(self, source: int) -> int:
        """Return the length limit of the translation of a source of this many tokens."""
        return min(source + EXTRA_TOKENS, self.max_length)
