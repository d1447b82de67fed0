"""Figures of measured costs, with their exponents."""

import math

import pytest
import torch
from charts import marks, texts
from hypothesis import given
from hypothesis import strategies as st

from annotated.plots.costs import (
    explore_parallel,
    fit_power,
    plot_against,
    plot_costs,
    plot_parts,
    plot_reach,
)

pytest.importorskip("matplotlib")

SIZES = [64, 128, 256, 512, 1024]


@given(exponent=st.floats(-3, 3), factor=st.floats(1e-6, 1e3))
def test_a_power_law_is_found_again(exponent: float, factor: float) -> None:
    assert fit_power(SIZES, [factor * n**exponent for n in SIZES]) == pytest.approx(
        (factor, exponent), rel=1e-6, abs=1e-9
    )


def test_overhead_at_small_sizes_does_not_spoil_the_exponent() -> None:
    costs = [1.0, 1.0, 256**2 / 1e4, 512**2 / 1e4, 1024**2 / 1e4]
    ax = plot_costs({"layer": (SIZES, costs)}, "Time of one layer", fitted=3)
    points, fit = ax.lines
    assert list(points.get_ydata()) == costs
    assert list(fit.get_xdata()) == [256, 1024]
    assert list(fit.get_ydata()) == pytest.approx([costs[2], costs[4]])
    assert ax.get_legend().get_texts()[0].get_text() == "layer: exponent 2.00"
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("length (tokens)", "time (s)")
    assert list(ax.get_xticks()) == SIZES


@pytest.mark.parametrize(
    ("curve", "fitted"),
    [
        (([1, 2], [1.0]), 4),
        (([1, 1], [1.0, 2.0]), 4),
        (([1, 2], [1.0, 0.0]), 4),
        (([0, 2], [1.0, 1.0]), 4),
        (([1], [1.0]), 4),
        (([1, 2], [1.0, 2.0]), 1),
    ],
)
def test_what_has_no_exponent_is_refused(curve, fitted: int) -> None:
    with pytest.raises(ValueError, match="two"):
        plot_costs({"layer": curve}, "Time", fitted=fitted)


def test_what_was_not_reached_is_a_cross_at_the_limit() -> None:
    ax = plot_against(
        [1, 2, 4], {"quick": [3, 4, 5], "slow": [9, None, math.nan]}, "Updates", "d", "u", limit=50
    )
    quick, none, slow, crosses, way = ax.lines
    assert list(quick.get_ydata()) == [3, 4, 5]
    assert (slow.get_xdata()[0], slow.get_ydata()[0]) == (1, 9)
    assert (list(crosses.get_xdata()), list(crosses.get_ydata())) == ([2], [50])  # nobody asked for size 4
    assert (list(way.get_xdata()), list(way.get_ydata())) == ([1, 2], [9, 50])
    assert len(none.get_xdata()) == 0
    assert quick.get_color() != slow.get_color() == crosses.get_color()
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["quick", "slow"]


def test_a_missing_value_needs_a_limit_and_a_curve_needs_all_sizes() -> None:
    with pytest.raises(ValueError, match="no limit"):
        plot_against([1, 2], {"slow": [9, None]}, "Updates", "d", "u")
    with pytest.raises(ValueError):  # noqa: PT011 (zip says it)
        plot_against([1, 2], {"short": [9]}, "Updates", "d", "u")


def test_reach_is_drawn_as_it_is_given() -> None:
    one, two = torch.eye(4, dtype=torch.bool), torch.ones(4, 4, dtype=torch.bool).tril()
    axes = plot_reach({"first": [one, two], "second": [two, one]}, "Who hears whom")
    assert axes.shape == (2, 2)
    drawn = [[torch.tensor(ax.images[0].get_array()).bool() for ax in row] for row in axes]
    assert torch.equal(drawn[0][1], two)  # output down, input across: not transposed
    assert torch.equal(drawn[1][1], one)
    assert [ax.get_title() for ax in axes[0]] == ["1 layer", "2 layers"]
    assert [row[0].get_ylabel() for row in axes] == ["first", "second"]


@pytest.mark.parametrize("grids", [[torch.eye(2)], [torch.zeros(2), torch.eye(2)]])
def test_reach_refuses_what_does_not_fit(grids: list[torch.Tensor]) -> None:
    with pytest.raises(ValueError, match=r"as many|2 dimensions"):
        plot_reach({"first": [torch.eye(2), torch.eye(2)], "second": grids}, "Who hears whom")


@pytest.mark.parametrize(("exponent", "expected"), [(0, 1003.0), (3, 128.0), (10, 3.98)])
def test_the_slider_shares_the_work_out_but_not_the_steps(exponent: int, expected: float) -> None:
    chart = explore_parallel([8, 16], {"a": [1000, 2000]}, {"a": [3, 3]}, start=1, most=10)
    points = [mark for mark in marks(chart, exponent=exponent) if mark.get("length n (words)") == "8"]
    times = {round(float(mark["time (in steps)"].replace(",", "")), 1) for mark in points}
    assert round(expected, 1) in times
    assert f"Time of one layer, {2**exponent:,} at once" in texts(chart, exponent=exponent)


@pytest.mark.parametrize(
    ("work", "steps"),
    [({"a": [1, 2]}, {"b": [1, 2]}), ({"a": [1, 2]}, {"a": [1]}), ({"a": [1]}, {"a": [1, 2]})],
)
def test_work_and_steps_must_be_of_the_same_layers(work, steps) -> None:
    with pytest.raises(ValueError, match="2 sizes"):
        explore_parallel([8, 16], work, steps)


def test_parts_lie_end_to_end_in_one_bar_a_name() -> None:
    ax = plot_parts({"slow": {"a": 3.0, "b": 5.0}, "fast": {"a": 2.0, "b": 0.0}}, "Work", "ms")
    first, second = ax.containers
    assert [bar.get_width() for bar in first] == [3, 2]
    assert [(bar.get_x(), bar.get_width()) for bar in second] == [(3, 5), (2, 0)]
    assert first[0].get_facecolor() != second[0].get_facecolor()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["slow", "fast"]
    assert ax.yaxis_inverted()  # the first name is on top


@pytest.mark.parametrize(
    "costs", [{}, {"slow": {}}, {"slow": {"a": 1}, "fast": {"b": 1}}, {"x": dict.fromkeys("abcdefghijk", 1)}]
)
def test_bars_of_other_kinds_are_refused(costs) -> None:
    with pytest.raises(ValueError, match="same kinds"):
        plot_parts(costs, "Work", "ms")
