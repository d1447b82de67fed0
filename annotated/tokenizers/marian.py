"""The subwords of Marian's models: SentencePiece cuts the text, a vocabulary numbers the pieces."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import ClassVar

from annotated.tokenizers.common import END, PAD, SPECIALS, START, UNK, printable, replace_surrogates
from annotated.tokenizers.subwords import breaks_line, read_processor, read_saved, write_saved

_SPACE_MARK = "\u2581"


class MarianTokenizer:
    """One side of a Marian model: its SentencePiece file, and the vocabulary in the order of our ids.

    Text is normalised as SentencePiece was trained to, so unlike `SentencePieceTokenizer` this does not give
    every text back. Pieces that the vocabulary lacks become `<unk>`. A target language, where a model has
    several, is named before the text: `>>fra<< A dog runs.`
    """

    kind: ClassVar[str] = "marian"
    start, end, pad, unk = START, END, PAD, UNK
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = (END,)

    def __init__(self, model: bytes, vocabulary: Sequence[str]) -> None:
        """`model` is the content of a SentencePiece file; `vocabulary` begins with our four symbols.

        Raises ValueError if either is not so.
        """
        if tuple(vocabulary[:4]) != SPECIALS:
            raise ValueError(f"a vocabulary must begin with {list(SPECIALS)}, not {list(vocabulary[:4])}")
        self.model, self.vocabulary = model, list(vocabulary)
        self.replaced = 0
        self._processor = read_processor(model)
        # Without the symbols: text that spells them out must not produce them.
        self._ids = {piece: i for i, piece in enumerate(self.vocabulary) if i > UNK}
        if len(self._ids) + len(SPECIALS) != len(self.vocabulary):
            raise ValueError("a vocabulary must not name a piece twice")
        self.forbidden_ids = tuple(i for i, piece in enumerate(self.vocabulary) if breaks_line(piece))

    def __len__(self) -> int:
        return len(self.vocabulary)

    def encode(self, text: str, dropout: float = 0.0, random: Random | None = None) -> list[int]:
        """Ids without `<s>` and `</s>`.

        Raises ValueError for `dropout`: Marian's pieces are mostly not merges that could be left out.
        """
        if dropout:
            raise ValueError(f"dropout is {dropout}, but Marian's subwords are cut in one way: it must be 0")
        text, surrogates = replace_surrogates(text)
        self.replaced += surrogates
        language, text = split_language(text)
        pieces = [*language, *self._processor.encode(text, out_type=str)]
        return [self._ids.get(piece, UNK) for piece in pieces]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; special symbols give nothing."""
        pieces = [self.vocabulary[int(i)] for i in ids if i > UNK]
        return self._processor.decode_pieces(pieces).replace(_SPACE_MARK, " ").strip()

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces as SentencePiece writes them, U+2581 for a space; the unprintable is spelled out."""
        return [printable(self.vocabulary[int(i)]) for i in ids]

    def save(self, folder: Path, name: str) -> None:
        """Writes `name.model`, and `name.json` with the kind, the model's checksum and the vocabulary."""
        write_saved(Path(folder), name, self.model, {"kind": self.kind, "vocabulary": self.vocabulary})

    @classmethod
    def load(cls, folder: Path, name: str) -> "MarianTokenizer":
        """What `save` wrote.

        Raises FileNotFoundError, or ValueError if the two files do not belong together or are not whole.
        """
        saved, model = read_saved(Path(folder), name)
        vocabulary = saved.get("vocabulary")
        if not isinstance(vocabulary, list) or not all(isinstance(piece, str) for piece in vocabulary):
            raise ValueError(f"{Path(folder) / f'{name}.json'} is no vocabulary: it needs a list of pieces")
        return cls(model, vocabulary)


def split_language(text: str) -> tuple[list[str], str]:
    """The target language named before a text, `>>fra<<`, if there is one, and the text itself."""
    code, found, rest = text.partition("<<")
    return ([code + found], rest) if found and code.startswith(">>") else ([], text)
