"""Text to token ids and back: SentencePiece subwords, words and characters.

Every vocabulary begins with the same four symbols, `<s> </s> <blank> <unk>`, numbered 0 to 3. Text never
produces the first three, even where it spells them out.
"""

from collections.abc import Iterable
from pathlib import Path

from annotated.translation.files import read_json
from annotated.translation.tokenizers.common import END, PAD, SPECIALS, START, UNK, Tokenizer, normalize
from annotated.translation.tokenizers.subwords import MarianTokenizer, SentencePieceTokenizer
from annotated.translation.tokenizers.words import CharacterTokenizer, WordTokenizer, word_splitter

__all__ = [
    "END", "KINDS", "PAD", "SPECIALS", "START", "SUBWORDS", "UNK", "CharacterTokenizer", "MarianTokenizer",
    "SentencePieceTokenizer", "Tokenizer", "WordTokenizer", "load_tokenizer", "normalize", "train_tokenizer",
    "word_splitter",
]  # fmt: skip

# Kinds of tokenizers to learn. (The "kind" in a saved file is another: the class that reads the file.)
KINDS = ("subwords", "words", "chars", "spaces")
SUBWORDS = 8000  # number of subwords that is learned by default


def train_tokenizer(
    kind: str, sentences: Iterable[str], vocab_size: int | None = None, language: str | None = None
) -> Tokenizer:
    """Learn a tokenizer of a kind: subwords, words (of `language`), chars, or spaces for tokens already cut.

    Without `vocab_size`, 8,000 subwords, all words that occur twice, or all others are learned.
    Raises ValueError for another kind, and as each tokenizer's `train` does.
    """
    if kind == "subwords":
        return SentencePieceTokenizer.train(sentences, SUBWORDS if vocab_size is None else vocab_size)
    if kind == "chars":
        return CharacterTokenizer.train(sentences, vocab_size)
    if kind == "words":
        return WordTokenizer.train(sentences, language, vocab_size=vocab_size)
    if kind == "spaces":
        return WordTokenizer.train(sentences, None, min_freq=1, vocab_size=vocab_size)
    raise ValueError(f"the kind of tokenizer must be one of {', '.join(KINDS)}, not {kind!r}")


def load_tokenizer(folder: str | Path, name: str) -> Tokenizer:
    """Load a tokenizer saved under `name`. Raises FileNotFoundError, or ValueError if a file is damaged."""
    path = Path(folder) / f"{name}.json"
    classes = (SentencePieceTokenizer, WordTokenizer, CharacterTokenizer, MarianTokenizer)
    try:
        return {cls.kind: cls for cls in classes}[read_json(path)["kind"]].load(Path(folder), name)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: no tokenizer can be loaded: {error}") from None
