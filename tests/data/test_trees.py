"""Trees as text."""

import pytest

from annotated.data.grammar import sample
from annotated.data.trees import Tree


@pytest.mark.parametrize("wrong", ["", "Hund", "(N", "(N)", "(N Hund", "(N Hund) (N Katze)", "((N Hund))"])
def test_a_malformed_tree_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"tree|bracket"):
        Tree.parse(wrong)


def test_every_tree_of_the_grammar_comes_back() -> None:
    for pair in sample(300):
        for tree, words in ((pair.german_tree, pair.german_words), (pair.english_tree, pair.english_words)):
            assert Tree.parse(str(tree)) == tree
            assert tuple(tree.leaves()) == words
