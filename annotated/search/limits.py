"""The settings of a search: the width of the beam, and how long sentences may be.

Nothing here imports PyTorch, which takes seconds: `annotated --help` reads it.
"""

import math
import warnings
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Literal

EXTRA = 50  # tokens that a translation may have more than its source, section 6.1
MAX_BEAM = 256  # each step takes memory for beam^2 pairs of hypotheses

Penalty = Literal["gnmt", "power"]


def check_search(beam: int, n_best: int, alpha: float) -> None:
    """Raise ValueError for a beam outside 1 to 256, an n_best above it, or a negative alpha."""
    if not 1 <= n_best <= beam <= MAX_BEAM:
        raise ValueError(f"1 <= n_best <= beam <= {MAX_BEAM} must hold, but n_best={n_best} and beam={beam}")
    if not 0 <= alpha < math.inf:
        raise ValueError(f"alpha must not be negative and must be finite, not {alpha}")


@dataclass(frozen=True)
class Limits:
    """The greatest lengths of sources and translations: time and memory grow with their square.

    Raises ValueError for a limit below 1 and an unknown `too_long`.
    """

    max_source: int = 1024  # tokens of a source at most, the end symbol counted
    max_length: int = 1024  # tokens of a translation at most, the end symbol counted
    too_long: Literal["cut", "refuse"] = "cut"  # treatment of a longer source: translate its start, or stop

    def __post_init__(self) -> None:
        limits = (self.max_source, self.max_length)
        if not all(isinstance(limit, Integral) for limit in limits) or min(limits) < 1:
            raise ValueError(f"max_source and max_length must be at least 1, and whole, not {self}")
        if self.too_long not in ("cut", "refuse"):
            raise ValueError(f"too_long must be cut or refuse, not {self.too_long!r}")

    def within(self, positions: int | None) -> "Limits":
        """Return the limits of a model with this number of positions; None is any number."""
        if positions is None:
            return self
        most = {name: min(getattr(self, name), positions) for name in ("max_source", "max_length")}
        return replace(self, **most)

    def fit(self, tokens: list[int], around: int, name: str) -> list[int]:
        """Cut a source that stands between `around` symbols, with a warning that calls it `name`.

        Raises ValueError for one that is too long, if that is to be refused.
        """
        if (length := len(tokens) + around) <= self.max_source:
            return tokens
        message = f"{name} has {length:,} tokens, but max_source is {self.max_source:,}"
        if self.too_long == "refuse":
            raise ValueError(message)
        warnings.warn(f"{message}: the rest of it is not translated", stacklevel=2)
        return tokens[: max(0, self.max_source - around)]

    def longest(self, source: int) -> int:
        """Return the length limit of the translation of a source of this many tokens."""
        return min(source + EXTRA, self.max_length)
