"""Words that remember what they translate, and trees of them."""

from annotated.data.grammar import Tree


class Word(str):
    """A word with its links: a German and an English word that share a link are aligned."""

    __slots__ = ("links",)

    def __new__(cls, text: str, *links: str) -> "Word":
        word = super().__new__(cls, text)
        word.links = frozenset(links)
        return word


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
