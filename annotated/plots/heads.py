"""Pictures of what happens inside multi-head attention: the way through the four linears, and the cut."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Size, Tensor

from annotated.plots.drawing import COLOURS, check_names, load, palette

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes

# The three lanes of `plot_flow`, from the foot up, and what follows where they meet.
LANES = {"query": 2, "key": 1, "value": 0}
LINEARS = {"query": "$W^Q$", "key": "$W^K$", "value": "$W^V$"}
STEPS = ("attention", "heads", "joined", "output")
GAP = 0.5  # between the heads of a panel, and on each side of it; a cell is 1
FILL = {kind: COLOURS[kind][0] for kind in ("network", "attention", *LANES)}


def flow_names() -> list[str]:
    """The shapes that `plot_flow` asks for, in the order in which a forward pass meets them."""
    lanes = [f"{name}{step}" for name in LANES for step in ("", " projected", " heads")]
    return [*lanes, *STEPS]


def plot_flow(
    shapes: Mapping[str, Size | Sequence[int]], title: str = "Multi-head attention, shape by shape"
) -> "Axes":
    """Draw the way of query, key and value through the four linears, with the shape after each step.

    `shapes` has, by the names of `flow_names`: each input; its projection; its heads; the weights
    ("attention"), the heads' outputs ("heads"), those laid side by side ("joined"), and the output.
    Raises ValueError that names the shapes missing.
    """
    missing = [name for name in flow_names() if name not in shapes]
    if missing:
        raise ValueError(f"plot_flow needs the shape of {', '.join(missing)}")
    _, ax = load("matplotlib.pyplot").subplots(figsize=(13.5, 4.4), layout="constrained")
    written = {name: str(tuple(shape)) for name, shape in shapes.items()}
    for name, lane in LANES.items():
        _draw_lane(ax, name, lane, written)
    words = f"attention\nper head\n\nweights\n{written['attention']}"
    _box(ax, 8.15, -0.45, 1.75, 2.9, words, "attention")
    _arrow(ax, 9.9, 11.5, 1, written["heads"])
    _box(ax, 11.5, 0.78, 0.75, 0.44, "join", "")
    _arrow(ax, 12.25, 13.85, 1, written["joined"])
    _box(ax, 13.85, 0.7, 0.8, 0.6, "$W^O$", "network")
    _arrow(ax, 14.65, 15.2, 1)
    _label(ax, 15.25, 1, "output", written["output"], "left")
    ax.set(xlim=(-0.1, 16.6), ylim=(-0.6, 2.6), title=title)
    ax.axis("off")
    return ax


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


def _draw_lane(ax: "Axes", name: str, lane: int, written: Mapping[str, str]) -> None:
    """One input's way to the heads."""
    _label(ax, 1.25, lane, name, written[name], "right")
    _arrow(ax, 1.35, 1.9, lane)
    _box(ax, 1.9, lane - 0.3, 0.8, 0.6, LINEARS[name], name)
    _arrow(ax, 2.7, 4.9, lane, written[f"{name} projected"])
    _box(ax, 4.9, lane - 0.22, 0.75, 0.44, "cut", "")
    _arrow(ax, 5.65, 8.15, lane, written[f"{name} heads"])


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


def _box(ax: "Axes", x: float, y: float, width: float, height: float, text: str, kind: str) -> None:
    patches = load("matplotlib.patches")
    style = "round,pad=0,rounding_size=0.08"
    face = FILL.get(kind, "white")
    box = patches.FancyBboxPatch((x, y), width, height, boxstyle=style, facecolor=face, edgecolor="#444444")
    ax.add_patch(box)
    ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=14)


def _arrow(ax: "Axes", start: float, end: float, y: float, shape: str = "") -> None:
    ax.annotate("", (end, y), (start, y), arrowprops={"arrowstyle": "-|>", "color": "#222222", "lw": 1.6})
    ax.text((start + end) / 2, y - 0.09, shape, ha="center", va="top", fontsize=13)


def _label(ax: "Axes", x: float, y: float, name: str, shape: str, side: str) -> None:
    ax.text(x, y + 0.03, name, ha=side, va="bottom", fontsize=14, fontweight="bold")
    ax.text(x, y - 0.03, shape, ha=side, va="top", fontsize=13)
