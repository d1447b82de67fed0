"""The settings of a search: the beam, the length penalty, and how long sentences may be.

Nothing here imports PyTorch, which takes seconds: `annotated --help` reads it.
"""

import warnings
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Literal, get_args

from annotated.settings import check_fields

EXTRA_TOKENS = 50  # tokens that a translation may have more than its source, section 6.1
MAX_BEAM = 256  # each step takes memory for beam^2 pairs of hypotheses
MAX_ALPHA = 10  # a penalty of any length is then a finite number

Penalty = Literal["gnmt", "power"]
QUANTIZATIONS = ("float32", "float16", "bfloat16", "int16", "int8")  # of the matrices in CTranslate2


def check_search(beam: int, n_best: int, alpha: float, penalty: str) -> None:
    """Raise ValueError for a search that cannot be: a beam beyond 256, an alpha outside 0 to 10."""
    if not (isinstance(beam, Integral) and isinstance(n_best, Integral)):
        raise ValueError(f"beam and n_best must be whole numbers, not {beam!r} and {n_best!r}")
    if not 1 <= n_best <= beam <= MAX_BEAM:
        raise ValueError(f"1 <= n_best <= beam <= {MAX_BEAM} must hold, but n_best={n_best} and beam={beam}")
    if not 0 <= alpha <= MAX_ALPHA:
        raise ValueError(f"alpha must be from 0 to {MAX_ALPHA}, not {alpha}")
    if penalty not in get_args(Penalty):
        raise ValueError(f"penalty must be one of {', '.join(get_args(Penalty))}, not {penalty!r}")


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
