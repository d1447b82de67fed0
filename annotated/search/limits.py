"""What a search may be asked for: its settings, which sentences, how long, and in which batches.

Nothing here imports PyTorch, which takes seconds: `annotated --help` reads it.
"""

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

EXTRA = 50  # tokens that a translation may have more than its source, section 6.1
MAX_BEAM = 256  # each step takes memory for beam^2 pairs of hypotheses

Penalty = Literal["gnmt", "power"]


# ---- settings that are refused


def check_search(beam: int, n_best: int, alpha: float) -> None:
    """Raise ValueError for a beam outside 1 to 256, an n_best above it, or a negative alpha."""
    if not 1 <= n_best <= beam <= MAX_BEAM:
        raise ValueError(f"1 <= n_best <= beam <= {MAX_BEAM} must hold, but n_best={n_best} and beam={beam}")
    if not 0 <= alpha < math.inf:
        raise ValueError(f"alpha must not be negative and must be finite, not {alpha}")


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


# ---- sentences


@dataclass(frozen=True)
class Limits:
    """How long sources and translations may be: time and memory grow with the square of their length.

    Raises ValueError for a limit below 1 and an unknown `too_long`.
    """

    max_source: int = 1024  # tokens of a source at most, the end symbol counted
    max_length: int = 1024  # tokens of a translation at most, the end symbol counted
    too_long: Literal["cut", "refuse"] = "cut"  # treatment of a longer source: translate its start, or stop

    def __post_init__(self) -> None:
        if min(self.max_source, self.max_length) < 1:
            raise ValueError(f"max_source and max_length must be at least 1, not {self}")
        if self.too_long not in ("cut", "refuse"):
            raise ValueError(f"too_long must be cut or refuse, not {self.too_long!r}")

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


def several_sentences(sentences: Iterable[str]) -> list[str]:
    """List the sentences. Raises ValueError for one string, and for a table, which would give its columns."""
    if isinstance(sentences, str | bytes | Mapping) or getattr(sentences, "ndim", 1) != 1:
        kind = type(sentences).__name__
        raise ValueError(f"translate takes a list of sentences or one column of a table, not {kind}")
    listed = list(sentences)
    for i, sentence in enumerate(listed):
        if not isinstance(sentence, str):
            raise TypeError(f"sentences[{i}] must be a string, not {sentence!r:.40}")
    return listed


def by_length(encoded: dict[int, list[int]], max_tokens: int) -> Iterator[list[int]]:
    """Group sentences of like length, the longest first: rows times longest stays within `max_tokens`."""
    group: list[int] = []
    for i in sorted(encoded, key=lambda i: -len(encoded[i])):
        if group and len(encoded[group[0]]) * (len(group) + 1) > max_tokens:
            yield group
            group = []
        group.append(i)
    if group:
        yield group
