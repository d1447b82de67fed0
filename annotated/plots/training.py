"""Pictures of training (section 5): loss, learning rate, gradients, accuracy, label smoothing."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from annotated.fast import target_entropy
from annotated.plots.drawing import as_array, axes_or_new, check_names, load, palette
from annotated.transformer.loss import check_smoothing
from annotated.transformer.schedule import rate

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes


# So that runs can be told apart without colour, too.
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
# A line of a run's log.jsonl, or what a notebook kept: `step`, and measurements that differ between lines.
Record = Mapping[str, float]


def plot_learning_curves(
    records: Sequence[Record] | str | Path,
    floor: float | None = None,
    axes: "Sequence[Axes] | None" = None,
    title: str = "Loss",
) -> "np.ndarray":
    """Draw the loss, in training and in validation, and beside it the learning rate.

    Args:
        records: with `step` (updates, from 1) and any of `loss`, `validation_loss` (nats a token), `rate`;
            or the folder of a run, whose log has them, or that log.
        floor: what the loss cannot go below, drawn as a dashed line.
        axes: two to draw on, for losses and rate; a new figure if None.

    Returns both axes. Raises ValueError if no record has a `loss`, or none has a `rate`.
    """
    import numpy as np

    if isinstance(records, str | Path):
        records = read_log(records)
    trained, used = curve(records, "loss"), curve(records, "rate")
    if axes is None:
        axes = load("matplotlib.pyplot").subplots(1, 2, figsize=(11, 4.2), layout="constrained")[1]
    losses, rates = axes
    colours = palette()
    losses.plot(*trained, color=colours[0], label="training (dropout on)")
    if any("validation_loss" in record for record in records):
        losses.plot(
            *curve(records, "validation_loss"),
            "o--",
            ms=5,
            color=colours[1],
            label="validation (dropout off)",
        )
    if floor is not None:
        losses.axhline(floor, color="black", linestyle=":", label=f"floor, {floor:.3f}")
    losses.set(title=title, xlabel="update", ylabel="loss (nats a target token)", ylim=(0, None))
    losses.legend(frameon=False)
    rates.plot(*used, color=colours[2])
    rates.set(title="Learning rate (equation 3)", xlabel="update", ylabel="learning rate", ylim=(0, None))
    for ax in axes:
        ax.xaxis.set_major_formatter("{x:,.0f}")
        ax.grid(True)
    return np.asarray(axes)


def plot_accuracies(records: Sequence[Record], length: int, ax: "Axes | None" = None) -> "Axes":
    """Draw the share of tokens that are right beside the share of sequences that are right from end to end.

    `records` have `step`, `token_accuracy` and `exact_match`, both from 0 to 1; `length` is how many tokens
    a sequence needs. A dotted line shows token_accuracy ** length: what mistakes that fall independently
    would leave. Raises ValueError if a measurement is in no record, or `length` is below 1.
    """
    if length < 1:
        raise ValueError(f"a sequence has at least 1 token, not {length}")
    ax = axes_or_new(ax)
    colours = palette()
    steps, tokens = curve(records, "token_accuracy")
    ax.plot(steps, [100 * share for share in tokens], "o-", ms=5, color=colours[0], label="tokens right")
    steps_exact, exact = curve(records, "exact_match")
    ax.plot(
        steps_exact, [100 * share for share in exact], "s--", ms=5, color=colours[1], label="sequences right"
    )
    chance = [100 * share**length for share in tokens]
    ax.plot(steps, chance, ":", color="black", label=f"(tokens right) to the power {length}")
    ax.set(
        title="Most tokens right, few sequences right", xlabel="update", ylabel="right (%)", ylim=(-3, 103)
    )
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.grid(True)
    ax.legend(frameon=False, loc="lower right")
    return ax


def plot_losses(
    runs: Mapping[str, Sequence[float]],
    window: int = 10,
    ax: "Axes | None" = None,
    title: str = "Training loss",
) -> "Axes":
    """Draw the losses of several runs, each point the mean of the `window` updates up to it.

    `runs` holds by name the loss of each update (nats a token), from the first on. Raises ValueError if there
    is no run or more than can be told apart, or one has fewer losses than `window`.
    """
    if not 1 <= len(runs) <= len(LINES):
        raise ValueError(f"from 1 to {len(LINES)} runs can be told apart, not {len(runs)}")
    ax = axes_or_new(ax)
    for (name, losses), line, colour in zip(runs.items(), LINES, palette(), strict=False):
        if not 1 <= window <= len(losses):
            raise ValueError(f"{name}: {len(losses)} losses are too few for means of {window}")
        means = [sum(losses[i - window : i]) / window for i in range(window, len(losses) + 1)]
        ax.plot(range(window, len(losses) + 1), means, linestyle=line, lw=2.5, color=colour, label=name)
    ax.set(title=title, xlabel="update", ylabel="loss (nats a target token)", ylim=(0, None))
    ax.grid(True)
    ax.legend(frameon=False)
    return ax


def read_log(run: str | Path) -> list[Record]:
    """Read the log of a run, from its folder or from the file itself. Raises FileNotFoundError."""
    path = Path(run) / "log.jsonl" if Path(run).is_dir() else Path(run)
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def curve(records: Sequence[Record], name: str) -> tuple[list[float], list[float]]:
    """Steps and values of a measurement, from the records that have it. Raises ValueError if none has."""
    points = [(record["step"], record[name]) for record in records if name in record]
    if not points:
        raise ValueError(f"none of the {len(records)} records has a {name!r}")
    steps, values = zip(*points, strict=True)
    return list(steps), list(values)


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
        # Some 400 steps, the last and the peak, which is the curve's corner, among them.
        shown = sorted({*range(1, steps + 1, max(1, steps // 400)), steps, warmup})
        label = f"d_model {d_model:,}, warm-up {warmup:,}"
        ax.plot(shown, [rate(step, d_model, factor, warmup) for step in shown], color=colour, label=label)
        ax.plot(warmup, rate(warmup, d_model, factor, warmup), "o", color=colour, ms=9)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.locator_params(axis="x", nbins=6)
    ax.ticklabel_format(axis="y", style="sci", scilimits=(0, 0), useMathText=True)
    ax.legend(frameon=False)
    ax.set(title="Learning rate, peak at the end of the warm-up", xlabel="update", ylabel="learning rate")
    return ax


def plot_gradient_norms(norms: Mapping[str, Sequence[float]], ax: "Axes | None" = None) -> "Axes":
    """The gradient's norm in each layer, the one nearest the input first; a curve for each kind of model.

    Raises ValueError for a norm that is not positive: it has no place on a logarithmic axis.
    """
    for name, values in norms.items():
        if not len(values) or min(values) <= 0:
            raise ValueError(f"gradient norms must be positive, one a layer; {name!r} has {list(values)}")
    ax = axes_or_new(ax)
    for (name, values), colour, marker in zip(norms.items(), palette(len(norms)), "os^Dv", strict=False):
        ax.plot(range(1, len(values) + 1), values, marker=marker, ms=8, color=colour, label=name)
    ax.set_yscale("log")
    ax.set_xticks(range(1, max(map(len, norms.values())) + 1))
    ax.legend(frameon=False)
    ax.set(
        title="Gradient in each layer", xlabel="layer (1 is nearest the input)", ylabel="norm of the gradient"
    )
    return ax


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
    ax.set_yticks([y + 0.5 for y in range(len(values))], map(str, range(len(values))), rotation=0)
    ax.set(title="Target distributions", xlabel="symbol", ylabel="target position")
    return ax
