"""What a figure says to those who do not see it."""

import matplotlib.pyplot as plt
import pytest

from annotated.plots import notebook
from annotated.plots.words import describe_figure

formatters = pytest.importorskip("IPython.core.formatters")


def test_title_axes_and_legend_are_named() -> None:
    figure, (left, right) = plt.subplots(1, 2)
    figure.suptitle("Two runs")
    left.plot([1, 2], label="post-norm")
    left.plot([2, 1], label="pre-norm")
    left.set(title="Loss", xlabel="update", ylabel="nats")
    left.legend()
    right.set_ylabel(r"$d_{model}$")
    assert describe_figure(figure) == "Two runs; Loss: nats over update (post-norm, pre-norm); d_model"


def test_panels_beyond_the_sixth_are_counted_and_equal_ones_named_once() -> None:
    figure, axes = plt.subplots(2, 5)
    for i, panel in enumerate(axes.flat):
        panel.set_title(f"head {min(i, 4)}")
    assert describe_figure(figure) == "head 0; head 1; head 2; head 3; head 4; 4 panels more"


def test_a_figure_without_words_is_a_figure() -> None:
    assert describe_figure(plt.figure()) == "Figure"


def test_the_words_stand_beside_the_picture_which_stays_as_it_is() -> None:
    formatter = formatters.PNGFormatter()
    formatter.for_type(plt.Figure, lambda figure: (b"png", {"width": 3}) if figure.axes else None)
    notebook._add_words(formatter)
    figure = plt.figure()
    assert formatter(figure) is None
    figure.add_subplot().set_title("A mask")
    assert formatter(figure) == (b"png", {"width": 3, "alt": "A mask"})
