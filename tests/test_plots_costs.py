"""Figures of measured costs, with their exponents."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotated.plots.costs import fit_power, plot_costs

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
