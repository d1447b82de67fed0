"""The base class of tokenizers, the symbols that begin every vocabulary, and the normalization of text."""

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from annotated.transformer.config import END, PAD, START, UNK
from annotated.translation.files import read_json, write_json

SPECIALS = ("<s>", "</s>", "<blank>", "<unk>")  # numbered START, END, PAD and UNK

# Control characters go, except those that `str.split` counts as white space. U+200B, U+2060 and U+FEFF are
# spaces without width, which it does not know.
INVISIBLE: dict[int, str | None] = {i: None for i in (*range(32), *range(127, 160)) if not chr(i).isspace()}
INVISIBLE |= dict.fromkeys((0x200B, 0x2060, 0xFEFF), " ")


def normalize(text: str) -> str:
    """Return text in Unicode's form NFC, with one plain space between words and none around them.

    White space of every kind (line ends, tabs, no-break and zero-width spaces, byte order marks) counts as a
    space, control characters are removed, and text without a visible character becomes "". A second call
    changes nothing.
    """
    text = " ".join(unicodedata.normalize("NFC", text.translate(INVISIBLE)).split())
    # Joiners and direction marks belong to words of some languages, but alone they say nothing.
    return text if any(unicodedata.category(c) not in ("Cf", "Zs") for c in text) else ""


def without_surrogates(text: str) -> str:
    """Replace lone surrogates, which have no UTF-8, with U+FFFD."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


class Tokenizer(ABC):
    """Text to token ids and back.

    The ids `never_generated` are those that no translation contains: `<s>`, padding, and what would break the
    line.
    """

    kind: ClassVar[str]
    settings: dict[str, Any]  # the constructor's arguments, as they are saved
    start, end, pad, unk = START, END, PAD, UNK

    def __init__(self, vocabulary: Sequence[str]) -> None:
        """Number the tokens in order; one may be spelled as a symbol, which it is not.

        Raises ValueError for a token twice, or other symbols than the four.
        """
        if tuple(vocabulary[:4]) != SPECIALS:
            raise ValueError(f"a vocabulary must begin with {SPECIALS}, not {tuple(vocabulary[:4])}")
        self.vocabulary = list(vocabulary)
        breaks = (i for i, piece in enumerate(self.vocabulary) if re.search("[\r\n]|^<0x0[AD]>$", piece))
        self.never_generated = (START, PAD, *breaks)
        # The symbols are left out: text that spells them out must not produce them.
        self._ids = {piece: i for i, piece in enumerate(self.vocabulary) if i > UNK}
        if len(self._ids) + len(SPECIALS) < len(self.vocabulary):
            raise ValueError("a vocabulary must not name a token twice")

    def __len__(self) -> int:
        return len(self.vocabulary)

    @abstractmethod
    def split(self, text: str) -> list[str]:
        """Cut text into tokens; a lone surrogate, which has no UTF-8, becomes U+FFFD."""

    def encode(self, text: str) -> list[int]:
        """Return ids without `<s>` and `</s>`; tokens outside the vocabulary become `<unk>`."""
        return [self._ids.get(piece, UNK) for piece in self.split(text)]

    def unknown(self, text: str) -> list[str]:
        """Return the tokens of a text that are outside the vocabulary."""
        return [piece for piece in self.split(text) if piece not in self._ids]

    def encode_batch(self, sentences: Sequence[str]) -> list[list[int]]:
        """Encode many sentences."""
        return [self.encode(sentence) for sentence in sentences]

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`; special symbols give nothing."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens of `ids` for the axis of a figure, unprintable characters escaped."""
        return [
            "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in self.vocabulary[i])
            for i in ids
        ]

    def save(self, folder: Path, name: str) -> None:
        """Write `name.json`; if there are further files, it holds their checksum."""
        write_json(folder / f"{name}.json", {"kind": self.kind, **self.settings})

    @classmethod
    def load(cls, folder: Path, name: str) -> Self:
        """Read the files of `save`. Raises FileNotFoundError, or ValueError if one is corrupt."""
        saved = read_json(folder / f"{name}.json")
        return cls(**{name: value for name, value in saved.items() if name != "kind"})
