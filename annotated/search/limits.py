"""What a search may be asked for: its settings, which sentences, how long, and in which batches.

Nothing here imports PyTorch, which takes seconds: `annotated --help` reads it.
"""

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from numbers import Integral, Real
from typing import Any, Literal, get_args

from annotated.transformer.config import setting

EXTRA = 50  # tokens that a translation may have more than its source, section 6.1
MAX_BEAM = 256  # each step takes memory for beam^2 pairs of hypotheses

Penalty = Literal["gnmt", "power"]


# ---- settings that are refused


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


# ---- sentences


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


def one_sentence(sentence: object) -> str:
    """The sentence itself. Raises ValueError for anything but one string."""
    if not isinstance(sentence, str):
        raise ValueError(f"this takes one sentence, not {type(sentence).__name__}; translate() takes a list")
    return sentence


def several_sentences(sentences: object) -> list[str]:
    """A list of the sentences. Raises ValueError that names the first that is no string, or what is no list.

    A table is none: it would give its columns' names.
    """
    if isinstance(sentences, str):
        raise ValueError("translate takes a list of sentences; for one, call the translator itself")
    table = isinstance(sentences, Mapping) or getattr(sentences, "ndim", 1) != 1
    if table or isinstance(sentences, bytes) or not isinstance(sentences, Iterable):
        column = "; of a table, give one column" if table else ""
        raise ValueError(f"translate takes a list of sentences, not {type(sentences).__name__}{column}")
    listed = list(sentences)
    for i, sentence in enumerate(listed):
        if not isinstance(sentence, str):
            raise ValueError(f"sentences[{i}] must be a string, not {sentence!r:.40}")
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
