"""Figures of label smoothing, against the loss itself."""

import numpy as np
import pytest
import torch

from annotated.plots.smoothing import plot_loss, plot_true_dist
from annotated.transformer.loss import LabelSmoothing

pytest.importorskip("matplotlib")

NAMES = ["<s>", "</s>", "<blank>", "dog", "cat"]


def test_the_loss_has_its_floor_at_the_targets_entropy() -> None:
    """Cross-entropy = entropy + what LabelSmoothing gives, at every confidence that is drawn."""
    size, smoothing = 10, 0.2
    ax = plot_loss(size, [smoothing])
    curve, floor, best = ax.lines
    confidence, losses = curve.get_data()
    rows = torch.from_numpy((1 - confidence) / (size - 2)).unsqueeze(1).repeat(1, size)
    rows[:, 3] = torch.from_numpy(confidence)
    criterion = LabelSmoothing(size, 0, smoothing)
    divergence = [criterion(row.log()[None], torch.tensor([3])).item() for row in rows]
    entropy = floor.get_ydata()[0]
    np.testing.assert_allclose(losses - entropy, divergence, atol=1e-7)
    assert losses.min() == pytest.approx(entropy, abs=1e-6)
    assert (best.get_xdata()[0], best.get_ydata()[0]) == (pytest.approx(0.8), entropy)


def test_without_smoothing_the_floor_is_zero() -> None:
    _, floor, best = plot_loss(10, [0.0]).lines
    assert floor.get_ydata()[0] == 0
    assert best.get_xdata()[0] == 1


def test_the_heatmap_is_what_the_loss_asked_for() -> None:
    criterion = LabelSmoothing(5, 2, 0.4)
    criterion(torch.zeros(3, 5), torch.tensor([3, 4, 2]))
    ax = plot_true_dist(criterion.true_dist, NAMES)
    np.testing.assert_allclose(ax.collections[0].get_array(), criterion.true_dist)
    assert [text.get_text() for text in ax.texts][:5] == ["0.13", "0.13", "0.00", "0.60", "0.13"]
    assert [label.get_text() for label in ax.get_xticklabels()] == NAMES
    assert ax.yaxis_inverted()  # the first position on top


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plot_loss(2, [0.1]), "size 2"),
        (lambda: plot_true_dist(torch.zeros(3, 4), NAMES), "need 4 names"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()
