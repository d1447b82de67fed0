"""Constituency trees as pictures (section 6.3)."""

from itertools import accumulate
from typing import TYPE_CHECKING

from annotated.data.trees import Tree, is_word, labelled_spans
from annotated.plots.drawing import axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, SOFT = "#222222", "#6b6b6b"
RIGHT = {"boxstyle": "round", "fc": "#d6e8f5", "ec": "#0173b2", "lw": 1.2}
WRONG = {"boxstyle": "square", "fc": "#fbe3c0", "ec": "#222222", "lw": 2.8}


def plot_tree(
    tree: Tree, other: Tree | None = None, ax: "Axes | None" = None, title: str = "Constituency tree"
) -> "Axes":
    """Draw a tree, the root on top, its words in a row at the foot.

    A bracket that `other`, a tree of the same sentence, does not have stands in a heavy square box.
    Raises ValueError if the two have different words.
    """
    words, top = tree.leaves(), height(tree)
    if other is not None and other.leaves() != words:
        raise ValueError(f"trees of two sentences: {words} and {other.leaves()}")
    ax = axes_or_new(ax, 0.95 * len(words) + 0.5, 0.75 * top + 0.5)
    missing = labelled_spans(tree) - labelled_spans(other or tree)
    # Spans do not count punctuation: how many words stand before each leaf.
    counted = [0, *accumulate(map(is_word, words))]

    def draw(node: Tree, start: int) -> tuple[float, float]:
        """Draw the constituent that begins at leaf `start`; returns where a line to it ends."""
        if not isinstance(node.children[0], Tree):
            ax.text(start, 0.95, node.label, ha="center", va="center", fontsize=11, color=SOFT)
            ax.text(start, 0.5, node.children[0], ha="center", va="center", fontsize=13, color=INK)
            return start, 1.2
        ends, end = [], start
        for child in node.children:
            ends.append(draw(child, end))
            end += len(child.leaves())
        x, y = (start + end - 1) / 2, height(node)
        for below, foot in ends:  # across and then straight down: so no two lines cross
            ax.plot([x, x, below, below], [y, y - 0.45, y - 0.45, foot], color="#8a8a8a", lw=1.2, zorder=0)
        box = WRONG if (node.label, counted[start], counted[end]) in missing else RIGHT
        ax.text(x, y, node.label, ha="center", va="center", fontsize=12, color=INK, bbox=box)
        return x, y

    draw(tree, 0)
    ax.set(title=title, xlim=(-0.6, len(words) - 0.4), ylim=(0.2, top + 0.5))
    ax.axis("off")
    return ax


def height(tree: Tree) -> int:
    """How many steps the root is above its deepest word."""
    return 1 + max((height(child) for child in tree.children if isinstance(child, Tree)), default=0)
