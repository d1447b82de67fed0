"""What the figures share."""

import re
import sys

import matplotlib.pyplot as plt
import pytest

from annotated.plots import plot_encodings
from annotated.plots.drawing import axes_or_new, load, palette
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


def test_a_library_is_loaded_by_name() -> None:
    assert load("matplotlib.pyplot") is plt
