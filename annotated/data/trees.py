"""Constituency trees, as rows of tokens that a model can write, and their labelled score (section 6.3).

The rows are in the manner of Vinyals et al. (2015): the words left out, each bracket with its label at both
ends. The score is EVALB's, on which Table 4 rests.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

Spans = Counter[tuple[str, int, int]]  # how often a tree has a bracket (label, start, end)


@dataclass(frozen=True)
class Tree:
    """A constituent: its label and its children, which are constituents or, at the bottom, words."""

    label: str
    children: tuple["Tree | str", ...]

    def __str__(self) -> str:
        return f"({self.label} {' '.join(map(str, self.children))})"

    def inside(self) -> list["Tree"]:
        """The children, where they are constituents; nothing where this is a part of speech."""
        return [child for child in self.children if isinstance(child, Tree)]

    def leaves(self) -> list[str]:
        """The words, left to right."""
        words = ([child] if isinstance(child, str) else child.leaves() for child in self.children)
        return [*chain.from_iterable(words)]

    def subtrees(self) -> Iterator["Tree"]:
        """This constituent and every one inside it, parents before children."""
        yield self
        for child in self.inside():
            yield from child.subtrees()

    @classmethod
    def parse(cls, text: str) -> "Tree":
        """The tree that ``str(tree)`` wrote; ValueError where brackets, labels or words are missing."""
        unclosed: list[tuple[str, list[Tree | str]]] = [
            ("", [])
        ]  # (label, children); at the bottom, the whole
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
        whole = unclosed[0][1]
        if len(unclosed) > 1 or len(whole) != 1 or isinstance(whole[0], str):
            raise ValueError(f"not one whole tree, (LABEL child ...): {text!r}")
        return whole[0]


def linearise(tree: Tree) -> list[str]:
    """The tree left to right, for each word its part of speech.

    ``(NP (ART the) (N dog))`` becomes ``(NP ART N )NP``. Each word must be alone under its part of speech,
    as in every tree of the grammar corpus.
    """
    inside = [token for child in tree.inside() for token in linearise(child)]
    if not inside:
        return [tree.label]
    return [f"({tree.label}", *inside, f"){tree.label}"]


def is_bracket(token: str) -> bool:
    """Whether a token of a linearised tree opens or closes a constituent; else it stands for a word."""
    return token[0] in "()"


def read_tree(tokens: Sequence[str], words: Sequence[str]) -> Tree:
    """The tree that ``linearise`` wrote, with its words put back.

    Raises ValueError saying what is wrong where the brackets are no tree, or not one of these words.
    """
    leaves = sum(not is_bracket(token) for token in tokens)
    if leaves != len(words):
        raise ValueError(f"{leaves} leaves for {len(words)} words")
    rest = iter(words)
    unclosed: list[tuple[str, list[Tree]]] = [("", [])]  # (label, children); at the bottom, the whole trees
    for place, token in enumerate(tokens):
        label, children = unclosed[-1]
        if not is_bracket(token):
            children.append(Tree(token, (next(rest),)))
        elif token.startswith("("):
            unclosed.append((token[1:], []))
        elif token != f"){label}" or not children:
            raise ValueError(f"token {place}, {token!r}, cannot stand there: {' '.join(tokens)!r}")
        else:
            unclosed.pop()
            unclosed[-1][1].append(Tree(label, tuple(children)))
    whole = unclosed[0][1]
    if len(unclosed) > 1 or len(whole) != 1:
        raise ValueError(f"not one whole tree: {' '.join(tokens)!r}")
    return whole[0]


def allowed_next(said: Sequence[str], words: int, vocabulary: Sequence[str]) -> list[str]:
    """Which tokens of ``vocabulary`` may follow ``said``; nothing when it is a whole tree.

    Every way through them ends in an S that ``read_tree`` takes for a sentence of so many words.
    """
    unclosed, leaves, in_a_row = [], 0, 0
    for token in said:
        in_a_row = in_a_row + 1 if token.startswith("(") else 0
        if token.startswith("("):
            unclosed.append(token[1:])
        elif is_bracket(token):
            unclosed.pop()
        else:
            leaves += 1
    if not unclosed:
        return [] if said else ["(S"]
    may: list[str] = []
    if leaves < words:  # no endless (NP (NP (NP
        may += [t for t in vocabulary if t[0] != ")" and (t[0] != "(" or in_a_row < 5)]
    if not in_a_row and (len(unclosed) > 1 or leaves == words):
        may.append(f"){unclosed[-1]}")
    return may


def is_word(leaf: str) -> bool:
    """Whether a leaf of a tree is a word and no punctuation."""
    return any(character.isalnum() for character in leaf)


def labelled_spans(tree: Tree) -> Spans:
    """The brackets of a tree as (label, start, end), its words counted from 0.

    As in EVALB, parts of speech are no brackets, punctuation is no word, and a bracket that stands twice
    round the same words counts twice.
    """
    spans: Spans = Counter()

    def count(constituent: Tree, start: int) -> int:
        """Count the brackets of a constituent that begins at word `start`; returns where it ends."""
        if not constituent.inside():
            return start + sum(map(is_word, constituent.leaves()))
        end = start
        for child in constituent.inside():
            end = count(child, end)
        if end > start:  # else it holds punctuation alone
            spans[constituent.label, start, end] += 1
        return end

    count(tree, 0)
    return spans


@dataclass(frozen=True)
class BracketScores:
    """How many labelled brackets there are in the predicted trees, in the gold ones, and in both."""

    matched: int
    predicted: int
    gold: int

    @property
    def precision(self) -> float:
        """Share of the predicted brackets that are right; 0 if there are none."""
        return self.matched / max(self.predicted, 1)

    @property
    def recall(self) -> float:
        """Share of the gold brackets that were found; 0 if there are none."""
        return self.matched / max(self.gold, 1)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall, from 0 to 1."""
        return 2 * self.matched / max(self.predicted + self.gold, 1)


def score_brackets(predicted: Sequence[Tree | None], gold: Sequence[Tree]) -> BracketScores:
    """Labelled brackets, summed over all sentences before anything is divided.

    None stands for a prediction that is no tree of its sentence: it finds nothing, and recall falls. EVALB
    would leave the sentence out. Raises ValueError unless there is one prediction for each gold tree.
    """
    if len(predicted) != len(gold):
        raise ValueError(f"each gold tree needs one prediction: there are {len(predicted)} for {len(gold)}")
    found = [Counter() if tree is None else labelled_spans(tree) for tree in predicted]
    wanted = [labelled_spans(tree) for tree in gold]
    matched = sum((left & right).total() for left, right in zip(found, wanted, strict=True))
    return BracketScores(matched, *(sum(spans.total() for spans in side) for side in (found, wanted)))
