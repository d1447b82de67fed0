"""Pictures of a training run: loss and learning rate, and what accuracy hides (sections 5.3 and 5.4)."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from annotated.plots.drawing import axes_or_new, load, palette

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
