"""What a translator takes: which sentences, how long, and in which batches."""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from annotated.transformer.config import setting
from annotated.translation.hypotheses import EXTRA, check_count


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
    """A list of the sentences.

    Raises ValueError that names the first that is no string, or says what stands in the place of a list: one
    sentence, nothing, or a table, which would give its columns' names.
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
