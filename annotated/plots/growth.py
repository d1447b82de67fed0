"""Attention maps over training, as stills in rows: the copy task's diagonal grows."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from annotated.plots.drawing import load
from annotated.plots.grids import check_tokens, draw_cell_borders, label_tokens

if TYPE_CHECKING:
    import numpy as np

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
