"""Figures of normalisation."""

import numpy as np
import pytest
import torch

from annotated.plots.norms import plot_gradient_norms, plot_normalised

pytest.importorskip("matplotlib")


def test_a_curve_for_each_kind_of_model() -> None:
    ax = plot_gradient_norms({"post-norm": [0.1, 1.0, 10.0], "pre-norm": [2.0, 1.5, 1.0]})
    assert [list(line.get_ydata()) for line in ax.lines] == [[0.1, 1.0, 10.0], [2.0, 1.5, 1.0]]
    assert all(list(line.get_xdata()) == [1, 2, 3] for line in ax.lines)
    assert ax.get_yscale() == "log"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["post-norm", "pre-norm"]
    # Told apart by more than colour.
    assert len({line.get_marker() for line in ax.lines}) == 2


def test_the_bars_of_one_dimension_stand_side_by_side() -> None:
    x = torch.tensor([1.0, -2.0, 4.0])
    normalised = {"one": x / 2, "other": x / 3}
    ax = plot_normalised(x, normalised)
    for bars, expected in zip(ax.containers, [x, x / 2, x / 3], strict=True):
        np.testing.assert_allclose([bar.get_height() for bar in bars], expected)
    for place in range(3):
        group = [bars[place] for bars in ax.containers]
        edges = [bar.get_x() for bar in group] + [group[-1].get_x() + group[-1].get_width()]
        np.testing.assert_allclose(np.diff(edges), 0.8 / 3)
        assert (edges[0] + edges[-1]) / 2 == pytest.approx(place)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["before", "one", "other"]


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plot_gradient_norms({"dead": [1.0, 0.0]}), "'dead' has"),
        (lambda: plot_gradient_norms({"none": []}), "'none' has"),
        (lambda: plot_normalised(torch.ones(3), {"short": torch.ones(2)}), "'short' has 2 numbers"),
        (lambda: plot_normalised(torch.ones(2, 3), {}), "1 dimension, none empty"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()
