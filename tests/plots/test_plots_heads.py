"""Pictures of the inside of multi-head attention: shapes where they arise, numbers where they land."""

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch

from annotated.plots.drawing import palette
from annotated.plots.heads import flow_names, plot_flow, plot_split


@pytest.fixture
def shapes() -> dict[str, tuple[int, ...]]:
    """A different shape for each step, so that none can stand in for another."""
    return {name: (2, 10 + n) for n, name in enumerate(flow_names())}


def test_every_shape_is_written_once(shapes: dict[str, tuple[int, ...]]) -> None:
    lines = [line for text in plot_flow(shapes).texts for line in text.get_text().split("\n")]
    for shape in shapes.values():
        assert lines.count(str(shape)) == 1


def test_a_lane_goes_from_the_input_to_its_heads(shapes: dict[str, tuple[int, ...]]) -> None:
    ax = plot_flow(shapes)
    for name in ("query", "key", "value"):
        steps = (name, f"{name} projected", f"{name} heads")
        places = [position(ax, str(shapes[step])) for step in steps]
        assert [x for x, _ in places] == sorted(x for x, _ in places)
        assert max(y for _, y in places) - min(y for _, y in places) < 0.2
    lanes = [position(ax, str(shapes[name]))[1] for name in ("query", "key", "value")]
    assert lanes == sorted(lanes, reverse=True)


def test_four_linears_three_cuts_and_one_attention(shapes: dict[str, tuple[int, ...]]) -> None:
    ax = plot_flow(shapes, title="Flow")
    words = [text.get_text() for text in ax.texts]
    assert [words.count(f"$W^{letter}$") for letter in "QKVO"] == [1, 1, 1, 1]
    assert (words.count("cut"), words.count("join")) == (3, 1)
    assert len([patch for patch in ax.patches if type(patch) is FancyBboxPatch]) == 9
    assert ax.get_title() == "Flow"


def test_missing_shapes_are_named(shapes: dict[str, tuple[int, ...]]) -> None:
    del shapes["joined"], shapes["key heads"]
    with pytest.raises(ValueError, match="the shape of key heads, joined"):
        plot_flow(shapes)


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
