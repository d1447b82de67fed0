"""How much of each batch is padding, depending on how sentences are put together (section 5.1)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from annotated.plots.drawing import axes_or_new, palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
