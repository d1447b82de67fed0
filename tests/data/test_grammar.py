"""What comes with the package: the grammar's corpus with its alignments and trees, and aligned captions."""

import itertools

import pytest

from annotated.translation.data.aligned_captions import aligned_captions
from annotated.translation.data.grammar import GrammarPair, Tree, grammar, sample, word_by_word


@pytest.fixture(scope="module")
def corpus():
    return grammar("de-en")


@pytest.fixture(scope="module")
def pairs():
    return sample(2000)


def test_splits_share_no_sentence(corpus):
    for side in ("src", "tgt"):
        splits = [set(getattr(text, side)) for text in corpus.splits.values()]
        assert all(splits)
        assert all(one.isdisjoint(other) for one, other in itertools.combinations(splits, 2))


def test_the_other_direction_is_the_same_corpus_turned_round(corpus):
    back = grammar("en-de")
    assert (corpus.pair, back.pair) == ("de-en", "en-de")
    for name, text in corpus.splits.items():
        assert (text.src, text.tgt) == (back[name].tgt, back[name].src)


def test_pairs_are_those_of_the_splits_in_one_order(corpus, pairs):
    """The splits take sentences from brackets, without trees; a line has the same by both ways."""
    drawn = dict(enumerate(pairs, start=1))
    found = 0
    for text in corpus.splits.values():
        for line, sentences in zip(text.lines, text, strict=True):
            if line in drawn:
                assert sentences == (drawn[line].german, drawn[line].english)
                found += 1
    assert found == len(pairs)
    assert sample(10) == pairs[:10]


def test_a_pair_holds_together(pairs):
    for pair in pairs:
        for tree, words in ((pair.german_tree, pair.german_words), (pair.english_tree, pair.english_words)):
            assert Tree.parse(str(tree)) == tree
            assert tuple(tree.leaves()) == words
        assert "".join(pair.german_words) == pair.german.replace(" ", "")
        assert {left for left, _ in pair.alignment} <= set(range(len(pair.german_words)))
        assert {right for _, right in pair.alignment} <= set(range(len(pair.english_words)))


def test_word_by_word_keeps_the_german_order_and_its_punctuation():
    """*wird* stands at two words, *doch* at none, and the comma and the full stop, at none, stay."""
    german, english = ("Morgen", ",", "wird", "doch", "er", "."), ("he", "is", "going", "tomorrow")
    tree, links = Tree("S", ()), frozenset({(0, 3), (2, 2), (2, 1), (4, 0)})
    pair = GrammarPair("", "", german, english, links, tree, tree)
    assert word_by_word(pair) == "tomorrow, is going he."


def test_the_captions_links_name_words_of_both_sentences():
    pairs = aligned_captions()
    assert len(pairs) == 24
    for pair in pairs:
        assert pair.english.replace(" ", "") == "".join(pair.english_words)
        assert pair.german.replace(" ", "") == "".join(pair.german_words)
        assert pair.sure
        assert not pair.sure & pair.possible
        for s, t in pair.sure | pair.possible:
            assert 0 <= s < len(pair.english_words)
            assert 0 <= t < len(pair.german_words)
