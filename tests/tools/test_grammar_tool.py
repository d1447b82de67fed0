"""The grammar of the built-in corpus: sentences written by hand, and properties of what it draws.

The first lines are short ways to say what a sentence is made of.
"""

import itertools
import re

import pytest

from annotated.data import grammar as shipped
from annotated.data import read_lines
from annotated.data.grammar import Tree
from tools.grammar import corpus_lines, sample, text, trees


@pytest.fixture(scope="module")
def pairs():
    return sample(2000, seed=3)


def clashes(drawn):
    """The sentences with two translations, from German and from English."""
    there, back, bad = {}, {}, []
    for german_tree, english_tree in drawn:
        left, right = text(german_tree), text(english_tree)
        if there.setdefault(left, right) != right or back.setdefault(right, left) != left:
            bad.append((left, there[left], right, back[right]))
    return bad


def test_no_sentence_has_two_translations():
    assert not clashes(itertools.islice(trees(seed=101), 10000))


def test_the_package_ships_what_is_drawn():
    assert list(corpus_lines()) == read_lines(shipped.FILE)


def test_alignments_cover_what_has_meaning(pairs):
    for pair in pairs:
        left, right = {one for one, _ in pair.alignment}, {other for _, other in pair.alignment}
        assert left <= set(range(len(pair.german_words)))
        assert right <= set(range(len(pair.english_words)))
        for aligned, tree in ((left, pair.german_tree), (right, pair.english_tree)):
            kinds = [node.label for node in tree.subtrees() if not isinstance(node.children[0], Tree)]
            loose = [kind for place, kind in enumerate(kinds) if place not in aligned]
            assert not {"N", "V", "ADJ", "ADV", "PRON", "NUM", "AUX", "NEG"}.intersection(loose), pair


@pytest.mark.parametrize(
    "pattern",
    [
        r"\(AUX \w+\).* \(V ge\w+t\)\) \(PUNCT \.\)",  # the participle at the end
        r"\(SBAR \(C (weil|dass|ob|wenn|während|um)",
        r"\(SBAR \(PUNCT ,\) \(S \(NP \(PRON (der|die|das|den)\)",  # a relative clause
        r"\(PRT ",  # a separable verb in two parts
        r"\(\w+ (kann|konnte|muss|musste|will|wollte|darf|durfte)(st)?\)",
        r"\(NEG nicht\)",
        r"\(ART keine?[nmrs]?\)",
        r"\(N Küchentisch\)",  # a compound
        r"\(P (wegen|trotz)\)",  # with the genitive
        r"^\(S \(NP \(PRON (wer|was|wen)\)",
        r"\(WH (wo|warum|wann)\)",
        r"\(NUM \d+\.\)",  # a date
        r"\(NUM (drei|vier|fünf)\) ",
    ],
)
def test_each_construction_comes_up(pattern, pairs):
    found = [pair for pair in pairs if re.search(pattern, str(pair.german_tree), re.IGNORECASE)]
    assert len(found) >= 3


def test_verb_second_and_verbs_at_the_end(pairs):
    for pair in pairs:
        main = pair.german_tree.children
        labels = [child.label for child in main]
        place = min(labels.index(label) for label in ("AUX", "V") if label in labels)
        asks = pair.german.endswith("?")
        if labels[0] == "SBAR":
            assert labels[:2] == ["SBAR", "PUNCT"], pair.german
            assert place == 2, pair.german
        else:
            assert place == 1 or (asks and place == 0), pair.german
        if labels[place] == "AUX":
            phrase = main[labels.index("VP")]
            assert phrase.children[-1].label == "V", pair.german
            assert set(labels[labels.index("VP") + 1 :]) <= {"SBAR", "PUNCT", "VP"}, pair.german


def test_the_verb_is_last_in_subordinate_clauses(pairs):
    count = 0
    for pair in pairs:
        for node in pair.german_tree.subtrees():
            if node.label == "SBAR" and node.children[-1].label == "S":
                kinds = [child.label for child in node.children[-1].children]
                while kinds[-1] in ("SBAR", "PUNCT"):
                    kinds.pop()
                assert kinds[-1] in ("AUX", "V"), pair.german
                count += 1
    assert count > 300
