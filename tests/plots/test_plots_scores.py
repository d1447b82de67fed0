"""Scores with intervals, beside published ones."""

import pytest

from annotated.plots.scores import plot_scores

pytest.importorskip("matplotlib")


def test_dots_intervals_and_diamonds() -> None:
    ax = plot_scores({"one": (38.0, 37.0, 39.5), "two": (40.0, 39.0, 41.0)}, {"they": 39.2})
    dots, _, (bars,) = ax.containers[0]
    assert list(zip(*dots.get_data(), strict=True)) == [(38.0, 0), (40.0, 1)]
    ends = [[tuple(end) for end in segment] for segment in bars.get_segments()]
    assert ends == [[(37.0, 0), (39.5, 0)], [(39.0, 1), (41.0, 1)]]
    diamond = next(line for line in ax.lines if line.get_marker() == "D")
    assert (diamond.get_xdata()[0], diamond.get_ydata()[0]) == (39.2, 2)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["one", "two", "they"]
    assert ax.yaxis_inverted()


def test_published_scores_can_stand_alone() -> None:
    ax = plot_scores({}, {"they": 39.2}, metric="chrF")
    assert ax.get_xlabel() == "chrF"
    assert not ax.containers


@pytest.mark.parametrize(
    ("ours", "message"),
    [({}, "at least one score"), ({"one": (40.0, 37.0, 39.5)}, "'one': the score 40.0")],
)
def test_what_cannot_be_drawn_is_refused(ours, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plot_scores(ours)
