"""Trees as pictures."""

import pytest

from annotated.data.trees import Tree
from annotated.plots.trees import RIGHT, WRONG, plot_tree

LOW = Tree.parse("(S (NP (PRON I)) (VP (V saw) (NP (N men) (PP (P with) (NP (N luck))))) (PUNCT .))")
HIGH = Tree.parse("(S (NP (PRON I)) (VP (V saw) (NP (N men)) (PP (P with) (NP (N luck)))) (PUNCT .))")


def boxes(ax) -> list[tuple[str, float]]:
    return [
        (text.get_text(), text.get_bbox_patch().get_linewidth()) for text in ax.texts if text.get_bbox_patch()
    ]


def test_words_stand_in_order_at_the_foot():
    ax = plot_tree(LOW)
    lowest = min(text.get_position()[1] for text in ax.texts)
    foot = [text for text in ax.texts if text.get_position()[1] == lowest]
    assert [text.get_text() for text in sorted(foot, key=lambda t: t.get_position()[0])] == LOW.leaves()
    assert [text.get_position()[0] for text in foot] == list(range(6))


def test_each_bracket_has_a_box_and_each_but_the_root_a_line_to_it():
    ax = plot_tree(LOW)
    assert sorted(label for label, _ in boxes(ax)) == ["NP", "NP", "NP", "PP", "S", "VP"]
    assert len(ax.lines) == 5 + 6  # brackets below the root, and words
    assert all(width == RIGHT["lw"] for _, width in boxes(ax))


def test_a_bracket_stands_over_the_middle_of_its_words():
    (text,) = [text for text in plot_tree(LOW).texts if text.get_text() == "PP"]
    assert text.get_position() == (3.5, 3)  # over the words 3 and 4, one step over the NP


def test_a_line_goes_down_over_the_child_alone():
    """Its way down stays in the columns of its own words: so no two lines cross."""
    ends = [(tuple(line.get_xdata()), tuple(line.get_ydata())) for line in plot_tree(LOW).lines]
    assert ((3.5, 3.5, 3, 3), (3, 2.55, 2.55, 1.2)) in ends  # from PP to its preposition
    assert all(xs[0] == xs[1] and xs[2] == xs[3] and ys[1] == ys[2] for xs, ys in ends)


def test_what_the_other_tree_lacks_is_marked():
    marked = [label for label, width in boxes(plot_tree(LOW, HIGH)) if width == WRONG["lw"]]
    assert marked == ["NP"]  # men with luck
    other_way = [text for text in plot_tree(HIGH, LOW).texts if text.get_bbox_patch()]
    (wrong,) = [text for text in other_way if text.get_bbox_patch().get_linewidth() == WRONG["lw"]]
    assert (wrong.get_text(), wrong.get_position()) == ("NP", (2, 2))  # men alone, as low as may be


def test_punctuation_in_the_middle_shifts_no_mark():
    tree = Tree.parse("(S (N rain) (PUNCT ,) (NP (N snow)) (VP (V falls)))")
    other = Tree.parse("(S (N rain) (PUNCT ,) (NP (N snow)) (NP (V falls)))")
    assert [label for label, width in boxes(plot_tree(tree, other)) if width == WRONG["lw"]] == ["VP"]


def test_trees_of_two_sentences_are_refused():
    with pytest.raises(ValueError, match="two sentences"):
        plot_tree(LOW, Tree.parse("(S (N rain))"))
