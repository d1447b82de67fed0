"""A synchronous grammar of German and English, which drew the built-in corpus of the package.

``sampling``, ``clauses`` and ``phrases`` draw what a sentence says; ``german`` and ``english`` give it order
and endings; ``nouns``, ``verbs`` and ``words`` are the tables that a reader may extend. German and English
are functions of each other: each sentence has one translation, in either direction.

``python -m tools.grammar`` draws the corpus anew.
"""

import hashlib
from collections.abc import Iterator
from itertools import islice

from annotated.data.grammar import GrammarPair, Tree, surface
from tools.grammar import english, german
from tools.grammar.dice import Dice
from tools.grammar.sampling import sentence
from tools.grammar.tree import plain

SIZES = {"train": 20000, "val": 500, "test": 500}
# Of a hundred German sentences by their hash: which go to test, to validation, to train.
SHARES = {"test": range(5), "val": range(5, 10), "train": range(10, 100)}


def corpus_lines() -> Iterator[str]:
    """Draw the lines of the corpus: split, German tree, English tree, alignment, with tabs between.

    They end where every split is full. A sentence drawn after its own split was full is in none, and "-"
    stands for it.
    """
    room = dict(SIZES)
    drawn = pairs(seed=0)
    while any(room.values()):
        pair = next(drawn)
        split = split_of(pair.german)
        links = " ".join(f"{left}-{right}" for left, right in sorted(pair.alignment))
        yield f"{split if room[split] else '-'}\t{pair.german_tree}\t{pair.english_tree}\t{links}"
        room[split] -= room[split] > 0


def split_of(sentence: str) -> str:
    """Name the split to which a German sentence belongs, by its hash: always the same."""
    place = int.from_bytes(hashlib.sha256(sentence.encode()).digest()[:4], "big") % 100
    return next(name for name, share in SHARES.items() if place in share)


def sample(count: int, seed: int = 0) -> list[GrammarPair]:
    """Draw ``count`` different pairs, the same for the same seed."""
    return list(islice(pairs(seed), count))


def pairs(seed: int) -> Iterator[GrammarPair]:
    """Draw different pairs without end."""
    found: set[str] = set()
    for drawn in trees(seed):
        pair = _pair(*drawn)
        if pair.german not in found:
            found.add(pair.german)
            yield pair


def trees(seed: int) -> Iterator[tuple[Tree, Tree]]:
    """The German and the English tree of sentences without end, their words linked; one may come again."""
    dice = Dice(seed)
    while True:
        drawn = sentence(dice)
        tree = german.sentence_tree(drawn)
        if not _repeats_a_noun(tree):
            yield tree, english.sentence_tree(drawn)


def _repeats_a_noun(tree: Tree) -> bool:
    """Whether a sentence names the same thing twice: nobody would say it so."""
    nouns = [node.children[0] for node in tree.subtrees() if node.label == "N"]
    return len(set(nouns)) < len(nouns)


def _pair(german_tree: Tree, english_tree: Tree) -> GrammarPair:
    """The pair that two trees with linked words make."""
    places: dict[str, list[int]] = {}
    for place, word in enumerate(english_tree.leaves()):
        for link in word.links:
            places.setdefault(link, []).append(place)
    alignment = frozenset(
        (place, other)
        for place, word in enumerate(german_tree.leaves())
        for link in word.links
        for other in places.get(link, ())
    )
    return GrammarPair.of(plain(german_tree), plain(english_tree), alignment)


def text(tree: Tree) -> str:
    """Write the sentence of a tree as a line of text."""
    return surface(plain(tree).leaves())
