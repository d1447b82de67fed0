"""Attention beside gold alignments."""

import numpy as np
import pytest
import torch
from matplotlib.patches import Rectangle

from annotated.plots.alignment import plot_alignment

QUERIES, KEYS = ["<s>", "a", "dog"], ["ein", "Hund"]


def test_the_frames_stand_on_the_gold_pairs() -> None:
    weights = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
    ax = plot_alignment(weights, QUERIES, KEYS, [(2, 1), (0, 0), (2, 1)])
    np.testing.assert_array_equal(ax.images[0].get_array(), weights)
    frames = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    # Query down, key across: x is the key.
    centres = {(round(frame.get_center()[1]), round(frame.get_center()[0])) for frame in frames}
    assert centres == {(0, 0), (2, 1)}
    assert len(frames) == 4  # a white one below each
    assert ax.get_xlabel().startswith("key")
    assert ax.get_ylabel().startswith("query")


def test_possible_pairs_are_framed_with_dashes() -> None:
    ax = plot_alignment(torch.rand(3, 2), QUERIES, KEYS, [(0, 0)], possible=[(2, 1)])
    dashed = [patch.get_center() for patch in ax.patches if patch.get_linestyle() not in ("-", "solid")]
    assert len(ax.patches) == 4
    assert [(round(y), round(x)) for x, y in dashed] == [(2, 1)]


@pytest.mark.parametrize("pair", [(3, 0), (0, 2), (-1, 0)])
def test_a_gold_pair_outside_the_sentences_is_refused(pair: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="3 queries, 2 keys"):
        plot_alignment(torch.rand(3, 2), QUERIES, KEYS, [pair])
    with pytest.raises(ValueError, match="3 queries, 2 keys"):
        plot_alignment(torch.rand(3, 2), QUERIES, KEYS, [], possible=[pair])


def test_swapped_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        plot_alignment(torch.rand(2, 3), QUERIES, KEYS, [])
