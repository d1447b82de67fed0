"""The learning rate, drawn (section 5.3)."""

from collections.abc import Sequence

from annotated.plots.drawing import axes_or_new, palette, plt
from annotated.schedule import rate


def plot_schedules(
    settings: Sequence[tuple[int, int]],
    steps: int = 20000,
    factor: float = 1.0,
    ax: "plt.Axes | None" = None,
) -> "plt.Axes":
    """Draw the rate over `steps` updates for each (d_model, warmup), a dot on each peak that they reach."""
    ax = axes_or_new(ax)
    for (d_model, warmup), color in zip(settings, palette(len(settings)), strict=True):
        # Some 400 steps, the last and the peak, which is the curve's corner, among them.
        shown = sorted({*range(1, steps + 1, max(1, steps // 400)), steps, min(steps, warmup)})
        label = f"d_model {d_model:,}, warm-up {warmup:,}"
        ax.plot(shown, [rate(step, d_model, factor, warmup) for step in shown], color=color, label=label)
        if warmup <= steps:
            ax.plot(warmup, rate(warmup, d_model, factor, warmup), "o", color=color, ms=9)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.locator_params(axis="x", nbins=6)
    ax.ticklabel_format(axis="y", style="sci", scilimits=(0, 0), useMathText=True)
    ax.legend(frameon=False)
    ax.set(title="Learning rate, peak at the end of the warm-up", xlabel="update", ylabel="learning rate")
    return ax
