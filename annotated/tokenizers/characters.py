"""Characters as tokens, for spelling: pronunciation, inflection, dates, chemical names."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Self

import regex

from annotated.files import write_json
from annotated.tokenizers.common import SPECIALS, UNK, Tokenizer, count_tokens, prefix_errors, read_vocabulary


class CharacterTokenizer(Tokenizer):
    """Characters as a reader sees them: grapheme clusters of Unicode (UAX #29), spaces among them.

    A letter with its combining marks is one token, and so is an emoji made of several code points. Characters
    outside the vocabulary become `<unk>`, which `decode` writes as U+FFFD; all others come back exactly.
    """

    kind: ClassVar[str] = "characters"

    def __init__(self, characters: Sequence[str]) -> None:
        """Number the `characters` in order, from 4 on."""
        super().__init__([*SPECIALS, *characters])
        if len(self._ids) + len(SPECIALS) < len(self.vocabulary):
            raise ValueError("the vocabulary has a character twice")
        self.forbidden_ids = tuple(i for i, token in enumerate(self.vocabulary) if re.search("[\r\n]", token))

    @classmethod
    def train(cls, sentences: Iterable[str], vocab_size: int | None = None, min_freq: int = 1) -> Self:
        """Learn characters, the most frequent first; `vocab_size` limits them, the four symbols included."""
        return cls(count_tokens(sentences, cls([]).split, min_freq, vocab_size))

    def split(self, text: str) -> list[str]:
        """Cut text into grapheme clusters; a lone surrogate becomes U+FFFD."""
        return regex.findall(r"\X", self._without_surrogates(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`: U+FFFD for `<unk>`, nothing for other special symbols."""
        return "".join("\ufffd" if i == UNK else self.vocabulary[i] for i in ids if i >= UNK)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the characters of `ids` for the axis of a figure: a space is U+2423."""
        return ["\u2423" if piece == " " else piece for piece in super().pieces(ids)]

    def save(self, folder: Path, name: str) -> None:
        write_json(
            folder / f"{name}.json", {"kind": self.kind, "characters": self.vocabulary[len(SPECIALS) :]}
        )

    @classmethod
    def load(cls, folder: Path, name: str) -> Self:
        path = folder / f"{name}.json"
        _, characters = read_vocabulary(path, "characters")
        with prefix_errors(path):
            return cls(characters)
