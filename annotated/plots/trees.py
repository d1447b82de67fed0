"""Trees as pictures: constituents (section 6.3), and the beginnings that beam search weighs (section 6.1)."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from annotated.data.trees import Tree, is_word, labelled_spans
from annotated.plots.drawing import axes_or_new, load
from annotated.translation.decoding import Candidate

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


FATES = {"kept": ("#d6e8f5", "#0173b2"), "dropped": ("#ffffff", "#8a8a8a"), "ended": ("#fbe3c0", "#b87503")}


def plot_beam(
    steps: Sequence[Sequence[Candidate]],
    winner: Sequence[int],
    pieces: Callable[[Sequence[int]], Sequence[str]],
    ax: "Axes | None" = None,
) -> "Axes":
    """The tree of one search: a column for each step, the likeliest on top, the winner's path heavy.

    Args:
        steps: for each step the candidates, likeliest first, as `beam_search` shows them to its watcher.
        winner: the tokens of the hypothesis that was returned, without the end symbol.
        pieces: turns tokens into what is written on them, such as `tokenizer.pieces`.

    Raises ValueError for a candidate that continues nothing which was kept, or a winner that never ended.
    """
    places = place_candidates(steps)
    path = winning_path(steps, winner)
    ranks = max(len(step) for step in steps)
    ax = axes_or_new(ax, 1.6 * len(steps) + 2, 0.75 * ranks + 1.4)
    ax.text(0, 0, "start", ha="center", va="center", bbox={"boxstyle": "round", "fc": "white", "ec": INK})
    for candidate in (candidate for step in steps for candidate in step):
        parent, place, won = places[candidate.tokens[:-1]], places[candidate.tokens], candidate.tokens in path
        ax.plot(
            *zip(parent, place, strict=True),
            color=INK if won else "#aaaaaa",
            lw=4 if won else 1.2,
            ls=":" if candidate.fate == "dropped" else "-",
        )
        text = f"{pieces(candidate.tokens[-1:])[0]}\n{candidate.log_prob:.2f}".replace("-", "−")
        draw_node(ax, place, text, candidate.fate, won)
    return finish_tree(ax, len(steps), ranks)


def draw_node(ax: "Axes", place: tuple[int, int], text: str, fate: str, won: bool) -> None:
    """One box of the tree."""
    fill, line = FATES[fate]
    box = {"boxstyle": "round", "fc": fill, "ec": INK if won else line, "lw": 2.5 if won else 1.2}
    colour = SOFT if fate == "dropped" else INK
    ax.text(*place, text, ha="center", va="center", fontsize=11, color=colour, bbox=box)


def finish_tree(ax: "Axes", steps: int, ranks: int) -> "Axes":
    """Legend, title, and room for the outermost boxes."""
    patch, line = load("matplotlib.patches").Patch, load("matplotlib.lines").Line2D
    handles = [patch(fc=fill, ec=line, label=fate) for fate, (fill, line) in FATES.items()]
    handles.append(line([], [], color=INK, lw=4, label="the winner"))
    ax.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=4, frameon=False)
    ax.set(title="Beam search: log-probability of each beginning", xlabel="step", ylabel="rank in its step")
    ax.set_xticks(range(1, steps + 1))
    ax.yaxis.set_major_locator(load("matplotlib.ticker").MaxNLocator(integer=True))
    ax.set_ylim(ranks - 0.4, -0.6)
    ax.margins(x=0.08)
    return ax


def place_candidates(steps: Sequence[Sequence[Candidate]]) -> dict[tuple[int, ...], tuple[int, int]]:
    """Where each beginning is drawn, by its tokens: (step, rank), the start at (0, 0)."""
    if not steps or not all(steps):
        raise ValueError("a beam tree needs at least one step, and candidates in each")
    places, kept = {(): (0, 0)}, {()}
    for step, candidates in enumerate(steps, start=1):
        for rank, candidate in enumerate(candidates):
            if candidate.tokens[:-1] not in kept:
                raise ValueError(f"{candidate.tokens} in step {step} continues nothing that was kept")
            places[candidate.tokens] = (step, rank)
        kept = {candidate.tokens for candidate in candidates if candidate.fate == "kept"}
    return places


def winning_path(steps: Sequence[Sequence[Candidate]], winner: Sequence[int]) -> set[tuple[int, ...]]:
    """The beginnings of the winner, its ended candidate among them."""
    tokens = tuple(winner)
    ends = [c.tokens for step in steps for c in step if c.fate == "ended" and c.tokens[:-1] == tokens]
    if not ends:
        raise ValueError(f"the winner {tokens} is none of the hypotheses that ended")
    return {ends[0][:length] for length in range(1, len(ends[0]) + 1)}
