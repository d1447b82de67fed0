"""What all tokenizers share: the four special symbols, and how text becomes numbers and text again."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import ClassVar, Self

SPECIALS = ("<s>", "</s>", "<blank>", "<unk>")
START, END, PAD, UNK = range(4)


@contextmanager
def told_of(path: Path) -> Iterator[None]:
    """Let a ValueError begin with the file that it is over."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


class Tokenizer(ABC):
    """What the rest of the package asks of a tokenizer.

    `before` and `after` are the symbols between which the encoder reads a sentence; `forbidden_ids` are never
    to be generated, because they would break the line; `replaced` counts the lone surrogates that `encode`
    has met so far.
    """

    kind: ClassVar[str]
    start, end, pad, unk = START, END, PAD, UNK
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = (END,)
    forbidden_ids: tuple[int, ...] = ()
    replaced = 0

    def __init__(self, vocabulary: Sequence[str]) -> None:
        """Number the pieces in their order. Raises ValueError unless the four symbols come first."""
        if tuple(vocabulary[:4]) != SPECIALS:
            raise ValueError(
                f"this vocabulary begins with {list(vocabulary[:4])}, but it must begin with {list(SPECIALS)}"
            )
        self.vocabulary = list(vocabulary)
        # Without the symbols: text that spells them out must not produce them.
        self._ids = {piece: i for i, piece in enumerate(self.vocabulary) if i > UNK}

    def __len__(self) -> int:
        return len(self.vocabulary)

    @abstractmethod
    def split(self, text: str) -> list[str]:
        """Cut text into pieces; a lone surrogate, which has no UTF-8, becomes U+FFFD."""

    def encode(self, text: str, dropout: float = 0.0, random: Random | None = None) -> list[int]:
        """Return ids without `<s>` and `</s>`; pieces that the vocabulary lacks become `<unk>`.

        Raises ValueError for `dropout` where pieces are not merges that could be left out.
        """
        if dropout:
            raise ValueError(f"dropout is {dropout}, but {self.kind} pieces are cut in one way: it must be 0")
        return [self._ids.get(piece, UNK) for piece in self.split(text)]

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`; special symbols give nothing."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the pieces of `ids` for the axis of a figure: what is unprintable is spelled out."""
        return [
            "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in self.vocabulary[i])
            for i in ids
        ]

    @abstractmethod
    def save(self, folder: Path, name: str) -> None:
        """Write `name.json`, and files beside it that it names by their checksum."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, name: str) -> Self:
        """Read what `save` wrote. Raises FileNotFoundError, or ValueError if a file is corrupt."""

    def _without_surrogates(self, text: str) -> str:
        text, count = re.subn("[\ud800-\udfff]", "\ufffd", text)
        self.replaced += count
        return text
