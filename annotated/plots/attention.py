"""Attention in pictures: its weights, query down and key across, over training too; alignments; heads."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from annotated.plots.drawing import as_array, axes_or_new, check_names, load, palette
from annotated.plots.grids import check_tokens, draw_cell_borders, label_tokens

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes


MOST_NUMBERED = 150  # cells; with more of them, a number in each is too small to read
LEAST_NUMBERED = 0.05  # a weight below this is not worth its ink


def plot_attention(
    weights: Tensor,
    queries: Sequence[str],
    keys: Sequence[str],
    ax: "Axes | None" = None,
    title: str = "Attention weights",
) -> "Axes":
    """Draw the weights of one head, with its numbers where there is room for them.

    Args:
        weights: (queries, keys), each row summing to 1 (or to 0, for a query that may see nothing).
        queries, keys: the tokens down the side and along the foot.
        ax: where to draw; a new figure if None.

    Raises ValueError if the weights do not fit the tokens.
    """
    check_tokens(weights, queries, keys)
    ax = axes_or_new(ax, 0.65 * len(keys) + 3.0, 0.5 * len(queries) + 1.6)
    image = _draw(ax, weights, queries, keys)
    if weights.numel() <= MOST_NUMBERED:
        _write_numbers(ax, weights)
    ax.figure.colorbar(image, ax=ax, label="weight")
    ax.set_title(title)
    return ax


def plot_heads(
    maps: Sequence[Tensor] | Tensor,
    queries: Sequence[str],
    keys: Sequence[str],
    title: str = "Attention weights of every layer and head",
) -> "np.ndarray":
    """Draw every head of every layer: layers down, heads across, all on one scale from 0 to 1.

    `maps` holds a tensor (h, queries, keys) for each layer, the first layer first.
    Returns the axes, an array (layers, h). Raises ValueError if there are no maps, or one does not fit the
    tokens or has another h.
    """
    if len(maps) == 0 or any(layer.dim() != 3 or len(layer) != len(maps[0]) for layer in maps):
        shapes = [tuple(layer.shape) for layer in maps]
        raise ValueError(f"plot_heads needs a tensor (h, queries, keys) for each layer, not {shapes}")
    rows, columns = len(maps), len(maps[0])
    size = (0.3 * len(keys) * columns + 2.5, 0.25 * len(queries) * rows + 2.0)
    plt = load("matplotlib.pyplot")
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, sharex=True, sharey=True)
    for i, layer in enumerate(maps):
        for j, head in enumerate(layer):
            check_tokens(head, queries, keys)
            image = _draw(axes[i, j], head, queries, keys)
            axes[i, j].set_title(f"layer {i + 1}, head {j + 1}", fontsize=12)
            axes[i, j].label_outer()
    figure.colorbar(image, ax=axes, label="weight", shrink=0.6)
    figure.suptitle(title)
    return axes


def plot_by_head(
    panels: Mapping[str, Tensor], title: str = "Layer by layer, head by head", one_scale: bool = False
) -> "np.ndarray":
    """Draw one number for each head: layers down, heads across, a panel for each kind of number.

    Args:
        panels: by name, a tensor (layers, h).
        one_scale: whether the colours of all panels are on one scale; else each goes from its own lowest
            number (dark) to its own highest (bright).

    Returns the axes, one for each panel. Raises ValueError if there is no panel, or one is not (layers, h).
    """
    plt = load("matplotlib.pyplot")
    if not panels:
        raise ValueError("plot_by_head needs at least one panel")
    grids = {name: as_array(grid, 2, f"{name}: (layers, h)") for name, grid in panels.items()}
    rows, columns = next(iter(grids.values())).shape
    size = (len(grids) * (0.85 * columns + 0.9), 0.6 * rows + 1.7)
    low, high = min(grid.min() for grid in grids.values()), max(grid.max() for grid in grids.values())
    limits = {"vmin": low, "vmax": high} if one_scale else {}
    figure, axes = plt.subplots(1, len(grids), figsize=size, squeeze=False, layout="constrained")
    for ax, (name, grid) in zip(axes[0], grids.items(), strict=True):
        image = ax.imshow(grid, cmap="viridis", aspect="auto", **limits)
        label_tokens(ax, *([str(n + 1) for n in range(count)] for count in grid.shape))
        ax.tick_params(axis="x", rotation=0)
        ax.set(xlabel="head", ylabel="layer", title=name)
        draw_cell_borders(ax, *grid.shape)
        for (layer, head), number in load("numpy").ndenumerate(grid):
            dark = image.norm(number) < 0.55
            text = f"{number:.2f}".replace("-0.00", "0.00")
            ax.text(head, layer, text, ha="center", va="center", color="white" if dark else "black")
    figure.suptitle(title)
    return axes[0]


def plot_soft_lookup(
    places: Sequence[float],
    values: Sequence[float],
    asked: Sequence[float],
    answers: Mapping[str, Tensor],
    ax: "Axes | None" = None,
    xlabel: str = "what is asked for",
    ylabel: str = "what comes back",
    title: str = "A look-up becoming soft",
    known: str = "in the table",
) -> "Axes":
    """Draw a table's entries as points, and over them what each kind of look-up answers.

    `places` and `values` are the table, called `known` in the legend; `answers` has, by name, one answer for
    each place `asked`, the softest first. Raises ValueError if lengths differ.
    """
    wrong = [name for name, curve in answers.items() if len(curve) != len(asked)]
    if wrong or len(places) != len(values):
        raise ValueError(
            f"each of {len(places)} places needs a value, and each of {len(asked)} questions an answer"
        )
    ax = axes_or_new(ax)
    shades = load("seaborn").color_palette("viridis", len(answers))
    for (name, curve), shade in zip(answers.items(), shades, strict=True):
        ax.plot(asked, curve.tolist(), color=shade, label=name)
    ax.plot(places, values, "o", color="black", markersize=9, label=known)
    ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
    ax.grid(True)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return ax


def _draw(ax: "Axes", weights: Tensor, queries: Sequence[str], keys: Sequence[str]) -> Any:
    """Draw the cells, on a scale from 0 to 1 whatever the largest weight is, so that pictures compare."""
    image = ax.imshow(weights.detach().cpu().numpy(), cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto")
    label_tokens(ax, queries, keys)
    draw_cell_borders(ax, len(queries), len(keys))
    return image


def _write_numbers(ax: "Axes", weights: Tensor) -> None:
    """Write each weight that counts into its cell, light on dark and dark on light."""
    for t, row in enumerate(weights.tolist()):
        for s, weight in enumerate(row):
            if weight >= LEAST_NUMBERED:
                colour = "black" if weight > 0.48 else "white"
                ax.text(s, t, f"{weight:.2f}", ha="center", va="center", color=colour, fontsize=11)


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


COLUMNS = 3  # panels in a row


def plot_growth(
    snapshots: Mapping[int, Tensor],
    queries: Sequence[str],
    keys: Sequence[str],
    title: str = "One head over training",
) -> "np.ndarray":
    """Draw one head's weights at several updates, `COLUMNS` in a row, on one scale from 0 to 1.

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
        image = _draw(ax, weights, queries, keys)
        ax.set_aspect("equal")
        ax.set_xticks(range(len(keys)), keys, rotation=0, ha="center")
        ax.set_title(f"update {step:,}")
        ax.set_xlabel("key" if i + COLUMNS >= len(snapshots) else "")
        ax.set_ylabel("" if i % COLUMNS else "query")
    for ax in axes.flat[len(snapshots) :]:
        ax.set_axis_off()
    figure.colorbar(image, ax=axes, label="weight", shrink=0.7)
    figure.suptitle(title)
    return axes.flat[: len(snapshots)]


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
