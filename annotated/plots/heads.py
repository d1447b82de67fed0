"""Where the numbers of a sentence go when multi-head attention cuts them into heads."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from annotated.plots.drawing import check_names, load, palette

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes

GAP = 0.5  # between the heads of a panel, and on each side of it; a cell is 1


def plot_split(pieces: Mapping[str, Tensor], words: Sequence[str], width: int) -> "np.ndarray":
    """Draw where the numbers of a sentence go when it is cut into heads: one panel for each way of cutting.

    Args:
        pieces: int (blocks, rows, columns) for each way, by its title. An entry is a number's place in
            memory, and so belongs to word number `entry // width`, which gives its colour.
        words: the sentence.
        width: how many numbers each word has.

    Returns the axes, one for each way. Raises ValueError if an entry belongs to no word.
    """
    plt = load("matplotlib.pyplot")
    check_names(words, max(int(numbers.max()) for numbers in pieces.values()) // width + 1, "words")
    figure, axes = plt.subplots(1, len(pieces), figsize=(4.6 * len(pieces), 3.0), squeeze=False)
    colours = palette(len(words))
    for ax, (title, blocks) in zip(axes[0], pieces.items(), strict=True):
        _draw_blocks(ax, blocks, colours, width)
        ax.set_title(title)
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour, alpha=0.55) for colour in colours]
    figure.legend(handles, words, loc="outside lower center", ncols=len(words), frameon=False)
    return axes[0]


def _draw_blocks(ax: "Axes", blocks: Tensor, colours: Sequence[str], width: int) -> None:
    """Blocks side by side with a gap; a cell for each number, its place in memory written into it."""
    plt = load("matplotlib.pyplot")
    for b, block in enumerate(blocks.tolist()):
        left = b * (len(block[0]) + GAP)
        for t, row in enumerate(block):
            for j, place in enumerate(row):
                cell = plt.Rectangle((left + j, t), 1, 1, facecolor=colours[place // width], alpha=0.55)
                cell.set(edgecolor="white", linewidth=1.5)
                ax.add_patch(cell)
                ax.text(left + j + 0.5, t + 0.5, str(place), ha="center", va="center", fontsize=12)
        if len(blocks) > 1:
            ax.text(left + len(block[0]) / 2, -0.15, f"head {b + 1}", ha="center", va="bottom")
    across = len(blocks) * (blocks.size(2) + GAP) - GAP
    ax.set(xlim=(-GAP, across + GAP), ylim=(blocks.size(1), -0.6), aspect="equal")
    ax.axis("off")
