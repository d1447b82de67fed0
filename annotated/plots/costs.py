"""Measured costs on logarithmic axes, where a power of the size is a straight line (Table 1)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from annotated.plots.drawing import axes_or_new, load, palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = tuple[Sequence[float], Sequence[float]]  # sizes, and what each cost
MARKERS = "os^DvP*X"


def fit_power(sizes: Sequence[float], costs: Sequence[float]) -> tuple[float, float]:
    """The (factor, exponent) of the power law that fits best: cost = factor * size^exponent.

    Least squares on logarithms. Raises ValueError unless there are two sizes or more and all is positive.
    """
    if len(sizes) != len(costs) or len(set(sizes)) < 2 or min(*sizes, *costs) <= 0:
        raise ValueError(f"need two sizes or more, a cost for each, all positive, not {sizes} and {costs}")
    np = load("numpy")
    exponent, intercept = np.polyfit(np.log(sizes), np.log(costs), 1)
    return float(np.exp(intercept)), float(exponent)


def plot_costs(
    curves: Mapping[str, Curve],
    title: str,
    xlabel: str = "length (tokens)",
    ylabel: str = "time (s)",
    fitted: int = 4,
    ax: "Axes | None" = None,
) -> "Axes":
    """Measured points, and the power law (dashed) through the `fitted` largest of each, its exponent named.

    Only the largest: small sizes are all overhead. Raises ValueError as `fit_power` does.
    """
    if not curves or fitted < 2:
        raise ValueError(f"plot_costs needs a curve, and two points or more to fit, not {fitted}")
    fits = {name: fit_power(sizes[-fitted:], costs[-fitted:]) for name, (sizes, costs) in curves.items()}
    ax = axes_or_new(ax)
    for (name, curve), colour, marker in zip(curves.items(), palette(len(curves)), MARKERS, strict=False):
        factor, exponent = fits[name]
        ax.plot(*curve, marker, color=colour, ms=8, label=f"{name}: exponent {exponent:.2f}")
        ends = [curve[0][-fitted:][0], curve[0][-1]]
        ax.plot(ends, [factor * size**exponent for size in ends], "--", color=colour)
    ax.set(xscale="log", yscale="log", title=title, xlabel=xlabel, ylabel=ylabel)
    sizes = sorted({size for xs, _ in curves.values() for size in xs})
    ax.set_xticks(sizes[:: -(-len(sizes) // 7)])
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.xaxis.set_minor_locator(load("matplotlib.ticker").NullLocator())
    ax.legend(frameon=False)
    return ax
