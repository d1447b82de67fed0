"""What all tokenizers share: the four special symbols, the protocol, and the settings saved as JSON."""

import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Protocol

from annotated.files import read_json

SPECIALS = ("<s>", "</s>", "<blank>", "<unk>")
START, END, PAD, UNK = range(4)

_SURROGATE = re.compile("[\ud800-\udfff]")


class Tokenizer(Protocol):
    """What the rest of the package asks of a tokenizer.

    `before` and `after` are the symbols between which the encoder reads a sentence; `forbidden_ids` are never
    to be generated, because they would break the line; `replaced` counts the lone surrogates that `encode`
    has met so far.
    """

    kind: ClassVar[str]
    start: int
    end: int
    pad: int
    unk: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    forbidden_ids: tuple[int, ...]
    replaced: int

    def __len__(self) -> int: ...
    def encode(self, text: str, dropout: float = 0.0, random: Random | None = None) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def pieces(self, ids: Sequence[int]) -> list[str]: ...
    def save(self, folder: Path, name: str) -> None: ...
    @classmethod
    def load(cls, folder: Path, name: str) -> "Tokenizer": ...


def replace_surrogates(text: str) -> tuple[str, int]:
    """`text` with U+FFFD for each lone surrogate, which has no UTF-8, and how many there were."""
    return _SURROGATE.subn("\ufffd", text)


def printable(piece: str) -> str:
    """`piece` for the axis of a figure: tabs, joiners and other unprintable characters are spelled out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in piece)


def read_settings(folder: Path, name: str) -> dict[str, Any]:
    """What `name.json` in `folder` says of a tokenizer.

    Raises FileNotFoundError, or ValueError if it is something else.
    """
    path = folder / f"{name}.json"
    settings = read_json(path)
    if not isinstance(settings.get("kind"), str):
        raise ValueError(f"{path} does not describe a tokenizer")
    return settings
