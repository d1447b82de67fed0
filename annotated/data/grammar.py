"""The built-in corpus: German-English sentence pairs with their word alignments and both trees.

The grammar that drew the pairs is in the repository, not in the package: `tools/grammar`. A line of the
file has four columns: the split (or "-", for none), the German tree, the English tree, and the word alignment
in the Pharaoh format (`0-0 1-2`). Each sentence has one translation, in either direction.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from annotated.data.parallel import Corpus, ParallelText
from annotated.data.reading import read_lines
from annotated.data.trees import Tree

FILE = Path(__file__).with_name("grammar.tsv.gz")
_SHA256 = "ea1a4900152667df45a5f4ae728bdc2086710fa1656ebaf3b9a91b99dc8a89b2"


@dataclass(frozen=True)
class GrammarPair:
    """A German sentence and its English translation.

    `alignment` holds pairs (position of a German word, position of an English word), from 0; the leaves of a
    tree are the words of its sentence, punctuation among them.
    """

    german: str
    english: str
    german_words: tuple[str, ...]
    english_words: tuple[str, ...]
    alignment: frozenset[tuple[int, int]]
    german_tree: Tree
    english_tree: Tree

    @classmethod
    def of(cls, german: Tree, english: Tree, alignment: frozenset[tuple[int, int]]) -> "GrammarPair":
        """Make the pair of two trees: their leaves are its words."""
        left, right = tuple(german.leaves()), tuple(english.leaves())
        return cls(surface(left), surface(right), left, right, alignment, german, english)


def sample(count: int) -> list[GrammarPair]:
    """Return the first `count` pairs in the order in which they were drawn, whatever their split.

    No pair comes twice. Raises ValueError unless there are so many, and as `grammar` does.
    """
    rows = _rows()
    if not 0 <= count <= len(rows):
        raise ValueError(f"count must be from 0 to {len(rows)}, as many pairs as there are, not {count}")
    pairs = []
    for _, german, english, links in rows[:count]:
        alignment = frozenset((int(left), int(right)) for left, right in re.findall(r"(\d+)-(\d+)", links))
        pairs.append(GrammarPair.of(Tree.parse(german), Tree.parse(english), alignment))
    return pairs


def grammar(pair: str = "de-en") -> Corpus:
    """Read the corpus with its splits "train", "val" and "test"; `pair` is "de-en" or "en-de".

    No two splits share a sentence. Raises ValueError for another pair, or where the file that comes with
    the package is damaged, FileNotFoundError where it is missing.
    """
    if pair not in ("de-en", "en-de"):
        raise ValueError(f"the grammar corpus has the pairs 'de-en' and 'en-de', not {pair!r}")
    rows, splits = _rows(), {}
    for name in ("train", "val", "test"):
        lines = [line for line, row in enumerate(rows, start=1) if row[0] == name]
        # Sentences are read off the bracketed trees: to make the trees takes much longer.
        german, english = (
            [surface(re.findall(r" ([^() ]+)\)", rows[line - 1][column])) for line in lines]
            for column in (1, 2)
        )
        src, tgt = (german, english) if pair == "de-en" else (english, german)
        splits[name] = ParallelText(src, tgt, lines, name)
    return Corpus("grammar", pair[:2], pair[3:], splits)


def _rows() -> list[list[str]]:
    """Read the lines of the file, cut into their columns."""
    if not FILE.exists():
        raise FileNotFoundError(f"{FILE}, the built-in corpus, is missing: install the package anew")
    if hashlib.sha256(FILE.read_bytes()).hexdigest() != _SHA256:
        raise ValueError(f"{FILE}, the built-in corpus, is damaged: install the package anew")
    return [line.split("\t") for line in read_lines(FILE)]


def surface(words: Sequence[str]) -> str:
    """Write words as a line of text: no space before punctuation and 's."""
    return re.sub(r" ([,.?]|'s?)(?= |$)", r"\1", " ".join(words))


def word_by_word(pair: GrammarPair) -> str:
    """Translate with all words known and no grammar, for comparison.

    Each German word, in German order, is replaced by the English words aligned to it, in English order; a
    German word aligned to nothing is left out, and an English word aligned to two German words comes twice.
    Punctuation stays where German has it.
    """
    found = []
    for place, word in enumerate(pair.german_words):
        others = sorted(right for left, right in pair.alignment if left == place)
        found += [pair.english_words[other] for other in others] if word.isalnum() or others else [word]
    return surface(found)
