"""Curves of training (section 5): loss and learning rate."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from annotated.plots.drawing import axes_or_new, palette, plt
from annotated.schedule import rate

# A line of a run's log.jsonl, or what a notebook kept: `step`, and measurements that differ between lines.
Record = Mapping[str, float]


def plot_learning_curves(
    records: Sequence[Record] | str | Path,
    floor: float | None = None,
    axes: "Sequence[plt.Axes] | None" = None,
    title: str = "Loss",
) -> np.ndarray:
    """Draw the loss, in training and in validation, and beside it the learning rate.

    `records` have `step` (updates, from 1) and any of `loss`, `validation_loss` (nats a token), `rate`; or
    they are the folder of a run, whose log has them, or that log. `floor`, what the loss cannot go below, is
    a dotted line. Returns both axes. Raises ValueError if no record has a `loss`, or none has a `rate`.
    """
    if isinstance(records, str | Path):
        log = Path(records, "log.jsonl") if Path(records).is_dir() else Path(records)
        records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if line.strip()]
    trained, used = _curve(records, "loss"), _curve(records, "rate")
    if axes is None:
        axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")[1]
    losses, rates = axes
    colors = palette()
    losses.plot(*trained, color=colors[0], label="training (dropout on)")
    if any("validation_loss" in record for record in records):
        validated, label = _curve(records, "validation_loss"), "validation (dropout off)"
        losses.plot(*validated, "o--", ms=5, color=colors[1], label=label)
    if floor is not None:
        losses.axhline(floor, color="black", linestyle=":", label=f"floor, {floor:.3f}")
    losses.set(title=title, xlabel="update", ylabel="loss (nats a target token)", ylim=(0, None))
    losses.legend(frameon=False)
    rates.plot(*used, color=colors[2])
    rates.set(title="Learning rate (equation 3)", xlabel="update", ylabel="learning rate", ylim=(0, None))
    for ax in axes:
        ax.xaxis.set_major_formatter("{x:,.0f}")
        ax.grid(True)
    return np.asarray(axes)


def _curve(records: Sequence[Record], name: str) -> tuple[list[float], list[float]]:
    """Return steps and values of a measurement, from the records that have it; ValueError if none has."""
    found = [record for record in records if name in record]
    if not found:
        raise ValueError(f"none of the {len(records)} records has a {name!r}")
    return [record["step"] for record in found], [record[name] for record in found]


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
