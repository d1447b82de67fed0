"""Attention beside alignments that are known: does the word looked at say what the word written means?"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from annotated.plots.attention import plot_attention
from annotated.plots.drawing import load

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_alignment(
    weights: Tensor,
    queries: Sequence[str],
    keys: Sequence[str],
    gold: Iterable[tuple[int, int]],
    ax: "Axes | None" = None,
    possible: Iterable[tuple[int, int]] = (),
) -> "Axes":
    """Cross-attention (queries, keys) with a frame round each (query, key) of the gold alignment.

    The merely `possible` pairs of such an alignment get a dashed frame. Raises ValueError where the weights
    do not fit the tokens, or a pair names none of them.
    """
    gold, possible = sorted(set(gold)), sorted(set(possible))
    for query, key in gold + possible:
        if not (0 <= query < len(queries) and 0 <= key < len(keys)):
            raise ValueError(
                f"gold pair ({query}, {key}) is outside {len(queries)} queries, {len(keys)} keys"
            )
    ax = plot_attention(weights, queries, keys, ax, title="Attention and gold alignment (framed)")
    frame = load("matplotlib.patches").Rectangle
    for style, links in (("-", gold), ((0, (2, 1.2)), possible)):
        for query, key in links:
            corner = (key - 0.44, query - 0.44)
            # White under orange: seen on dark cells and on bright ones.
            for colour, width, dashes in (("white", 5, "-"), ("#d55e00", 2.5, style)):
                ax.add_patch(frame(corner, 0.88, 0.88, fill=False, edgecolor=colour, lw=width, ls=dashes))
    return ax
