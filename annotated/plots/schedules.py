"""The learning rate over training (section 5.3, equation 3): as it is meant to be, and as a run had it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from annotated.plots.drawing import axes_or_new, load, palette
from annotated.transformer.schedule import rate

if TYPE_CHECKING:
    import altair as alt
    from matplotlib.axes import Axes

# For Vega, over its parameters and a field `step`.
EQUATION_3 = "factor * pow(d_model, -0.5) * min(pow(datum.step, -0.5), datum.step * pow(warmup, -1.5))"


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


def plot_used_rate(
    used: Sequence[tuple[int, float]],
    d_model: int,
    warmup: int,
    factor: float = 1.0,
    ax: "Axes | None" = None,
) -> "Axes":
    """What a run used, as (update, learning rate) pairs, dotted over the schedule that it was given.

    Raises ValueError if nothing was recorded.
    """
    if not used:
        raise ValueError("plot_used_rate needs at least one (update, learning rate)")
    ax = axes_or_new(ax)
    colours = palette()
    shown = drawn_steps(max(step for step, _ in used), warmup)
    ax.plot(
        shown, [rate(step, d_model, factor, warmup) for step in shown], color=colours[0], label="equation 3"
    )
    ax.plot(*zip(*used, strict=True), "o", color=colours[1], ms=6, label="the run")
    format_axes(ax)
    ax.legend(frameon=False)
    ax.set(title="Learning rate: the schedule and the run", xlabel="update", ylabel="learning rate")
    return ax


def format_axes(ax: "Axes") -> None:
    """Thousands of updates with their comma, rates as multiples of a power of ten."""
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.locator_params(axis="x", nbins=6)
    ax.ticklabel_format(axis="y", style="sci", scilimits=(0, 0), useMathText=True)


def drawn_steps(steps: int, warmup: int) -> list[int]:
    """Some 400 of the steps 1 to `steps`, the last and the peak, the curve's corner, among them."""
    shown = {*range(1, steps + 1, max(1, steps // 400)), steps}
    return sorted(shown | {warmup} if warmup <= steps else shown)


def explore_schedule(
    d_model: int = 512, warmup: int = 4000, factor: float = 1.0, steps: int = 20000
) -> "alt.LayerChart":
    """The schedule with sliders, the peak marked and named; Vega computes equation 3 itself.

    Parameters: `d_model`, `warmup`, `factor`; their first values are given.
    Raises ValueError unless all are positive and the peak lies within `steps`.
    """
    if not 1 <= warmup <= steps or d_model < 1 or factor <= 0:
        raise ValueError(
            f"need d_model >= 1, factor > 0 and warmup from 1 to steps={steps}, "
            f"not {d_model}, {factor} and {warmup}"
        )
    alt = load("altair")
    axis = alt.Axis(format=",d")
    x = alt.X("step:Q", title="update", axis=axis, scale=alt.Scale(domain=[0, steps], nice=False))
    y = alt.Y("rate:Q", title="learning rate", axis=alt.Axis(format=".1e"))
    stride = max(1, steps // 400)
    curve = alt.Chart(alt.sequence(1, steps + 1, stride, as_="step")).transform_calculate(rate=EQUATION_3)
    peak = (
        alt.Chart(alt.sequence(0, 1, as_="one"))
        .transform_calculate(step="warmup")
        .transform_calculate(rate=EQUATION_3)
        .transform_calculate(name="'peak ' + format(datum.rate, '.2e') + ' at ' + format(warmup, ',')")
    )
    marks = (
        curve.mark_line(strokeWidth=2.5, color=palette()[0]).encode(x=x, y=y),
        peak.mark_circle(size=120, opacity=1, color=palette()[1]).encode(x=x, y=y),
        peak.mark_text(align="left", dx=10, dy=-8).encode(x=x, y=y, text="name:N"),
    )
    sliders = rate_sliders(d_model, warmup, factor, steps)
    return alt.layer(*marks, title="Learning rate (equation 3)").add_params(*sliders)


def rate_sliders(d_model: int, warmup: int, factor: float, steps: int) -> "list[alt.Parameter]":
    """What equation 3 depends on, to be moved by the reader."""
    alt = load("altair")
    return [
        alt.param(
            name=name, value=value, bind=alt.binding_range(min=low, max=high, step=by, name=f"{name}: ")
        )
        for name, value, low, high, by in (
            ("d_model", d_model, 64, 2048, 64),
            ("warmup", warmup, 100, steps, 100),
            ("factor", factor, 0.1, 4, 0.1),
        )
    ]
