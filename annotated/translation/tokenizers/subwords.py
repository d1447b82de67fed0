"""SentencePiece subwords: our own, which give every text back exactly, and those of Marian's models."""

import hashlib
import io
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from annotated.translation.files import read_json, replacing, write_json
from annotated.translation.tokenizers.common import SPECIALS, UNK, Tokenizer, without_surrogates

# SentencePiece writes a space as U+2581, so that character itself must be written in another way to come
# back. We spell it with an escape from the private use area, which is rare in text, and spell the escape
# with itself.
SPACE_MARK = "\u2581"
ESCAPE = "\ue000"

# A training sentence that holds one of these is left out by SentencePiece (or would put a line break into a
# piece), so the characters are taken out instead; in text to be encoded they are spelled in bytes.
TRAINABLE: dict[int, str | None] = dict.fromkeys(map(ord, "\0\t\r\u2581\u2585"))
TRAINABLE |= dict.fromkeys(range(0xD800, 0xE000), "\ufffd")  # lone surrogates

MOST_PIECES = 1_000_000  # SentencePiece's time grows with what it is asked for, however small the text
MOST_LINES = 500_000  # lines, evenly spaced: more change few pieces, but take minutes and gigabytes

TRAINER_OPTIONS: dict[str, Any] = {
    "model_type": "bpe",
    "byte_fallback": True,
    "character_coverage": 0.9999,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "hard_vocab_limit": False,  # a small text gives a small vocabulary, not an error
    "max_sentence_length": 2**24,  # in bytes; longer sentences would be left out
    "num_threads": 1,
    "minloglevel": 2,
    **dict(zip(("bos_id", "eos_id", "pad_id", "unk_id"), range(4), strict=True)),
    **dict(zip(("bos_piece", "eos_piece", "pad_piece", "unk_piece"), SPECIALS, strict=True)),
}


class Subwords(Tokenizer):
    """A SentencePiece model, which cuts the text, and a vocabulary, which numbers the pieces."""

    def __init__(self, model: bytes, vocabulary: Sequence[str] | None = None) -> None:
        """Read the content of a SentencePiece file; without a `vocabulary`, its own numbers hold.

        Raises ValueError if `content` is no such file, or if `vocabulary` does not begin with our symbols.
        """
        import sentencepiece

        if not model:
            raise ValueError("an empty file is not a SentencePiece model")
        try:
            self._processor: Any = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise ValueError(f"not a SentencePiece model: {error}") from None
        self.settings = {} if vocabulary is None else {"vocabulary": list(vocabulary)}
        if vocabulary is None:
            vocabulary = [self._processor.id_to_piece(i) for i in range(len(self._processor))]
        super().__init__(vocabulary)
        self.model = model

    def save(self, folder: Path, name: str) -> None:
        with replacing(folder / f"{name}.model") as partial:
            partial.write_bytes(self.model)
        digest = hashlib.sha256(self.model).hexdigest()
        write_json(folder / f"{name}.json", {"kind": self.kind, **self.settings, "sha256": digest})

    @classmethod
    def load(cls, folder: Path, name: str) -> Self:
        path = folder / f"{name}.model"
        if path.exists() and not path.is_file():
            raise ValueError(f"{path} is not a file")
        saved = read_json(folder / f"{name}.json")
        model = path.read_bytes()
        if hashlib.sha256(model).hexdigest() != saved.get("sha256"):
            raise ValueError(f"{path} is not the file that was saved with {name}.json: its checksum differs")
        return cls(model, saved.get("vocabulary"))


class SentencePieceTokenizer(Subwords):
    """Byte-pair encoding (section 5.1) with byte fallback: `decode(encode(text)) == text`.

    No text is unknown, white space is kept as it is, and nothing is normalized. The one exception is a lone
    surrogate, which is no character: it becomes U+FFFD.
    """

    kind: ClassVar[str] = "sentencepiece"

    @classmethod
    def train(cls, sentences: Iterable[str], vocab_size: int) -> Self:
        """Learn `vocab_size` pieces from `sentences`; give it both languages for a shared vocabulary.

        Of more than `MOST_LINES` lines, an even sample is used. The rarest characters are spelled in bytes. A
        text too small for `vocab_size` gives as many pieces as it can, with a warning. Raises ValueError if
        there is no text, or if `vocab_size` has no room for the symbols, 256 bytes and the text's characters.
        """
        import sentencepiece

        from annotated.translation.messages import warn  # imports PyTorch

        least = len(SPECIALS) + 256
        if not least <= vocab_size <= MOST_PIECES:
            bounds = f"from {least} to {MOST_PIECES:,}"
            raise ValueError(f"vocab_size, in training vocab, must be {bounds}, not {vocab_size}")
        if isinstance(sentences, str):
            raise TypeError("sentences must be an iterable of strings, not one string")
        lines = (line.translate(TRAINABLE) for sentence in sentences for line in sentence.split("\n"))
        usable = [line for line in lines if line.strip()]
        usable = usable[:: math.ceil(len(usable) / MOST_LINES) or 1]
        if not usable:
            raise ValueError("a tokenizer cannot be trained on no text")
        model = io.BytesIO()
        options = {**TRAINER_OPTIONS, "vocab_size": vocab_size}
        options |= {"sentence_iterator": iter(usable), "model_writer": model}
        try:
            sentencepiece.SentencePieceTrainer.train(**options)
        except RuntimeError as error:
            if few := re.search(r"required_chars\. \d+ vs (\d+)", str(error)):
                message = f"{vocab_size} subwords do not hold the text's characters"
                raise ValueError(f"{message}; give --vocab {few[1]} at least, in Python vocab") from None
            raise ValueError(f"SentencePiece cannot learn from this text: {error}") from None
        tokenizer = cls(model.getvalue())
        if len(tokenizer) < vocab_size:
            warn(f"the text yields {len(tokenizer):,} pieces, fewer than the {vocab_size:,} asked for")
        return tokenizer

    def split(self, text: str) -> list[str]:
        """Cut text into pieces as SentencePiece writes them, U+2581 for a space."""
        return self._processor.encode(self.escape(text), out_type=str)

    def encode_batch(self, sentences: Sequence[str]) -> list[list[int]]:
        """Encode many sentences on all cores."""
        return self._processor.encode([self.escape(sentence) for sentence in sentences], out_type=int)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`; special symbols give nothing, torn characters give U+FFFD."""
        text = self._processor.decode([int(i) for i in ids if i > UNK])
        return re.sub(f"{ESCAPE}([em])", lambda match: ESCAPE if match[1] == "e" else SPACE_MARK, text)

    def scored_pieces(self) -> list[tuple[str, float | None]]:
        """Return each piece as SentencePiece holds it, with its score: the higher, the earlier it is merged.

        Symbols and bytes have None.
        """
        p = self._processor
        special = [p.is_control(i) or p.is_unknown(i) or p.is_byte(i) for i in range(len(self))]
        return [(piece, None if special[i] else p.get_score(i)) for i, piece in enumerate(self.vocabulary)]

    def escape(self, text: str) -> str:
        text = without_surrogates(text)
        return text.replace(ESCAPE, ESCAPE + "e").replace(SPACE_MARK, ESCAPE + "m")


class MarianTokenizer(Subwords):
    """One side of a Marian model: its SentencePiece file, and the vocabulary in the order of our ids.

    Text is normalized as SentencePiece was trained to, so unlike `SentencePieceTokenizer` this does not give
    every text back. Pieces that the vocabulary lacks become `<unk>`. A target language, where a model has
    several, is named before the text: `>>fra<< A dog runs.`
    """

    kind: ClassVar[str] = "marian"

    def split(self, text: str) -> list[str]:
        """Cut text into pieces; the first is the target language, where one is named."""
        text = without_surrogates(text)
        code, bracket, rest = text.partition("<<")
        if bracket and code.startswith(">>"):
            return [code + bracket, *self._processor.encode(rest, out_type=str)]
        return self._processor.encode(text, out_type=str)

    def decode(self, ids: Sequence[int]) -> str:
        pieces = [self.vocabulary[i] for i in ids if i > UNK]
        return self._processor.decode_pieces(pieces).replace(SPACE_MARK, " ").strip()
