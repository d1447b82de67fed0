"""Words as tokens, cut by spaCy's rules or at white space."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, ClassVar, Self

from annotated.files import read_json, write_json
from annotated.tokenizers.common import END, SPECIALS, START, UNK, Tokenizer, told_of


class WordTokenizer(Tokenizer):
    """Words as spaCy's rules cut them, or, with `language=None`, what white space separates.

    No model is downloaded. Rare and new words become `<unk>`, and `decode` joins with spaces: unlike
    subwords, words do not give the text back. No word holds white space, so none breaks the line.
    """

    kind: ClassVar[str] = "words"

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
        super().__init__([*SPECIALS, *words])
        self.words, self.language, self.lower = list(words), language, lower
        self.before, self.after = tuple(before), tuple(after)
        self._cut = word_splitter(language)

    @classmethod
    def train(
        cls, sentences: Iterable[str], language: str | None, lower: bool = False, min_freq: int = 2
    ) -> Self:
        """Learn the words that occur at least `min_freq` times, most frequent first, ties by the alphabet."""
        cutter = cls([], language, lower)
        counts = Counter(word for sentence in sentences for word in cutter.split(sentence))
        frequent = [word for word, count in counts.items() if count >= min_freq and word not in SPECIALS]
        return cls(sorted(frequent, key=lambda word: (-counts[word], word)), language, lower)

    def split(self, text: str) -> list[str]:
        """Cut text into words, in small letters if `lower`; a lone surrogate becomes U+FFFD."""
        words = self._cut(self._without_surrogates(text))
        return [word.lower() for word in words] if self.lower else words

    def decode(self, ids: Sequence[int]) -> str:
        """The words of `ids`, spaces between them; `<unk>` gives itself, other special symbols nothing."""
        return " ".join(self.vocabulary[i] for i in ids if i >= UNK)

    def save(self, folder: Path, name: str) -> None:
        names = ("kind", "language", "lower", "before", "after", "words")
        write_json(folder / f"{name}.json", {name: getattr(self, name) for name in names})

    @classmethod
    def load(cls, folder: Path, name: str) -> Self:
        path = folder / f"{name}.json"
        saved = {"before": [], "after": [END], **read_json(path)}
        lists: list[Any] = [saved.get("words"), saved["before"], saved["after"]]
        language, lower = saved.get("language"), saved.get("lower")
        if not (
            all(isinstance(each, list) for each in lists)
            and all(isinstance(word, str) for word in lists[0])
            and all(type(i) is int and i in (START, END) for i in lists[1] + lists[2])
            and isinstance(language, str | None)
            and isinstance(lower, bool)
        ):
            raise ValueError(f"{path} is no vocabulary: it needs words, language and lower")
        with told_of(path):
            return cls(lists[0], language, lower, *lists[1:])


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
