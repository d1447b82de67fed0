"""What the figures share."""

import re
import sys

import matplotlib.pyplot as plt
import pytest
import torch

from annotated.plots.drawing import as_array, axes_or_new, load, palette
from annotated.plots.positions import plot_encodings
from annotated.transformer.positions import sinusoids


def test_a_missing_library_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "seaborn", None)
    needed = re.escape('seaborn is missing: pip install ".[notebooks]" in the clone')
    with pytest.raises(ModuleNotFoundError, match=needed):
        palette(3)


def test_a_figure_goes_where_it_is_told() -> None:
    _, (left, right) = plt.subplots(1, 2)
    assert plot_encodings(sinusoids(5, 4), right) is right
    assert not left.images
    assert axes_or_new(left) is left
    assert axes_or_new(None, 3, 2).figure.get_size_inches().tolist() == [3, 2]


def test_tensors_with_gradients_and_lists_can_be_drawn() -> None:
    assert as_array(torch.ones(2, requires_grad=True), 1, "x").tolist() == [1, 1]
    assert as_array([[1, 2]], 2, "x").tolist() == [[1, 2]]


def test_a_library_is_loaded_by_name() -> None:
    assert load("matplotlib.pyplot") is plt
