"""The settings of a search, which need no PyTorch to be read."""

import warnings
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Literal, get_args

from annotated.transformer.config import setting

Penalty = Literal["gnmt", "power"]

EXTRA = 50  # tokens that a translation may have more than its source, section 6.1
MAX_BEAM = 256  # each step takes memory for beam^2 pairs of hypotheses


def check_count(name: str, value: object, most: int | None = None) -> None:
    """Raise ValueError unless `value` is a whole number from 1 to `most`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, not {value}")
    if most is not None and value > most:
        raise ValueError(f"{name} must be at most {most}, not {value}")


@dataclass(frozen=True)
class Limits:
    """How long sources and translations may be: time and memory grow with the square of their length.

    Raises ValueError for a limit below 1 and an unknown `too_long`.
    """

    max_source: int = setting(1024, "tokens of a source at most, the end symbol counted")
    max_length: int = setting(1024, "tokens of a translation at most, the end symbol counted")
    too_long: Literal["cut", "refuse"] = setting(
        "cut", "treatment of a source over --max-source: translate its beginning and warn, or stop"
    )

    def __post_init__(self) -> None:
        check_count("max_source", self.max_source)
        check_count("max_length", self.max_length)
        if self.too_long not in (choices := get_args(Limits.__annotations__["too_long"])):
            raise ValueError(f"too_long must be one of {', '.join(choices)}, not {self.too_long!r}")

    def within(self, positions: int | None) -> "Limits":
        """The limits of a model that has so many positions; None stands for any number."""
        if positions is None:
            return self
        most = {name: min(getattr(self, name), positions) for name in ("max_source", "max_length")}
        return replace(self, **most)

    def fit(self, tokens: list[int], around: int, name: str) -> list[int]:
        """Cut the tokens of a source that stands between `around` symbols; `name` is what messages call it.

        Raises ValueError for one that is too long, if that is to be refused.
        """
        if (length := len(tokens) + around) <= self.max_source:
            return tokens
        says = f"{name} has {length:,} tokens, but max_source is {self.max_source:,}"
        if self.too_long == "refuse":
            raise ValueError(says)
        warnings.warn(f"{says}: the rest of it is not translated", stacklevel=2)
        return tokens[: max(0, self.max_source - around)]

    def longest(self, source: int) -> int:
        """The length limit of the translation of a source of so many tokens."""
        return min(source + EXTRA, self.max_length)
