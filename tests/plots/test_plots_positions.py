"""Figures of positional encodings."""

import numpy as np
import pytest
import torch

from annotated.plots.positions import (
    plot_clocks,
    plot_distances,
    plot_encodings,
    plot_offsets,
    plot_past,
    plot_similarity,
)
from annotated.transformer.layers import sinusoids

pytest.importorskip("matplotlib")


def test_the_heatmap_is_the_encodings() -> None:
    pe = sinusoids(30, 16)
    ax = plot_encodings(pe)
    np.testing.assert_array_equal(ax.images[0].get_array(), pe)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("dimension", "position")
    assert ax.images[0].get_clim() == (-1, 1)
    assert [other.get_ylabel() for other in ax.figure.axes] == ["position", "value"]


def test_learned_positions_beyond_one_get_a_wider_scale() -> None:
    learned = torch.nn.Parameter(torch.tensor([[0.5, -3.0], [2.0, 1.0]]))
    assert plot_encodings(learned).images[0].get_clim() == (-3, 3)


def test_a_clocks_hands_show_the_pairs_of_its_row_and_of_the_row_further_on() -> None:
    pe = sinusoids(30, 6)
    for ax, position in zip(plot_clocks(pe, [0, 7], offset=3), (0, 7), strict=True):
        assert ax.get_title() == f"position {position} → {position + 3}"
        for k, line in enumerate(ax.lines):
            row, pair = pe[position + 3 * (k // 3)], k % 3
            tip = np.array([line.get_xdata()[1], line.get_ydata()[1]])
            np.testing.assert_allclose(tip / np.hypot(*tip), row[2 * pair : 2 * pair + 2], atol=1e-6)
    (ax,) = plot_clocks(pe, [0])
    assert len(ax.lines) == 3
    assert all(line.get_xdata()[1] == 0 < line.get_ydata()[1] for line in ax.lines)  # at twelve


def test_similarity_is_the_same_along_a_diagonal() -> None:
    drawn = plot_similarity(sinusoids(30, 16)).images[0].get_array()
    for offset in (0, 3, 10):
        np.testing.assert_allclose(np.diagonal(drawn, offset), drawn[0, offset], rtol=1e-5)


def test_the_curves_over_the_offset_lie_on_one_another() -> None:
    pe = sinusoids(30, 16)
    ax = plot_offsets(pe, [5, 20])
    first, second = ({round(x): y for x, y in zip(*line.get_data(), strict=True)} for line in ax.lines)
    assert set(first) == set(range(-5, 25))
    for offset in set(first) & set(second):
        assert first[offset] == pytest.approx(second[offset], rel=1e-5)
    assert first[3] == pytest.approx(float(pe[5] @ pe[8]), rel=1e-5)
    assert ax.lines[0].get_linewidth() > ax.lines[1].get_linewidth()


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda pe: plot_encodings(pe[0]), "2 dimensions"),
        (lambda pe: plot_encodings(pe[:0]), "none empty"),
        (lambda pe: plot_offsets(pe, [-1]), "start must be from 0 to 29"),
        (lambda pe: plot_clocks(pe, [28], offset=2), "position must be from 0 to 29, not 30"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw(sinusoids(30, 16))


def test_a_distance_is_the_chord_between_two_hands() -> None:
    ax = plot_distances(sinusoids(30, 16), [1, 7])
    drawn = ax.images[0].get_array()
    for row, offset in enumerate((1, 7)):
        angles = offset * 10000 ** (-np.arange(0, 16, 2) / 16)
        np.testing.assert_allclose(drawn[row], 2 * abs(np.sin(angles / 2)), atol=1e-6)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["1", "7"]
    with pytest.raises(ValueError, match="offset must be from 0 to 29, not 30"):
        plot_distances(sinusoids(30, 16), [30])


def test_accuracies_are_drawn_in_percent_from_position_one() -> None:
    ax = plot_past({"sinusoids": torch.tensor([1.0, 0.5]), "learned": torch.tensor([0.25, 0.0])}, trained=2)
    curves = {line.get_label(): line.get_data() for line in ax.lines if len(line.get_xdata()) == 2}
    assert [list(values) for values in curves["sinusoids"]] == [[1, 2], [100, 50]]
    assert list(curves["learned"][1]) == [25, 0]
    assert list(ax.lines[-1].get_xdata()) == [1.5, 1.5]  # between the last trained position and the next
