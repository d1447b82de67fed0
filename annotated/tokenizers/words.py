"""Words as tokens, cut by spaCy's rules or at white space."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from pkgutil import iter_modules
from random import Random
from typing import Any, ClassVar

from annotated.files import write_json
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


class WordTokenizer:
    """Words as spaCy's rules cut them, or, with `language=None`, what white space separates.

    No model is downloaded. Rare and new words become `<unk>`, and `decode` joins with spaces: unlike
    subwords, words do not give the text back.
    """

    kind: ClassVar[str] = "words"
    start, end, pad, unk = START, END, PAD, UNK
    forbidden_ids: tuple[int, ...] = ()  # no word holds white space, so none breaks the line

    def __init__(
        self,
        words: Sequence[str],
        language: str | None,
        lower: bool = False,
        before: Sequence[int] = (),
        after: Sequence[int] = (END,),
    ) -> None:
        """`words` in the order of their ids, from 4 on.

        Between `before` and `after` the encoder reads a sentence: its end symbol follows, but for models
        from elsewhere that were trained otherwise. Raises ValueError if spaCy does not know `language`.
        """
        self.words, self.language, self.lower = list(words), language, lower
        self.before, self.after = tuple(before), tuple(after)
        self.replaced = 0
        self._ids = {word: i for i, word in enumerate(self.words, start=len(SPECIALS))}
        self._cut = word_splitter(language)

    @classmethod
    def train(
        cls, sentences: Iterable[str], language: str | None, lower: bool = False, min_freq: int = 2
    ) -> "WordTokenizer":
        """The words that occur at least `min_freq` times, the most frequent first, ties by the alphabet."""
        cutter = cls([], language, lower)
        counts = Counter(word for sentence in sentences for word in cutter.split(sentence))
        frequent = [word for word, count in counts.items() if count >= min_freq and word not in SPECIALS]
        return cls(sorted(frequent, key=lambda word: (-counts[word], word)), language, lower)

    def __len__(self) -> int:
        return len(SPECIALS) + len(self.words)

    def split(self, text: str) -> list[str]:
        """The words of `text`, before they become numbers.

        A lone surrogate becomes U+FFFD, counted in `replaced`.
        """
        text, surrogates = replace_surrogates(text)
        self.replaced += surrogates
        words = self._cut(text)
        return [word.lower() for word in words] if self.lower else words

    def encode(self, text: str, dropout: float = 0.0, random: Random | None = None) -> list[int]:
        """Ids without `<s>` and `</s>`.

        Raises ValueError for `dropout`: a word can be spelled in one way only.
        """
        if dropout:
            raise ValueError(f"dropout is {dropout}, but words cannot be cut in other ways: it must be 0")
        return [self._ids.get(word, UNK) for word in self.split(text)]

    def decode(self, ids: Sequence[int]) -> str:
        """The words of `ids`, spaces between them; `<unk>` gives itself, other special symbols nothing."""
        return " ".join(self._word(int(i)) for i in ids if i >= UNK)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The words of `ids`, special symbols too."""
        return [printable(self._word(int(i))) for i in ids]

    def save(self, folder: Path, name: str) -> None:
        """Writes `name.json`: the kind, the settings, and the words in the order of their ids."""
        names = ("kind", "language", "lower", "before", "after", "words")
        write_json(Path(folder) / f"{name}.json", {name: getattr(self, name) for name in names})

    @classmethod
    def load(cls, folder: Path, name: str) -> "WordTokenizer":
        """What `save` wrote. Raises FileNotFoundError, or ValueError if the file is not whole."""
        saved = read_settings(Path(folder), name)
        words: Any = saved.get("words")
        language, lower = saved.get("language"), saved.get("lower")
        around = saved.get("before", []), saved.get("after", [END])
        framed = all(
            isinstance(ids, list) and all(type(i) is int and i in (START, END) for i in ids) for ids in around
        )
        whole = isinstance(words, list) and all(isinstance(word, str) for word in words)
        if not (whole and framed and isinstance(language, str | None) and isinstance(lower, bool)):
            raise ValueError(
                f"{Path(folder) / f'{name}.json'} is no vocabulary: it needs words, language and lower"
            )
        return cls(words, language, lower, *around)

    def _word(self, index: int) -> str:
        return SPECIALS[index] if index < len(SPECIALS) else self.words[index - len(SPECIALS)]


def word_splitter(language: str | None) -> Callable[[str], list[str]]:
    """The function that cuts a text into words: spaCy's rules for "de", "en", ..., or white space for None.

    Raises ImportError where spaCy is missing, ValueError where it does not know the language.
    """
    if language is None:
        return str.split
    try:
        import spacy.lang
    except ImportError:
        raise ImportError(
            'words are cut by spaCy, which is missing: pip install ".[words]" in the clone'
        ) from None
    if language not in (module.name for module in iter_modules(spacy.lang.__path__) if module.ispkg):
        raise ValueError(f"spaCy knows no language {language!r}; try 'de' or 'en'")
    try:
        cut = spacy.blank(language).tokenizer
    except ImportError as error:
        needs = str(error).partition("\n")[0]
        raise ImportError(f"spaCy cuts {language!r} with a package that is missing: {needs}") from None
    return lambda text: [token.text for token in cut(text) if not token.is_space]
