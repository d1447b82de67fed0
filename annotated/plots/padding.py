"""Where the padding of a batch is, and how much there is, by how sentences are put together (section 5.1)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from annotated.plots.drawing import axes_or_new, palette
from annotated.plots.grids import draw_cell_borders

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PADDING, TOKEN = "#e4e4e4", "#56b4e9"  # apart in lightness too, and black can be read on both
Batches = Sequence[Sequence[int]]  # for each batch the lengths of its sentences, in tokens


def wasted_share(batches: Batches) -> float:
    """The share of all places, padded to each batch's longest sentence, that holds padding.

    Raises ValueError if there is no batch, or an empty one.
    """
    if not batches or not all(len(batch) and max(batch) > 0 for batch in batches):
        raise ValueError("padding is counted over batches of at least one sentence, with tokens in it")
    places = sum(len(batch) * max(batch) for batch in batches)
    return 1 - sum(sum(batch) for batch in batches) / places


def plot_padding(ways: Mapping[str, Batches], ax: "Axes | None" = None) -> "Axes":
    """A bar for each way of batching the same sentences: the share of places that is wasted on padding.

    Raises ValueError where the ways do not hold the same tokens, so that they cannot be compared.
    """
    totals = {name: sum(map(sum, batches)) for name, batches in ways.items()}
    if len(set(totals.values())) != 1:
        raise ValueError(f"every way must batch the same sentences, but their tokens are {totals}")
    shares = [100 * wasted_share(batches) for batches in ways.values()]
    ax = axes_or_new(ax, 8.0, 0.8 * len(ways) + 1.6)
    bars = ax.barh(list(ways), shares, color=palette(1)[0])
    ax.bar_label(bars, [f"{share:.1f} %" for share in shares], padding=5)
    ax.invert_yaxis()
    ax.margins(x=0.12)
    ax.set(title="Padding, by way of batching", xlabel="places wasted on padding (%)", ylabel="batches")
    return ax


def plot_tokens(
    tokens: Tensor,
    pad: int,
    names: Sequence[Sequence[str]] | None = None,
    ax: "Axes | None" = None,
    title: str = "The places of a batch",
) -> "Axes":
    """Draw one side of a batch: a row for each sentence, blue where a token stands, grey where padding does.

    Args:
        tokens: integers (batch, len).
        pad: the padding symbol's number.
        names: for each row a name for each place, written into the cells that hold tokens; none if None.
        ax: where to draw; a new figure if None.

    Raises ValueError if the names are not as many as the places.
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    rows, columns = tokens.shape
    if names is not None and [len(row) for row in names] != [columns] * rows:
        raise ValueError(f"{rows} rows of {columns} tokens need as many names, not {[*map(len, names)]}")
    real = (tokens != pad).cpu().numpy()
    ax = axes_or_new(ax) if names is None else axes_or_new(ax, 0.9 * columns + 2.5, 0.5 * rows + 1.2)
    ax.imshow(real, cmap=ListedColormap([PADDING, TOKEN]), vmin=0, vmax=1, aspect="auto")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    if names is not None:
        draw_cell_borders(ax, rows, columns)
        for row, column in zip(*real.nonzero(), strict=True):
            ax.text(column, row, names[row][column], ha="center", va="center", fontsize=11)
    ax.set(title=title, xlabel="position", ylabel="sentence")
    patches = [Patch(color=TOKEN, label="token"), Patch(color=PADDING, label="padding")]
    ax.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return ax
