"""Trees as rows of tokens, and their labelled brackets against counts made by hand."""

import random
from collections import Counter

import pytest

from annotated.data.grammar import sample
from annotated.data.trees import (
    BracketScores,
    Tree,
    allowed_next,
    labelled_spans,
    linearise,
    read_tree,
    score_brackets,
)

# The telescope belongs to the seeing, or to the man.
SEEING = Tree.parse(
    "(S (NP (PRON I)) (VP (V saw) (NP (ART a) (N man)) (PP (P with) (NP (N luck)))) (PUNCT .))"
)
BEING = Tree.parse(
    "(S (NP (PRON I)) (VP (V saw) (NP (ART a) (N man) (PP (P with) (NP (N luck))))) (PUNCT .))"
)


@pytest.fixture(scope="module")
def trees():
    return [tree for pair in sample(300) for tree in (pair.german_tree, pair.english_tree)]


@pytest.mark.parametrize("wrong", ["", "Hund", "(N", "(N)", "(N Hund", "(N Hund) (N Katze)", "((N Hund))"])
def test_a_malformed_tree_is_refused(wrong):
    with pytest.raises(ValueError, match=r"tree|bracket"):
        Tree.parse(wrong)


def test_a_tree_becomes_brackets_and_parts_of_speech():
    expected = "(S (NP PRON )NP (VP V (NP ART N )NP (PP P (NP N )NP )PP )VP PUNCT )S"
    assert linearise(SEEING) == expected.split()


def test_every_tree_of_the_grammar_comes_back(trees):
    for tree in trees:
        assert read_tree(linearise(tree), tree.leaves()) == tree


@pytest.mark.parametrize(
    ("tokens", "words", "message"),
    [
        ("(S N )S", "a b", "1 leaves for 2 words"),
        ("(S N", "a", "not one whole tree"),
        ("(S N )S )S", "a", r"token 3, '\)S'"),
        ("(S (NP N )S )NP", "a", r"token 3, '\)S'"),
        ("(S (NP )NP N )S", "a", r"token 2, '\)NP'"),
        ("(S N )S (S N )S", "a b", "not one whole tree"),
        ("N (S N )S", "a b", "not one whole tree"),
        (") N", "a", r"token 0, '\)'"),
        ("", "", "not one whole tree"),
    ],
)
def test_what_is_no_tree_is_refused(tokens, words, message):
    with pytest.raises(ValueError, match=message):
        read_tree(tokens.split(), words.split())


def test_a_lone_word_is_a_tree_of_one_part_of_speech():
    assert read_tree(["N"], ["rain"]) == Tree("N", ("rain",))


def test_each_tree_of_the_grammar_can_be_written_under_the_constraint(trees):
    vocabulary = sorted({token for tree in trees for token in linearise(tree)})
    for tree in trees:
        row, words = linearise(tree), len(tree.leaves())
        assert all(token in allowed_next(row[:n], words, vocabulary) for n, token in enumerate(row))
        assert not allowed_next(row, words, vocabulary)


@pytest.mark.parametrize("words", [1, 2, 7])
def test_whatever_is_written_under_the_constraint_is_a_tree_of_the_sentence(words):
    draw, sentence = random.Random(words), ["word"] * words
    for _ in range(50):
        row = []
        while may := allowed_next(row, words, ["(NP", ")NP", "(VP", ")VP", ")S", "N", "V"]):
            row.append(draw.choice(may))
        assert read_tree(row, sentence).leaves() == sentence


def test_spans_by_hand():
    assert labelled_spans(SEEING) == Counter(
        {("S", 0, 6): 1, ("NP", 0, 1): 1, ("VP", 1, 6): 1, ("NP", 2, 4): 1, ("PP", 4, 6): 1, ("NP", 5, 6): 1}
    )


def test_one_misplaced_phrase_costs_one_bracket_of_six():
    scores = score_brackets([SEEING], [BEING])
    assert scores == BracketScores(matched=5, predicted=6, gold=6)
    assert scores.precision == scores.recall == scores.f1 == 5 / 6


def test_punctuation_may_hang_anywhere():
    high = Tree.parse("(S (NP (N Rain)) (PUNCT ,) (VP (V falls)) (PUNCT .))")
    low = Tree.parse("(S (NP (N Rain) (PUNCT ,)) (X (PUNCT .)) (VP (V falls)))")
    assert (
        labelled_spans(high)
        == labelled_spans(low)
        == Counter({("S", 0, 2): 1, ("NP", 0, 1): 1, ("VP", 1, 2): 1})
    )


def test_a_doubled_bracket_counts_twice_but_matches_once():
    twice, once = Tree.parse("(NP (NP (N rain)))"), Tree.parse("(NP (N rain))")
    assert score_brackets([twice], [once]) == BracketScores(1, 2, 1)
    assert score_brackets([twice], [twice]) == BracketScores(2, 2, 2)


def test_brackets_are_summed_before_anything_is_divided():
    small, wrong = Tree.parse("(NP (N rain))"), Tree.parse("(VP (N rain))")
    scores = score_brackets([SEEING, wrong], [SEEING, small])
    assert (scores.precision, scores.recall) == (6 / 7, 6 / 7)  # not the mean of 1 and 0


def test_no_tree_costs_recall_and_no_precision():
    scores = score_brackets([SEEING, None], [SEEING, BEING])
    assert (scores.precision, scores.recall) == (1, 1 / 2)
    assert scores.f1 == pytest.approx(2 * 1 * 0.5 / 1.5)
    assert score_brackets([None], [SEEING]).f1 == 0


def test_a_tree_finds_all_of_itself(trees):
    assert score_brackets(trees, trees).f1 == 1


def test_there_must_be_a_prediction_for_each_gold_tree():
    with pytest.raises(ValueError, match="1 for 2"):
        score_brackets([SEEING], [SEEING, BEING])
