"""The built-in corpus: German-English sentence pairs with their word alignments and both trees.

A grammar of 3,000 lines drew the pairs; `benchmarks/grammar.py` finds it in the repository's history. A line
of the file has four columns: the split (or "-", for none), the German tree, the English tree, and the word
alignment in the Pharaoh format (`0-0 1-2`). Each sentence has one translation, in either direction.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from annotated.translation.data.pairs import Corpus, ParallelText
from annotated.translation.data.text_files import read_lines

FILE = Path(__file__).with_name("grammar.tsv.gz")


@dataclass(frozen=True)
class Tree:
    """A constituent: its label and its children, which are constituents or, at the bottom, words."""

    label: str
    children: tuple["Tree | str", ...]

    def __str__(self) -> str:
        return f"({self.label} {' '.join(map(str, self.children))})"

    def inside(self) -> list["Tree"]:
        """Return the children that are constituents: none where this is a part of speech."""
        return [child for child in self.children if isinstance(child, Tree)]

    def leaves(self) -> list[str]:
        """Return the words, left to right."""
        words = ([child] if isinstance(child, str) else child.leaves() for child in self.children)
        return [*chain.from_iterable(words)]

    @classmethod
    def parse(cls, text: str) -> "Tree":
        """Read what `str(tree)` wrote. Raises ValueError where brackets, labels or words are missing."""
        whole: list[Tree | str] = []
        unclosed: list[tuple[str, list[Tree | str]]] = [("", whole)]  # labels and children so far
        for token in re.findall(r"\(\s*[^\s()]*|\)|[^\s()]+", text):
            label, children = unclosed[-1]
            if token.startswith("("):
                unclosed.append((token[1:].strip(), []))
            elif token != ")":
                children.append(token)
            elif not (label and children):
                raise ValueError(f"a bracket without its label, its child or its beginning: {text!r}")
            else:
                unclosed.pop()
                unclosed[-1][1].append(cls(label, tuple(children)))
        if len(unclosed) > 1 or len(whole) != 1 or not isinstance(whole[0], Tree):
            raise ValueError(f"not one whole tree, (LABEL child ...): {text!r}")
        return whole[0]


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


def sample(count: int) -> list[GrammarPair]:
    """Return the first `count` pairs in the order in which they were drawn, whatever their split.

    No pair comes twice. Raises ValueError unless there are so many, and as `grammar` does.
    """
    rows = read_rows()
    if not 0 <= count <= len(rows):
        raise ValueError(f"count must be from 0 to {len(rows)}, as many pairs as there are, not {count}")
    pairs = []
    for _, *bracketed, links in rows[:count]:
        alignment = frozenset((int(left), int(right)) for left, right in re.findall(r"(\d+)-(\d+)", links))
        german, english = map(Tree.parse, bracketed)
        left, right = tuple(german.leaves()), tuple(english.leaves())
        pairs.append(GrammarPair(surface(left), surface(right), left, right, alignment, german, english))
    return pairs


def grammar(pair: str) -> Corpus:
    """Read the corpus with its splits "train", "val" and "test"; `pair` is "de-en" or "en-de".

    No two splits share a sentence. Raises ValueError for another pair.
    """
    if pair not in ("de-en", "en-de"):
        raise ValueError(f"the grammar corpus has the pairs 'de-en' and 'en-de', not {pair!r}")
    rows = read_rows()
    splits = {}
    for name in ("train", "val", "test"):
        lines = [line for line, row in enumerate(rows, start=1) if row[0] == name]
        # Sentences are read off the bracketed trees: to build the trees would take much longer.
        german, english = (
            [surface(re.findall(r" ([^() ]+)\)", rows[line - 1][column])) for line in lines]
            for column in (1, 2)
        )
        src, tgt = (german, english) if pair == "de-en" else (english, german)
        splits[name] = ParallelText(src, tgt, lines, name)
    return Corpus("grammar", pair[:2], pair[3:], splits)


def read_rows() -> list[list[str]]:
    """Read the lines of the file, cut into their columns."""
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
    translation = []
    for i, word in enumerate(pair.german_words):
        aligned = sorted(right for left, right in pair.alignment if left == i)
        translation += [pair.english_words[j] for j in aligned] if word.isalnum() or aligned else [word]
    return surface(translation)
