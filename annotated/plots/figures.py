"""Figures by matplotlib: attention and masks as heatmaps, beam search as a tree, learning rates as curves."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch
from torch import Tensor

from annotated.plots.drawing import Style, Tokens, as_words, axes_or_new, check_tokens, palette
from annotated.schedule import rate
from annotated.search.beam import Candidate
from annotated.transformer.attention import check_mask

HIDDEN, ALLOWED = "#d9d9d9", "#0173b2"  # light grey and the palette's blue: apart in lightness too
MOST_NUMBERED = 150  # cells; with more of them, a number in each is too small to read
LEAST_NUMBERED = 0.05  # a weight below this is not worth its ink
INK, SOFT = "#222222", "#6b6b6b"
FATES = {"kept": ("#d6e8f5", "#0173b2"), "dropped": ("#ffffff", "#8a8a8a"), "ended": ("#fbe3c0", "#b87503")}


def plot_attention(
    weights: Tensor,
    queries: Tokens,
    keys: Tokens,
    ax: plt.Axes | None = None,
    title: str = "Attention weights",
) -> plt.Axes:
    """Draw the weights of one head (queries, keys), with its numbers where there is room for them.

    Raises ValueError if the weights do not fit the tokens.
    """
    weights = torch.as_tensor(weights).detach().float().cpu()
    check_tokens(weights, queries, keys)
    ax = axes_or_new(ax, 0.65 * len(keys) + 3.0, 0.5 * len(queries) + 1.6)
    # On a scale from 0 to 1 whatever the largest weight is, so that pictures compare.
    image = ax.imshow(weights.numpy(), cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    if weights.numel() <= MOST_NUMBERED:
        for (query, key), weight in np.ndenumerate(weights.numpy()):
            if weight >= LEAST_NUMBERED:
                color = "white" if weight > 0.55 else "black"
                ax.text(key, query, f"{weight:.2f}", ha="center", va="center", fontsize=11, color=color)
    label_tokens(ax, queries, keys)
    ax.figure.colorbar(image, ax=ax, label="weight")
    ax.set_title(title)
    return ax


def plot_mask(
    mask: Tensor,
    queries: Tokens | None = None,
    keys: Tokens | None = None,
    ax: plt.Axes | None = None,
    title: str = "Who may look at whom",
) -> plt.Axes:
    """Draw a mask as a grid of cells: blue where the query may attend to the key, grey where it may not.

    `mask` is bool (queries, keys), True where attention is allowed, or (1, keys), which serves every query;
    before these, dimensions of size 1 may stand, as in the mask of one sentence. Tokens that are None are
    positions. Raises ValueError if the mask is not boolean or does not fit.
    """
    mask = torch.as_tensor(mask)  # of NumPy, or lists
    queries = [str(i) for i in range(mask.size(-2))] if queries is None else queries
    keys = [str(i) for i in range(mask.size(-1))] if keys is None else keys
    mask = mask_per_query(mask, queries, keys)
    ax = axes_or_new(ax, 0.5 * len(keys) + 3.5, 0.5 * len(queries) + 1.5)
    colors = ListedColormap([HIDDEN, ALLOWED])
    ax.imshow(mask.cpu().numpy(), cmap=colors, vmin=0, vmax=1)
    patches = [Patch(color=ALLOWED, label="may attend"), Patch(color=HIDDEN, label="hidden")]
    ax.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    label_tokens(ax, queries, keys)
    ax.set_title(title)
    return ax


def mask_per_query(mask: Tensor, queries: Tokens, keys: Tokens) -> Tensor:
    """Return the mask with a row for each query, (queries, keys). Raises ValueError where it does not fit."""
    check_mask(mask)
    while mask.dim() > 2 and len(mask) == 1:
        mask = mask[0]
    if mask.dim() == 2 and len(mask) == 1:
        mask = mask.expand(len(queries), -1)
    check_tokens(mask, queries, keys)
    return mask


def label_tokens(ax: plt.Axes, queries: Tokens, keys: Tokens) -> None:
    """Write queries down the left side of an image, keys along its foot, and white lines between cells."""
    slanted: Style = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    ax.set_xticks(range(len(keys)), as_words(keys), parse_math=False, **slanted)
    ax.set_yticks(range(len(queries)), as_words(queries), parse_math=False)
    ax.set_xticks([x - 0.5 for x in range(1, len(keys))], minor=True)
    ax.set_yticks([y - 0.5 for y in range(1, len(queries))], minor=True)
    ax.grid(True, which="minor", color="white", linewidth=1.5)
    ax.tick_params(which="both", length=0)
    ax.spines[:].set_visible(False)
    ax.set(xlabel="key", ylabel="query")


# ---- beam search (section 6.1)


def plot_beam(
    steps: Sequence[Sequence[Candidate]],
    winner: Sequence[int],
    pieces: Callable[[Sequence[int]], Sequence[str]],
    ax: plt.Axes | None = None,
) -> plt.Axes:
    """Draw the tree of one search: a column for each step, the likeliest on top, the winner's path thick.

    `steps` has for each step the candidates, likeliest first, as `beam_search` shows them to its watcher;
    `winner` are the tokens of the hypothesis that was returned, without the end symbol; `pieces` turns tokens
    into what is written on them, such as `tokenizer.pieces`.
    """
    points: dict[tuple[int, ...], tuple[int, int]] = {(): (0, 0)}  # step and rank of each prefix
    for number, candidates in enumerate(steps, start=1):
        points |= {candidate.tokens: (number, rank) for rank, candidate in enumerate(candidates)}
    every = [candidate for step in steps for candidate in step]
    endings = (c.tokens for c in every if c.fate == "ended" and c.tokens[:-1] == tuple(winner))
    if (whole := next(endings, None)) is None:
        raise ValueError(f"the winner {tuple(winner)} is none of the hypotheses that ended")
    path = {whole[:length] for length in range(1, len(whole) + 1)}
    ranks = max(len(step) for step in steps)
    ax = axes_or_new(ax, 1.6 * len(steps) + 2, 0.75 * ranks + 1.4)
    ax.text(0, 0, "start", ha="center", va="center", bbox={"boxstyle": "round", "fc": "white", "ec": INK})
    for candidate in every:
        parent, point = points[candidate.tokens[:-1]], points[candidate.tokens]
        on_path = candidate.tokens in path
        dropped = candidate.fate == "dropped"
        tint, edge = FATES[candidate.fate]
        branch: Style = {"color": INK, "lw": 4} if on_path else {"color": "#aaaaaa", "lw": 1.2}
        ax.plot(*zip(parent, point, strict=True), ls=":" if dropped else "-", **branch)
        text = f"{as_words(pieces(candidate.tokens))[-1]}\n{candidate.log_prob:.2f}".replace("-", "−")
        box = {"boxstyle": "round", "fc": tint, "ec": INK if on_path else edge, "lw": 2.5 if on_path else 1.2}
        color = SOFT if dropped else INK
        ax.text(*point, text, ha="center", va="center", fontsize=11, color=color, bbox=box)
    handles: list[Any] = [Patch(fc=tint, ec=edge, label=fate) for fate, (tint, edge) in FATES.items()]
    handles.append(plt.Line2D([], [], color=INK, lw=4, label="the winner"))
    ax.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=4, frameon=False)
    ax.set(title="Beam search: log-probability of each beginning", xlabel="step", ylabel="rank in its step")
    ax.set_xticks(range(1, len(steps) + 1))
    ax.yaxis.set_major_locator(plt.MaxNLocator(integer=True))
    ax.set_ylim(ranks - 0.4, -0.6)
    ax.margins(x=0.08)
    return ax


# ---- the learning rate (section 5.3)


def plot_schedules(
    settings: Sequence[tuple[int, int]], steps: int = 20000, factor: float = 1.0, ax: plt.Axes | None = None
) -> plt.Axes:
    """Draw the rate over `steps` updates for each (d_model, warmup), a dot on each peak that they reach."""
    if steps < 1:
        raise ValueError(f"steps must be at least 1, not {steps}")
    if any(isinstance(pair, int) for pair in settings):
        raise TypeError(f"settings are pairs of d_model and warm-up: give [{settings}]")
    ax = axes_or_new(ax)
    for (d_model, warmup), color in zip(settings, palette(len(settings)), strict=True):
        # Some 400 steps are enough for a curve, with the last one and the peak, where it has a corner.
        updates = sorted({*range(1, steps + 1, max(1, steps // 400)), steps, min(steps, warmup)})
        label = f"d_model {d_model:,}, warm-up {warmup:,}"
        ax.plot(updates, [rate(step, d_model, factor, warmup) for step in updates], color=color, label=label)
        if warmup <= steps:
            ax.plot(warmup, rate(warmup, d_model, factor, warmup), "o", color=color, ms=9)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.locator_params(axis="x", nbins=6)
    ax.ticklabel_format(axis="y", style="sci", scilimits=(0, 0), useMathText=True)
    ax.legend(frameon=False)
    ax.set(title="Learning rate, peak at the end of the warm-up", xlabel="update", ylabel="learning rate")
    return ax
