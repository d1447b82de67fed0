"""The tree of a search."""

import pytest

from annotated.plots import plot_beam
from annotated.search.beam import Candidate

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
def test_a_beam_that_is_no_tree_is_refused(draw, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()
