"""The tree of a search."""

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
