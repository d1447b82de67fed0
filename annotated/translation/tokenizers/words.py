"""Words as tokens, cut by spaCy's rules or at white space, and characters for spelling."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import regex

from annotated.optional import require
from annotated.translation.tokenizers.common import SPECIALS, UNK, Tokenizer, without_surrogates


def count_tokens(
    sentences: Iterable[str], split: Callable[[str], list[str]], min_freq: int, vocab_size: int | None
) -> list[str]:
    """Return the most frequent tokens, at most `vocab_size` with the four symbols, ties in code point order.

    Raises TypeError for a single string, whose characters would be taken for sentences, and ValueError where
    no token is left.
    """
    if isinstance(sentences, str):
        raise TypeError("sentences must be an iterable of strings, not one string")
    counts = Counter(token for sentence in sentences for token in split(sentence))
    frequent = [token for token, count in counts.items() if count >= min_freq and token not in SPECIALS]
    frequent.sort(key=lambda token: (-counts[token], token))
    kept = frequent if vocab_size is None else frequent[: max(0, vocab_size - len(SPECIALS))]
    if not kept:
        why = f"vocab_size is {vocab_size}, with four symbols, and a token must occur {min_freq} times"
        advice = "take a larger vocab, or other units, such as the tokenizer subwords"
        raise ValueError(f"none of {len(counts):,} tokens is left: {why}; {advice}")
    return kept


class WordTokenizer(Tokenizer):
    """Words as spaCy's rules cut them, or, with `language=None`, tokens with white space between them.

    Nothing is downloaded. Rare and new words become `<unk>`, and `decode` joins with spaces: unlike subwords,
    words do not give the text back.
    """

    kind: ClassVar[str] = "words"

    def __init__(self, words: Sequence[str], language: str | None) -> None:
        """Number the `words` from 4 on.

        Raises ValueError if spaCy does not know `language`, ImportError if spaCy is missing.
        """
        super().__init__([*SPECIALS, *words])
        self.settings = {"words": list(words), "language": language}
        self.language = language
        self._cut = word_splitter(language)

    @classmethod
    def train(
        cls, sentences: Iterable[str], language: str | None, min_freq: int = 2, vocab_size: int | None = None
    ) -> Self:
        """Learn the words that occur at least `min_freq` times, the most frequent first.

        `vocab_size` limits their number, the four symbols included.
        """
        return cls(count_tokens(sentences, cls([], language).split, min_freq, vocab_size), language)

    def split(self, text: str) -> list[str]:
        """Cut text into words; a lone surrogate becomes U+FFFD."""
        return self._cut(without_surrogates(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Join the words of `ids` with spaces; `<unk>` is kept, other special symbols are left out."""
        return " ".join(self.vocabulary[i] for i in ids if i >= UNK)


def word_splitter(language: str | None) -> Callable[[str], list[str]]:
    """Return a function that cuts text into words: spaCy's rules for "de", "en", ..., white space for None.

    Raises ImportError if spaCy is missing, ValueError if it does not know the language.
    """
    if language is None:
        return str.split
    spacy = require("spacy", extra="words")
    try:
        return partial(cut_words, spacy.blank(language).tokenizer)
    except (ImportError, AttributeError, TypeError) as error:
        why = str(error).partition("\n")[0]
        raise ValueError(f"spaCy has no rules for the language {language!r}: {why}") from None


def cut_words(cut: Callable[[str], Iterable[Any]], text: str) -> list[str]:
    return [token.text for token in cut(text) if not token.is_space]


class CharacterTokenizer(Tokenizer):
    """Characters as a reader sees them: grapheme clusters of Unicode (UAX #29), spaces among them.

    A letter with its combining marks is one token, and so is an emoji made of several code points. Characters
    outside the vocabulary become `<unk>`, which `decode` writes as U+FFFD; all others come back exactly.
    """

    kind: ClassVar[str] = "characters"

    def __init__(self, characters: Sequence[str]) -> None:
        """Number the `characters` in order, from 4 on."""
        super().__init__([*SPECIALS, *characters])
        self.settings = {"characters": list(characters)}

    @classmethod
    def train(cls, sentences: Iterable[str], vocab_size: int | None = None) -> Self:
        """Learn characters, the most frequent first; `vocab_size` limits them, the four symbols included."""
        return cls(count_tokens(sentences, cls([]).split, min_freq=1, vocab_size=vocab_size))

    def split(self, text: str) -> list[str]:
        """Cut text into grapheme clusters; a lone surrogate becomes U+FFFD."""
        return regex.findall(r"\X", without_surrogates(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`: U+FFFD for `<unk>`, nothing for other special symbols."""
        return "".join("\ufffd" if i == UNK else self.vocabulary[i] for i in ids if i >= UNK)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the characters of `ids` for the axis of a figure: a space is U+2423."""
        return ["\u2423" if piece == " " else piece for piece in super().pieces(ids)]
