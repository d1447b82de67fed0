"""Figures of normalisation."""

import pytest

from annotated.plots.norms import plot_gradient_norms

pytest.importorskip("matplotlib")


def test_a_curve_for_each_kind_of_model() -> None:
    ax = plot_gradient_norms({"post-norm": [0.1, 1.0, 10.0], "pre-norm": [2.0, 1.5, 1.0]})
    assert [list(line.get_ydata()) for line in ax.lines] == [[0.1, 1.0, 10.0], [2.0, 1.5, 1.0]]
    assert all(list(line.get_xdata()) == [1, 2, 3] for line in ax.lines)
    assert ax.get_yscale() == "log"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["post-norm", "pre-norm"]
    # Told apart by more than colour.
    assert len({line.get_marker() for line in ax.lines}) == 2


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plot_gradient_norms({"dead": [1.0, 0.0]}), "'dead' has"),
        (lambda: plot_gradient_norms({"none": []}), "'none' has"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()
