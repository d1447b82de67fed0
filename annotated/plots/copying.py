"""Attention maps over training: a row of stills, or a slider through all (the copy task's diagonal)."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from annotated.plots.drawing import load
from annotated.plots.grids import check_tokens, draw_cell_borders, label_tokens

if TYPE_CHECKING:
    import altair as alt
    import numpy as np

CELL = 15  # pixels
COLUMNS = 3  # panels in a row


def plot_growth(
    snapshots: Mapping[int, Tensor],
    queries: Sequence[str],
    keys: Sequence[str],
    title: str = "One head over training",
) -> "np.ndarray":
    """Draw one head's weights at several updates, three in a row, on one scale from 0 to 1.

    `snapshots` holds (queries, keys) by update, and is drawn in its order. Returns the axes, one for each.
    Raises ValueError if there are none, or one does not fit the tokens.
    """
    if not snapshots:
        raise ValueError("plot_growth needs at least one snapshot")
    rows = math.ceil(len(snapshots) / COLUMNS)
    figure, axes = load("matplotlib.pyplot").subplots(
        rows, COLUMNS, figsize=(10.5, 3.3 * rows), squeeze=False, layout="constrained"
    )
    for i, (ax, (step, weights)) in enumerate(zip(axes.flat, snapshots.items(), strict=False)):
        check_tokens(weights, queries, keys)
        image = ax.imshow(weights.detach().cpu().numpy(), cmap="viridis", vmin=0.0, vmax=1.0)
        label_tokens(ax, queries, keys)
        ax.set_xticks(range(len(keys)), keys, rotation=0, ha="center")
        draw_cell_borders(ax, len(queries), len(keys))
        ax.set_title(f"update {step:,}")
        ax.set_xlabel("key" if i + COLUMNS >= len(snapshots) else "")
        ax.set_ylabel("" if i % COLUMNS else "query")
    for ax in axes.flat[len(snapshots) :]:
        ax.set_axis_off()
    figure.colorbar(image, ax=axes, label="weight", shrink=0.7)
    figure.suptitle(title)
    return axes.flat[: len(snapshots)]


def explore_growth(
    snapshots: Mapping[int, Sequence[Tensor]],
    queries: Sequence[str],
    keys: Sequence[str],
    start: int | None = None,
) -> "alt.FacetChart":
    """Every layer and head at one update, query down and key across, with a slider through the updates.

    Args:
        snapshots: by update, evenly spaced, a tensor (h, queries, keys) for each layer, the first first.
        queries, keys: the tokens down the side and along the foot of each panel.
        start: the update that is shown first; the last if None.

    Parameter: `update`. Raises ValueError if the updates are not evenly spaced, `start` is none of them, or a
    map does not fit the tokens.
    """
    alt = load("altair")
    steps = sorted(snapshots)
    start = steps[-1] if steps and start is None else start
    if len({b - a for a, b in pairwise(steps)}) != 1 or start not in steps:
        raise ValueError(f"need two or more updates, evenly spaced, {start} among them, not {steps}")
    slider = alt.binding_range(min=steps[0], max=steps[-1], step=steps[1] - steps[0], name="update ")
    update = alt.param(name="update", value=start, bind=slider)
    return (
        alt.Chart(alt.Data(values=growth_rows(snapshots, queries, keys)))
        .transform_filter("datum.update == update")
        .transform_calculate(key="sequence(length(datum.weights))")
        .transform_flatten(["weights", "key"], as_=["weight", "key"])
        .transform_calculate(looks=f"{list(queries)}[datum.query]", at=f"{list(keys)}[datum.key]")
        .mark_rect()
        .encode(
            x=alt.X("key:O", title="key", axis=token_axis(keys)),
            y=alt.Y("query:O", title="query", axis=token_axis(queries)),
            color=alt.Color("weight:Q", title="weight", scale=alt.Scale(scheme="viridis", domain=[0, 1])),
            tooltip=[
                alt.Tooltip("looks:N", title="query"),
                alt.Tooltip("at:N", title="key"),
                alt.Tooltip("weight:Q", format=".2f"),
            ],
        )
        .properties(width=alt.Step(CELL), height=alt.Step(CELL))
        .facet(row=panel_names("layer", "Row"), column=panel_names("head", "Column"), spacing=12)
        .properties(title="Every layer and head over training")
        .add_params(update)
    )


def panel_names(name: str, channel: Literal["Row", "Column"]) -> Any:
    """Facets by `name`, each headed by the name and its number."""
    alt = load("altair")
    header = alt.Header(title=None, labelExpr=f"'{name} ' + datum.value")
    return getattr(alt, channel)(f"{name}:O", header=header)


def token_axis(tokens: Sequence[str]) -> "alt.Axis":
    """An axis of positions that shows a token for each."""
    return load("altair").Axis(
        labelExpr=f"{list(tokens)}[datum.value]", labelAngle=0, labelFontSize=11, ticks=False, domain=False
    )


def growth_rows(
    snapshots: Mapping[int, Sequence[Tensor]], queries: Sequence[str], keys: Sequence[str]
) -> list[dict[str, Any]]:
    """A record for each query of each head, layers and heads counted from 1; weights to 2 decimals."""
    rows = []
    for update, layers in sorted(snapshots.items()):
        for layer, heads in enumerate(layers, start=1):
            for head, weights in enumerate(heads, start=1):
                check_tokens(weights, queries, keys)
                where = {"update": update, "layer": layer, "head": head}
                rows += [
                    {**where, "query": t, "weights": [round(w, 2) for w in row]}
                    for t, row in enumerate(weights.tolist())
                ]
    return rows
