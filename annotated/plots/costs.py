"""Table 1, drawn: who hears whom, and what each kind of layer costs; the parameters of Table 3, counted."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from annotated.plots.drawing import axes_or_new, load, palette
from annotated.transformer.model import TransformerConfig

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


def plot_against(
    sizes: Sequence[float],
    curves: Mapping[str, Sequence[float | None]],
    title: str,
    xlabel: str,
    ylabel: str,
    xscale: str = "log",
    limit: float | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """One curve a name over the same sizes, the vertical axis logarithmic.

    None stands for a value that was not reached: a cross at `limit`, to which a dotted line leads. NaN stands
    for one that nobody asked for: nothing is drawn. Raises ValueError if a curve has another length, or a
    value was not reached and there is no limit to draw it at.
    """
    ax = axes_or_new(ax)
    for (name, values), colour, marker in zip(curves.items(), palette(len(curves)), MARKERS, strict=False):
        missing = [size for size, value in zip(sizes, values, strict=True) if value is None]
        if missing and limit is None:
            raise ValueError(f"{name!r} has no value at {missing}, and there is no limit to draw it at")
        there = [(size, value) for size, value in zip(sizes, values, strict=True) if value is not None]
        ax.plot(*zip(*there, strict=True), marker=marker, ms=7, color=colour, label=name)
        ax.plot(missing, [limit] * len(missing), "x", ms=10, mew=2.5, color=colour)
        if missing and there:
            (before, value) = max(point for point in there if point[1] == point[1])  # no NaN
            ax.plot([before, missing[0]], [value, limit], ":", color=colour)
    ax.set(xscale=xscale, yscale="log", title=title, xlabel=xlabel, ylabel=ylabel)
    if xscale == "log":
        ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
        ax.xaxis.set_minor_locator(load("matplotlib.ticker").NullLocator())
    ax.grid(True)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return ax


def count_parameters(config: TransformerConfig) -> dict[str, int]:
    """How many trained numbers each component holds, by the settings alone; shared matrices count once."""
    c, d = config, config.d_model
    attention = 4 * (d * d + d)
    feed_forward = (d * c.d_ff + c.d_ff) + (c.d_ff * d + d)
    matrices = {"all": c.tgt_vocab, "target": c.src_vocab + c.tgt_vocab, "none": c.src_vocab + c.tgt_vocab}
    norms = 5 * c.N + (2 if c.norm_first else 0)  # two a layer in the encoder, three in the decoder
    return {
        "embeddings": matrices[c.tied_embeddings] * d,
        "positions": 2 * c.max_len * d if c.positions == "learned" else 0,
        "encoder self-attention": c.N * attention,
        "decoder self-attention": c.N * attention,
        "cross-attention": c.N * attention,
        "feed-forward": 2 * c.N * feed_forward,
        "layer norms": norms * 2 * d,
        "output": c.tgt_vocab + (c.tgt_vocab * d if c.tied_embeddings == "none" else 0),
    }
