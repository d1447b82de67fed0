"""Label smoothing (section 5.4): what the model is asked for, and what its loss can and cannot reach."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from annotated.fast import target_entropy
from annotated.plots.drawing import as_array, axes_or_new, check_names, load, palette
from annotated.transformer.loss import check_smoothing

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes


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
        floor = target_entropy(size, smoothing)
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
