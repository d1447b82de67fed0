"""Label smoothing (section 5.4): what the model is asked for, and what its loss can and cannot reach."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from annotated.plots.drawing import as_array, axes_or_new, check_names, load, palette
from annotated.transformer.loss import check_smoothing

if TYPE_CHECKING:
    import altair as alt
    import numpy as np
    from matplotlib.axes import Axes


def smoothed_target(size: int, target: int, smoothing: float, padding: int) -> list[float]:
    """The distribution that `LabelSmoothing` asks for where the right token is number `target`.

    Raises ValueError for a target that is padding or none of the `size` symbols.
    """
    check_smoothing(size, smoothing)
    if not 0 <= target < size or target == padding:
        raise ValueError(f"target must be a symbol from 0 to {size - 1} other than padding, not {target}")
    probabilities = [smoothing / (size - 2)] * size
    probabilities[target] = 1 - smoothing
    probabilities[padding] = 0.0
    return probabilities


def plot_target(
    prediction: Tensor,
    target: int,
    names: Sequence[str],
    smoothing: float = 0.1,
    padding: int = 2,
    ax: "Axes | None" = None,
) -> "Axes":
    """The smoothed target beside a model's probabilities (size,), two bars a symbol."""
    predicted = check_prediction(prediction, names)
    wanted = smoothed_target(len(names), target, smoothing, padding)
    ax = axes_or_new(ax)
    places, colours = range(len(names)), palette()
    ax.bar([x - 0.2 for x in places], wanted, 0.4, color=colours[0], label="target")
    ax.bar([x + 0.2 for x in places], predicted, 0.4, color=colours[1], label="prediction")
    ax.set_xticks(places, names)
    ax.legend(frameon=False)
    ax.set(title=f"Target with smoothing {smoothing:g}", xlabel="symbol", ylabel="probability")
    return ax


def explore_target(
    prediction: Tensor, target: int, names: Sequence[str], smoothing: float = 0.1, padding: int = 2
) -> "alt.LayerChart":
    """`plot_target` with a slider over the smoothing, and the divergence of the one from the other.

    Vega computes the target itself. Parameter: `smoothing`. Raises ValueError where the prediction is 0 for a
    symbol other than padding: the divergence would be infinite.
    """
    predicted = check_prediction(prediction, names)
    smoothed_target(len(names), target, smoothing, padding)  # refuses what it cannot draw
    if any(p == 0 for i, p in enumerate(predicted) if i != padding):
        raise ValueError("a prediction of 0 makes the divergence infinite: only padding may have it")
    alt = load("altair")
    rows = [
        {"symbol": name, "place": place, "prediction": round(float(probability), 6)}
        for place, (name, probability) in enumerate(zip(names, predicted, strict=True))
    ]
    others = f"smoothing / {len(names) - 2}"
    wanted = f"datum.place == {target} ? 1 - smoothing : datum.place == {padding} ? 0 : {others}"
    base = alt.Chart(alt.Data(values=rows)).transform_calculate(target=wanted)
    slider = alt.binding_range(min=0, max=0.9, step=0.01, name="smoothing: ")
    return (
        alt.layer(draw_bars(base, names), write_divergence(base), title="Target and prediction")
        .properties(width=480)
        .add_params(alt.param(name="smoothing", value=smoothing, bind=slider))
    )


def draw_bars(base: "alt.Chart", names: Sequence[str]) -> "alt.Chart":
    """Of a chart with fields `target` and `prediction`, two bars for each symbol."""
    alt = load("altair")
    kinds = ["target", "prediction"]
    return (
        base.transform_fold(kinds, as_=["kind", "probability"])
        .mark_bar()
        .encode(
            x=alt.X("symbol:N", sort=list(names), title="symbol", axis=alt.Axis(labelAngle=0)),
            xOffset=alt.XOffset("kind:N", sort=kinds),
            y=alt.Y("probability:Q", title="probability", scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("kind:N", title=None, sort=kinds),
            tooltip=["symbol:N", "kind:N", alt.Tooltip("probability:Q", format=".4f")],
        )
    )


def write_divergence(base: "alt.Chart") -> "alt.Chart":
    """What `LabelSmoothing` gives for such a prediction, in the upper right corner."""
    alt = load("altair")
    term = "datum.target > 0 ? datum.target * log(datum.target / datum.prediction) : 0"
    return (
        base.transform_calculate(term=term)
        .transform_aggregate(total="sum(term)")
        .transform_calculate(words="'divergence ' + format(datum.total, '.3f') + ' nats'")
        .mark_text(align="right", fontSize=15)
        .encode(x=alt.value(470), y=alt.value(14), text="words:N")
    )


def plot_loss(size: int, smoothings: Sequence[float], ax: "Axes | None" = None) -> "Axes":
    """Cross-entropy against the model's confidence in the right token, for each smoothing, with its floor.

    What is left of the probability is spread evenly. The floor is the target's entropy, reached where the
    confidence is 1 - smoothing; the divergence, which `LabelSmoothing` gives, is the height above it.
    """
    np = load("numpy")
    ax = axes_or_new(ax)
    confidence = np.concatenate([np.linspace(0.01, 0.99, 99), 1 - np.logspace(-2.1, -6, 40)])
    for smoothing, colour in zip(smoothings, palette(len(smoothings)), strict=True):
        check_smoothing(size, smoothing)
        label, best = f"smoothing {smoothing:g}", 1 - smoothing
        ax.plot(confidence, cross_entropy(confidence, size, smoothing), color=colour, label=label)
        floor = entropy(size, smoothing)
        ax.axhline(floor, color=colour, lw=1.2, ls="--")
        ax.plot(best, floor, "o", color=colour, ms=9, clip_on=False)
    ax.legend(frameon=False)
    ax.set(
        title="Loss and its floor (dashed)",
        xlabel="probability given to the right token",
        ylabel="cross-entropy (nats)",
        xlim=(0, 1),
        ylim=(0, None),
    )
    return ax


def cross_entropy(confidence: "np.ndarray", size: int, smoothing: float) -> "np.ndarray":
    """Of a prediction with this confidence in the right token, the rest even, against the smoothed target."""
    np = load("numpy")
    others = np.log((1 - confidence) / (size - 2)) if smoothing else 0.0
    return -(1 - smoothing) * np.log(confidence) - smoothing * others


def entropy(size: int, smoothing: float) -> float:
    """The smoothed target's own, in nats: no prediction has a lower cross-entropy."""
    right = -(1 - smoothing) * math.log(1 - smoothing)
    return right - (smoothing * math.log(smoothing / (size - 2)) if smoothing else 0.0)


def plot_true_dist(true_dist: Tensor, names: Sequence[str], ax: "Axes | None" = None) -> "Axes":
    """`LabelSmoothing.true_dist` (n, size): target positions down, symbols across, values written in."""
    values = as_array(true_dist, 2, "true_dist")
    check_names(names, values.shape[1], "symbols")
    ax = axes_or_new(ax)
    bar = {"label": "probability asked for"}
    load("seaborn").heatmap(
        values, vmin=0, vmax=1, cmap="viridis", annot=values.size <= 120, fmt=".2f", cbar_kws=bar, ax=ax
    )
    ax.set_xticks([x + 0.5 for x in range(len(names))], names, rotation=0)
    ax.set_yticks([y + 0.5 for y in range(len(values))], range(len(values)), rotation=0)
    ax.set(title="Target distributions", xlabel="symbol", ylabel="target position")
    return ax


def check_prediction(prediction: Tensor, names: Sequence[str]) -> "np.ndarray":
    """Probabilities (size,) as an array. Raises ValueError unless they add up to 1 and each has a name."""
    values = as_array(prediction, 1, "prediction")
    check_names(names, len(values), "symbols")
    if abs(values.sum() - 1) > 1e-3 or values.min() < 0:
        raise ValueError(f"prediction must be probabilities that add up to 1, not to {values.sum():.4f}")
    return values
