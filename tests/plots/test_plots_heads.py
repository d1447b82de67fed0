"""Pictures of the cut into heads: numbers where they land."""

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.colors import to_hex

from annotated.plots.drawing import palette
from annotated.plots.heads import plot_split


def test_each_number_has_the_colour_of_its_word() -> None:
    numbers = torch.arange(12).view(3, 4)  # three words of four numbers
    cut = numbers.view(3, 2, 2).transpose(0, 1)
    axes = plot_split({"before": numbers[None], "after": cut}, ["a", "b", "c"], width=4)
    assert [ax.get_title() for ax in axes] == ["before", "after"]
    for ax in axes:
        written = [text.get_text() for text in ax.texts if text.get_text().isdigit()]
        assert sorted(map(int, written)) == list(range(12))
        for cell, place in zip(ax.patches, map(int, written), strict=True):
            assert to_hex(cell.get_facecolor()) == palette(3)[place // 4]


def test_rows_go_down_and_heads_stand_side_by_side() -> None:
    cut = torch.arange(12).view(3, 2, 2).transpose(0, 1)
    (ax,) = plot_split({"cut": cut}, ["a", "b", "c"], width=4)
    places = {text.get_text(): text.get_position() for text in ax.texts}
    assert places["0"][0] == places["4"][0] < places["2"][0]
    assert places["0"][1] < places["4"][1] < places["8"][1]
    assert ax.yaxis_inverted()
    assert places["head 1"][0] < places["head 2"][0]


def test_words_are_in_the_legend_and_as_many_as_there_are() -> None:
    numbers = torch.arange(12).view(1, 3, 4)
    (ax,) = plot_split({"x": numbers}, ["a", "b", "c"], width=4)
    assert [text.get_text() for text in ax.figure.legends[0].get_texts()] == ["a", "b", "c"]
    with pytest.raises(ValueError, match="words: 3 of them need 3 names, not 2"):
        plot_split({"x": numbers}, ["a", "b"], width=4)


def position(ax: plt.Axes, line: str) -> tuple[float, float]:
    """Where the text stands that has this line."""
    return next(text.get_position() for text in ax.texts if line in text.get_text().split("\n"))
