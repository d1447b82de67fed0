"""Scores with their uncertainty, beside those that others have published."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from annotated.plots.drawing import axes_or_new, palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_scores(
    ours: Mapping[str, tuple[float, float, float]],
    published: Mapping[str, float] | None = None,
    metric: str = "BLEU",
    ax: "Axes | None" = None,
) -> "Axes":
    """Our scores as dots with bootstrap intervals (score, low, high); published ones, without, as diamonds.

    Raises ValueError if there is no score, or one lies outside its interval.
    """
    published = published or {}
    if not ours and not published:
        raise ValueError("plot_scores needs at least one score")
    for name, (score, low, high) in ours.items():
        if not low <= score <= high:
            raise ValueError(f"{name!r}: the score {score} is not within its interval, {low} to {high}")
    ax = axes_or_new(ax, 8.0, 0.6 * (len(ours) + len(published)) + 2.2)
    colours = palette()
    if ours:
        scores, lows, highs = zip(*ours.values(), strict=True)
        below = [score - low for score, low in zip(scores, lows, strict=True)]
        above = [high - score for score, high in zip(scores, highs, strict=True)]
        label, bars = "ours, 95 % interval", [below, above]
        ax.errorbar(
            scores, range(len(ours)), xerr=bars, fmt="o", color=colours[0], ms=9, capsize=6, label=label
        )
    if published:
        rows = range(len(ours), len(ours) + len(published))
        ax.plot(list(published.values()), rows, "D", color=colours[1], ms=9, label="published")
    ax.set_yticks(range(len(ours) + len(published)), [*ours, *published])
    ax.invert_yaxis()
    ax.margins(0.1, 0.15)
    ax.grid(axis="x")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2, frameon=False)
    ax.set(title=f"{metric}, ours and published", xlabel=metric, ylabel="system")
    return ax
