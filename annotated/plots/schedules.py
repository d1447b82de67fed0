"""The learning rate over training (section 5.3, equation 3)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from annotated.plots.drawing import axes_or_new, palette
from annotated.transformer.schedule import rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_schedules(
    settings: Sequence[tuple[int, int]] | int,
    warmup: int | None = None,
    *,
    steps: int = 20000,
    factor: float = 1.0,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the rate over `steps` updates for each (d_model, warmup), a dot on each peak.

        plot_schedules([(512, 4000), (256, 4000)])
        plot_schedules(512, 4000)                     # one alone

    Raises ValueError if there is no setting, or a peak lies beyond the last step.
    """
    if isinstance(settings, int):
        if warmup is None:
            raise ValueError(f"plot_schedules needs a warmup beside d_model={settings}, such as 4000")
        settings = [(settings, warmup)]
    if not settings:
        raise ValueError("plot_schedules needs at least one (d_model, warmup)")
    for _, warmup in settings:
        if warmup > steps:
            raise ValueError(f"the peak of warmup={warmup} lies beyond the last step, {steps}")
    ax = axes_or_new(ax)
    for (d_model, warmup), colour in zip(settings, palette(len(settings)), strict=True):
        shown = drawn_steps(steps, warmup)
        label = f"d_model {d_model:,}, warm-up {warmup:,}"
        ax.plot(shown, [rate(step, d_model, factor, warmup) for step in shown], color=colour, label=label)
        ax.plot(warmup, rate(warmup, d_model, factor, warmup), "o", color=colour, ms=9)
    format_axes(ax)
    ax.legend(frameon=False)
    ax.set(title="Learning rate, peak at the end of the warm-up", xlabel="update", ylabel="learning rate")
    return ax


def format_axes(ax: "Axes") -> None:
    """Thousands of updates with their comma, rates as multiples of a power of ten."""
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.locator_params(axis="x", nbins=6)
    ax.ticklabel_format(axis="y", style="sci", scilimits=(0, 0), useMathText=True)


def drawn_steps(steps: int, warmup: int) -> list[int]:
    """Some 400 of the steps 1 to `steps`, the last and the peak, the curve's corner, among them."""
    return sorted({*range(1, steps + 1, max(1, steps // 400)), steps, warmup})
