"""Text to token ids and back: SentencePiece subwords, words and characters.

Every vocabulary begins with the same four symbols, `<s> </s> <blank> <unk>`, numbered 0 to 3. Text never
produces the first three, even where it spells them out.
"""

from pathlib import Path

from annotated.files import read_json
from annotated.tokenizers.characters import CharacterTokenizer
from annotated.tokenizers.common import END, PAD, SPECIALS, START, UNK, Tokenizer
from annotated.tokenizers.subwords import MarianTokenizer, SentencePieceTokenizer
from annotated.tokenizers.text import normalize
from annotated.tokenizers.words import WordTokenizer, word_splitter

__all__ = [
    "END",
    "PAD",
    "SPECIALS",
    "START",
    "UNK",
    "CharacterTokenizer",
    "MarianTokenizer",
    "SentencePieceTokenizer",
    "Tokenizer",
    "WordTokenizer",
    "load_tokenizer",
    "normalize",
    "save_tokenizer",
    "word_splitter",
]


def save_tokenizer(tokenizer: Tokenizer, folder: str | Path, name: str) -> None:
    """Save a tokenizer under `name` in `folder`, which is created if missing."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    tokenizer.save(Path(folder), name)


def load_tokenizer(folder: str | Path, name: str) -> Tokenizer:
    """Load a tokenizer saved under `name`. Raises FileNotFoundError, or ValueError if a file is corrupt."""
    path = Path(folder) / f"{name}.json"
    kind = read_json(path).get("kind")
    classes = (SentencePieceTokenizer, WordTokenizer, CharacterTokenizer, MarianTokenizer)
    for cls in classes:
        if cls.kind == kind:
            return cls.load(Path(folder), name)
    known = ", ".join(cls.kind for cls in classes)
    raise ValueError(f"{path}: unknown kind of tokenizer {kind!r}; known: {known}")
