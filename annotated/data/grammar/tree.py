"""Constituency trees, and words that remember what they translate."""

import re
from collections.abc import Iterator
from dataclasses import dataclass


class Word(str):
    """A word with its links: a German and an English word that share a link are aligned."""

    __slots__ = ("links",)

    def __new__(cls, text: str, *links: str) -> "Word":
        word = super().__new__(cls, text)
        word.links = frozenset(links)
        return word


@dataclass(frozen=True)
class Tree:
    """A constituent: its label and its children, which are constituents or, at the bottom, words."""

    label: str
    children: tuple["Tree | str", ...]

    def __str__(self) -> str:
        return f"({self.label} {' '.join(map(str, self.children))})"

    def leaves(self) -> list[str]:
        """The words, left to right."""
        found: list[str] = []
        for child in self.children:
            if isinstance(child, Tree):
                found += child.leaves()
            else:
                found.append(child)
        return found

    def subtrees(self) -> Iterator["Tree"]:
        """This constituent and every one inside it, parents before children."""
        yield self
        for child in self.children:
            if isinstance(child, Tree):
                yield from child.subtrees()

    @classmethod
    def parse(cls, text: str) -> "Tree":
        """The tree that ``str(tree)`` wrote; ValueError where brackets, labels or words are missing."""
        tokens = re.findall(r"[()]|[^\s()]+", text)
        tree, end = _parse_at(tokens, 0, text)
        if end != len(tokens):
            raise ValueError(f"one bracketed tree expected, but more follows it: {text!r}")
        return tree


def _parse_at(tokens: list[str], start: int, text: str) -> tuple[Tree, int]:
    """The constituent that opens at token ``start``, and the position after its closing bracket."""
    if len(tokens) < start + 2 or tokens[start] != "(" or tokens[start + 1] in "()":
        raise ValueError(f"a tree is written (LABEL child ...), not {text!r}")
    label, at, children = tokens[start + 1], start + 2, []
    while at < len(tokens) and tokens[at] != ")":
        if tokens[at] == "(":
            child, at = _parse_at(tokens, at, text)
        else:
            child, at = tokens[at], at + 1
        children.append(child)
    if at == len(tokens) or not children:
        raise ValueError(f"a bracket is not closed, or a constituent is empty: {text!r}")
    return Tree(label, tuple(children)), at + 1


def plain(tree: Tree, capitalise: bool = True) -> Tree:
    """The tree with plain strings for words, the first one capitalised as a sentence begins."""
    children = []
    for place, child in enumerate(tree.children):
        first = capitalise and place == 0
        if isinstance(child, Tree):
            children.append(plain(child, first))
        else:
            children.append(child[0].upper() + child[1:] if first else str(child))
    return Tree(tree.label, tuple(children))


def leaf(label: str, text: str, *links: str) -> Tree:
    """A word under its part of speech."""
    return Tree(label, (Word(text, *links),))


COMMA = leaf("PUNCT", ",")
