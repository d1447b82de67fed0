"""What every picture of queries and keys shares: query down, key across, a token on each row and column."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def check_tokens(grid: Tensor, queries: Sequence[str], keys: Sequence[str]) -> None:
    """Raise ValueError unless `grid` is (queries, keys): a token on the wrong axis tells a wrong story."""
    wanted = (len(queries), len(keys))
    if tuple(grid.shape) != wanted:
        raise ValueError(
            f"{wanted[0]} queries (down) and {wanted[1]} keys (across) need a grid of shape {wanted}, "
            f"not {tuple(grid.shape)}"
        )


def label_tokens(ax: "Axes", queries: Sequence[str], keys: Sequence[str]) -> None:
    """Write the tokens on an image's axes: queries down the left side, keys along the foot."""
    ax.set_xticks(range(len(keys)), keys, rotation=45, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(queries)), queries)
    ax.tick_params(length=0)
    ax.set_xlabel("key")
    ax.set_ylabel("query")


def draw_cell_borders(ax: "Axes", rows: int, columns: int) -> None:
    """Draw white lines between the cells of an image, so that they can be counted."""
    ax.set_xticks([x - 0.5 for x in range(1, columns)], minor=True)
    ax.set_yticks([y - 0.5 for y in range(1, rows)], minor=True)
    ax.grid(True, which="minor", color="white", linewidth=1.5)
    ax.tick_params(which="minor", length=0)
    ax.spines[:].set_visible(False)
