"""Text to numbers and back: SentencePiece subwords that give every text back exactly, and words.

Every vocabulary begins with the same four symbols, `<s> </s> <blank> <unk>`, numbered 0 to 3. Text never
produces the first three, even where it spells them out. Tokenizers are saved as JSON (and SentencePiece's
own file), never as pickles.
"""

from pathlib import Path

from annotated.tokenizers.common import END, PAD, SPECIALS, START, UNK, Tokenizer, read_settings
from annotated.tokenizers.marian import MarianTokenizer
from annotated.tokenizers.subwords import SentencePieceTokenizer
from annotated.tokenizers.words import WordTokenizer, word_splitter

__all__ = [
    "END",
    "PAD",
    "SPECIALS",
    "START",
    "UNK",
    "MarianTokenizer",
    "SentencePieceTokenizer",
    "Tokenizer",
    "WordTokenizer",
    "load_tokenizer",
    "save_tokenizer",
    "word_splitter",
]


def save_tokenizer(tokenizer: Tokenizer, folder: str | Path, name: str) -> None:
    """Saves any tokenizer under `name` in `folder`, which is made if need be."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    tokenizer.save(Path(folder), name)


def load_tokenizer(folder: str | Path, name: str) -> Tokenizer:
    """Whichever tokenizer was saved under `name`.

    Raises FileNotFoundError, or ValueError if a file is corrupt.
    """
    classes = {cls.kind: cls for cls in (SentencePieceTokenizer, WordTokenizer, MarianTokenizer)}
    kind = read_settings(Path(folder), name)["kind"]
    if kind not in classes:
        raise ValueError(
            f"{Path(folder) / name}.json: unknown kind of tokenizer {kind!r}; known: {', '.join(classes)}"
        )
    return classes[kind].load(Path(folder), name)
