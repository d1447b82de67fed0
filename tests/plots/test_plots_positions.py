"""Figures of positional encodings."""

import numpy as np
import pytest
import torch

from annotated.plots import plot_encodings
from annotated.transformer.positions import sinusoids

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
