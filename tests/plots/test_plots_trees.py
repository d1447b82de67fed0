"""Trees as pictures."""

import pytest

from annotated.data.trees import Tree
from annotated.plots.trees import RIGHT, WRONG, Candidate, plot_beam, plot_tree

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


pytest.importorskip("matplotlib")

WORDS = ["<s>", "</s>", "<blank>", "<unk>", "a", "dog", "cat"]
# Beam 2, end symbol 1: "a dog" wins over "cat".
STEPS = [
    [Candidate((4,), -0.4, "kept"), Candidate((6,), -1.3, "kept"), Candidate((5,), -3.0, "dropped")],
    [Candidate((4, 5), -0.8, "kept"), Candidate((6, 1), -1.6, "ended"), Candidate((4, 6), -2.0, "kept")],
    [Candidate((4, 5, 1), -0.9, "ended"), Candidate((4, 6, 1), -2.5, "ended")],
]


def pieces(ids) -> list[str]:
    return [WORDS[i] for i in ids]


def test_every_candidate_has_its_box() -> None:
    ax = plot_beam(STEPS, [4, 5], pieces)
    boxes = {text.get_position(): text.get_text() for text in ax.texts}
    assert boxes[0, 0] == "start"
    for step, candidates in enumerate(STEPS, start=1):
        for rank, candidate in enumerate(candidates):
            word = WORDS[candidate.tokens[-1]]
            assert boxes[step, rank] == f"{word}\n−{-candidate.log_prob:.2f}"
    assert len(boxes) == 1 + sum(map(len, STEPS))


def test_every_line_leads_from_what_was_continued() -> None:
    ax = plot_beam(STEPS, [4, 5], pieces)
    ways = {tuple(zip(*line.get_data(), strict=True)): line for line in ax.lines}
    expected = {
        ((0, 0), (1, 0)), ((0, 0), (1, 1)), ((0, 0), (1, 2)),
        ((1, 0), (2, 0)), ((1, 1), (2, 1)), ((1, 0), (2, 2)),
        ((2, 0), (3, 0)), ((2, 2), (3, 1)),
    }  # fmt: skip
    assert set(ways) == expected
    heavy = {way for way, line in ways.items() if line.get_linewidth() == 4}
    assert heavy == {((0, 0), (1, 0)), ((1, 0), (2, 0)), ((2, 0), (3, 0))}
    assert [way for way, line in ways.items() if line.get_linestyle() == ":"] == [((0, 0), (1, 2))]


def test_the_winner_need_not_be_the_likeliest_in_its_step() -> None:
    ax = plot_beam(STEPS, [6], pieces)
    heavy = [line.get_xydata().tolist() for line in ax.lines if line.get_linewidth() == 4]
    assert heavy == [[[0, 0], [1, 1]], [[1, 1], [2, 1]]]


def test_the_likeliest_is_on_top() -> None:
    ax = plot_beam(STEPS, [4, 5], pieces)
    assert ax.yaxis_inverted()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step", "rank in its step")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "kept",
        "dropped",
        "ended",
        "the winner",
    ]


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plot_beam([], [4], pieces), "at least one step"),
        (lambda: plot_beam([STEPS[0], []], [4], pieces), "candidates in each"),
        (lambda: plot_beam(STEPS, [4, 4], pieces), r"winner \(4, 4\)"),
        (lambda: plot_beam([STEPS[0], [Candidate((5, 1), -4.0, "ended")]], [5], pieces), "continues nothing"),
        (lambda: plot_beam(STEPS[1:], [4, 5], pieces), "step 1 continues nothing"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()
