"""Constituency trees: what the sentences of the built-in corpus come with."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain


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
