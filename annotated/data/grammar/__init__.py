"""The built-in corpus: German-English sentence pairs without end, with their word alignments and both trees.

A synchronous grammar of our own. ``sampling``, ``clauses`` and ``phrases`` draw what a sentence says;
``german`` and ``english`` give it order and endings; ``nouns``, ``verbs`` and ``words`` are the tables that
a reader may extend. German and English are functions of each other: each sentence has one translation, in
either direction.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from annotated.data.grammar import english, german
from annotated.data.grammar.counting import count_sentences
from annotated.data.grammar.dice import Dice
from annotated.data.grammar.sampling import sentence
from annotated.data.grammar.tree import Tree, plain
from annotated.data.parallel import Corpus, ParallelText

__all__ = ["GrammarPair", "Tree", "count_sentences", "grammar", "sample", "word_by_word"]

# Of a hundred German sentences by their hash: which go to test, to validation, to train.
SHARES = {"test": range(5), "val": range(5, 10), "train": range(10, 100)}


@dataclass(frozen=True)
class GrammarPair:
    """A German sentence and its English translation.

    ``alignment`` holds pairs (place of a German word, place of an English word), from 0; the leaves of a
    tree are the words of its sentence, punctuation among them.
    """

    german: str
    english: str
    german_words: tuple[str, ...]
    english_words: tuple[str, ...]
    alignment: frozenset[tuple[int, int]]
    german_tree: Tree
    english_tree: Tree


def sample(count: int, seed: int = 0) -> list[GrammarPair]:
    """``count`` different pairs, the same for the same seed; ValueError for a negative count."""
    _check_size("count", count)
    found: dict[str, GrammarPair] = {}
    drawn = trees(seed)
    while len(found) < count:
        pair = _pair(*next(drawn))
        found.setdefault(pair.german, pair)
    return list(found.values())


def grammar(
    train: int = 20000, val: int = 500, test: int = 500, seed: int = 0, pair: str = "de-en"
) -> Corpus:
    """The corpus with splits "train", "val" and "test" of these sizes; ``pair`` is "de-en" or "en-de".

    A German sentence belongs to one split by its hash, whatever the seed and the sizes: so no two splits
    share a sentence, not even those of corpora drawn with different seeds. Raises ValueError for another
    pair, or a negative size.
    """
    if pair not in ("de-en", "en-de"):
        raise ValueError(
            f"the grammar corpus is German-English: pair must be 'de-en' or 'en-de', not {pair!r}"
        )
    sizes = {"train": train, "val": val, "test": test}
    for name, size in sizes.items():
        _check_size(name, size)
    splits = {name: _parallel(name, found, pair) for name, found in _fill(sizes, seed).items()}
    return Corpus("grammar", *pair.split("-"), splits)


def _check_size(name: str, size: int) -> None:
    if size < 0:
        raise ValueError(f"{name} must be 0 or more, not {size}")


def _fill(sizes: dict[str, int], seed: int) -> dict[str, dict[str, str]]:
    """For each split as many pairs of sentences as it asks for."""
    splits: dict[str, dict[str, str]] = {name: {} for name in sizes}
    drawn = trees(seed)
    while any(len(splits[name]) < size for name, size in sizes.items()):
        source, target = map(text, next(drawn))
        name = split_of(source)
        if len(splits[name]) < sizes[name]:
            splits[name][source] = target
    return splits


def split_of(sentence: str) -> str:
    """The split to which a German sentence belongs, always."""
    place = int.from_bytes(hashlib.sha256(sentence.encode()).digest()[:4], "big") % 100
    return next(name for name, share in SHARES.items() if place in share)


def _parallel(name: str, found: dict[str, str], pair: str) -> ParallelText:
    sides = list(found), list(found.values())
    src, tgt = sides if pair == "de-en" else sides[::-1]
    return ParallelText(src, tgt, list(range(1, len(src) + 1)), name)


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
    both = plain(german_tree), plain(english_tree)
    sides = [tuple(tree.leaves()) for tree in both]
    return GrammarPair(*map(surface, sides), *sides, alignment, *both)


def text(tree: Tree) -> str:
    """The sentence of a tree as a line of text."""
    line = surface(tree.leaves())
    return line[0].upper() + line[1:]


def surface(words: Sequence[str]) -> str:
    """Words as a line of text: no space before punctuation and 's."""
    return re.sub(r" ([,.?]|'s?)(?= |$)", r"\1", " ".join(words))


def word_by_word(pair: GrammarPair) -> str:
    """The translation that knows all words and no grammar, for comparison.

    Each German word, in German order, is replaced by the English words aligned to it, in English order; a
    German word aligned to nothing is left out, and an English word aligned to two German words comes twice.
    Punctuation stays where German has it.
    """
    found = []
    for place, word in enumerate(pair.german_words):
        others = sorted(right for left, right in pair.alignment if left == place)
        found += [pair.english_words[other] for other in others] if word.isalnum() or others else [word]
    return surface(tuple(found))
