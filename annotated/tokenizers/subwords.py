"""SentencePiece subwords that give every text back exactly."""

import hashlib
import io
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from annotated.files import read_file, replacing, write_json
from annotated.tokenizers.common import (
    END,
    PAD,
    SPECIALS,
    START,
    UNK,
    printable,
    read_settings,
    replace_surrogates,
)

# SentencePiece writes a space as U+2581, so that character itself must be written in another way to come
# back. We spell it with an escape from the private use area, which is rare in text, and spell the escape
# with itself.
_SPACE_MARK = "\u2581"
_ESCAPE = "\ue000"
_ESCAPED = re.compile(f"{_ESCAPE}([em])")

# A training sentence that holds one of these is left out by SentencePiece (or would put a line break into a
# piece), so the characters are taken out instead; in text to be encoded they are spelled in bytes.
_RESERVED = dict.fromkeys(map(ord, "\0\t\r\u2581\u2585"))

_MOST_PIECES = 1_000_000  # SentencePiece's time grows with what it is asked for, however small the text

_TRAINING: dict[str, Any] = {
    "model_type": "bpe",
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "bos_id": START,
    "eos_id": END,
    "pad_id": PAD,
    "unk_id": UNK,
    "bos_piece": SPECIALS[START],
    "eos_piece": SPECIALS[END],
    "pad_piece": SPECIALS[PAD],
    "unk_piece": SPECIALS[UNK],
    "hard_vocab_limit": False,  # a small text gives a small vocabulary, not an error
    "max_sentence_length": 2**24,  # in bytes; longer sentences would be left out
    "num_threads": 1,
    "minloglevel": 2,
}


class SentencePieceTokenizer:
    """Byte-pair encoding (section 5.1) with byte fallback: `decode(encode(text)) == text`.

    No text is unknown, white space is kept as it is, and nothing is normalised. The one exception is a lone
    surrogate, which is no character: it becomes U+FFFD, and `replaced` counts how often that was done.
    """

    kind: ClassVar[str] = "sentencepiece"
    start, end, pad, unk = START, END, PAD, UNK
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = (END,)

    def __init__(self, model: bytes) -> None:
        """`model` is the content of a SentencePiece file.

        Raises ValueError if it is not one with our four symbols.
        """
        self.model = model
        self.replaced = 0
        self._processor = read_processor(model)
        pieces = [self._processor.id_to_piece(i) for i in range(len(self))]
        if tuple(pieces[:4]) != SPECIALS:
            raise ValueError(f"this SentencePiece model begins with {pieces[:4]}, not with {list(SPECIALS)}")
        self.forbidden_ids = tuple(i for i, piece in enumerate(pieces) if breaks_line(piece))

    @classmethod
    def train(
        cls, sentences: Iterable[str], vocab_size: int, character_coverage: float = 0.9999
    ) -> "SentencePieceTokenizer":
        """Learns `vocab_size` pieces from `sentences`; give it both languages for a shared vocabulary.

        The same sentences give the same pieces. Characters outside the most frequent `character_coverage`
        are spelled in bytes. A text too small for `vocab_size` gives as many pieces as it can, with a
        warning. Raises ValueError if there is no text, or if `vocab_size` has no room for the four
        symbols, 256 bytes and the text's characters.
        """
        least = len(SPECIALS) + 256
        if not least <= vocab_size <= _MOST_PIECES:
            raise ValueError(f"vocab_size must be from {least} to {_MOST_PIECES:,}, not {vocab_size}")
        lines = _trainable(sentences)
        tokenizer = cls(_train(lines, vocab_size, character_coverage))
        if len(tokenizer) < vocab_size:
            message = f"the text yields {len(tokenizer):,} pieces, fewer than the {vocab_size:,} asked for"
            warnings.warn(message, stacklevel=2)
        return tokenizer

    def __len__(self) -> int:
        return len(self._processor)

    def encode(self, text: str, dropout: float = 0.0, random: Random | None = None) -> list[int]:
        """Ids without `<s>` and `</s>`.

        With `dropout`, each merge is left out with that probability, so that the model sees many spellings
        of a word; `random` is where the chances come from, a stream that no seed repeats if None.
        """
        text, surrogates = replace_surrogates(text)
        self.replaced += surrogates
        if not dropout:
            return self._processor.encode(_escape(text))
        chance = random or Random()
        # SentencePiece can do this too, but not alike in two processes: its random stream is salted in each.
        spaced = _SPACE_MARK + _escape(text).replace(" ", _SPACE_MARK) if text else ""
        pieces = (
            piece
            for word in re.findall(f"{_SPACE_MARK}[^{_SPACE_MARK}]*", spaced)
            for piece in merge_pieces(list(word), self._scores, dropout, chance)
        )
        return [number for piece in pieces for number in self._numbers(piece)]

    @cached_property
    def _scores(self) -> dict[str, float]:
        """How early each piece that was learned is merged, the higher the earlier."""
        processor = self._processor
        special = (processor.is_control, processor.is_unknown, processor.is_byte)
        learned = (i for i in range(len(self)) if not any(test(i) for test in special))
        return {processor.id_to_piece(i): processor.get_score(i) for i in learned}

    def _numbers(self, piece: str) -> list[int]:
        """A piece's number; those of its bytes where it is none."""
        if piece in self._scores:
            return [self._processor.piece_to_id(piece)]
        return [self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in piece.encode()]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; special symbols give nothing, bytes that form no character give U+FFFD."""
        text = self._processor.decode([int(i) for i in ids if i > UNK])
        return _ESCAPED.sub(lambda match: _ESCAPE if match[1] == "e" else _SPACE_MARK, text)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces as SentencePiece writes them, U+2581 for a space; the unprintable is spelled out."""
        return [printable(self._processor.id_to_piece(int(i))) for i in ids]

    def scored_pieces(self) -> list[tuple[str, float | None]]:
        """Return each piece as SentencePiece holds it, with its score; None for symbols and bytes."""
        pieces = map(self._processor.id_to_piece, range(len(self)))
        return [(piece, self._scores.get(piece)) for piece in pieces]

    def save(self, folder: Path, name: str) -> None:
        """Writes `name.model`, and `name.json` with the kind and the model's checksum."""
        write_saved(Path(folder), name, self.model, {"kind": self.kind})

    @classmethod
    def load(cls, folder: Path, name: str) -> "SentencePieceTokenizer":
        """What `save` wrote.

        Raises FileNotFoundError, or ValueError if the two files do not belong together.
        """
        return cls(read_saved(Path(folder), name)[1])


def _train(lines: list[str], vocab_size: int, character_coverage: float) -> bytes:
    import sentencepiece

    model = io.BytesIO()
    sizes: dict[str, Any] = {"vocab_size": vocab_size, "character_coverage": character_coverage}
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=model, **sizes, **_TRAINING
        )
    except RuntimeError as error:
        need = re.search(r"required_chars\. -?\d+ vs (\d+)", str(error))
        if not need:
            raise ValueError(f"SentencePiece cannot learn from this text: {error}") from None
        least = f"the symbols, 256 bytes and the characters of this text need {need[1]}"
        raise ValueError(f"vocab_size is {vocab_size}, but {least}") from None
    return model.getvalue()


def _trainable(sentences: Iterable[str]) -> list[str]:
    lines = (line.translate(_RESERVED) for sentence in sentences for line in sentence.split("\n"))
    usable = [replace_surrogates(line)[0] for line in lines if line.strip()]
    if not usable:
        raise ValueError("a tokenizer cannot be trained on no text")
    return usable


def read_processor(model: bytes) -> Any:
    """SentencePiece's processor for the content of a model file. Raises ValueError if it is not one."""
    import sentencepiece

    if not model:
        raise ValueError("an empty file is no SentencePiece model")
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise ValueError(f"not a SentencePiece model: {error}") from None


def write_saved(folder: Path, name: str, model: bytes, settings: dict[str, Any]) -> None:
    """Write a model file's content to `name.model`, and to `name.json` the settings with its checksum."""
    with replacing(folder / f"{name}.model") as partial:
        partial.write_bytes(model)
    write_json(folder / f"{name}.json", {**settings, "sha256": hashlib.sha256(model).hexdigest()})


def read_saved(folder: Path, name: str) -> tuple[dict[str, Any], bytes]:
    """The settings in `name.json` and the content of `name.model`.

    Raises FileNotFoundError, or ValueError if the two files do not belong together.
    """
    path = folder / f"{name}.model"
    saved, model = read_settings(folder, name), read_file(path)
    if hashlib.sha256(model).hexdigest() != saved.get("sha256"):
        raise ValueError(f"{path} is not the file that was saved with {name}.json: its checksum differs")
    return saved, model


def _escape(text: str) -> str:
    return text.replace(_ESCAPE, _ESCAPE + "e").replace(_SPACE_MARK, _ESCAPE + "m")


def breaks_line(piece: str) -> bool:
    """Whether a piece stands for a line break or holds one."""
    return piece in ("<0x0A>", "<0x0D>") or "\n" in piece or "\r" in piece


def merge_pieces(
    symbols: list[str], scores: Mapping[str, float], dropout: float, random: Random
) -> list[str]:
    """Join neighbours into pieces until no two make one, some left out at random (Provilkov et al. 2020).

    At each step the pair goes first whose piece has the highest score, the leftmost of equals; each pair is
    left out of the choice with probability `dropout`, and where that leaves none, merging ends. Without
    dropout this is what SentencePiece computes.
    """
    symbols = list(symbols)
    while True:
        best, place = None, -1
        for i in range(len(symbols) - 1):
            score = scores.get(symbols[i] + symbols[i + 1])
            if score is None or (dropout and random.random() < dropout):
                continue
            if best is None or score > best:
                best, place = score, i
        if best is None:
            return symbols
        symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]
