"""Heatmaps: attention weights and masks, query down and key across."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from annotated.plots.drawing import Style, Tokens, as_words, axes_or_new, check_tokens, load, plt
from annotated.transformer.attention import check_mask

HIDDEN, ALLOWED = "#d9d9d9", "#0173b2"  # light grey and the palette's blue: apart in lightness too
MOST_NUMBERED = 150  # cells; with more of them, a number in each is too small to read
LEAST_NUMBERED = 0.05  # a weight below this is not worth its ink


def plot_attention(
    weights: Tensor,
    queries: Tokens,
    keys: Tokens,
    ax: "plt.Axes | None" = None,
    title: str = "Attention weights",
) -> "plt.Axes":
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
                look: Style = {"color": "white" if weight > 0.55 else "black", "fontsize": 11}
                ax.text(key, query, f"{weight:.2f}", ha="center", va="center", **look)
    label_tokens(ax, queries, keys)
    ax.figure.colorbar(image, ax=ax, label="weight")
    ax.set_title(title)
    return ax


def plot_mask(
    mask: Tensor,
    queries: Tokens | None = None,
    keys: Tokens | None = None,
    ax: "plt.Axes | None" = None,
    title: str = "Who may look at whom",
) -> "plt.Axes":
    """Draw a mask as a grid of cells: blue where the query may attend to the key, grey where it may not.

    `mask` is bool (queries, keys), True where attention is allowed, or (1, keys), which serves every query;
    before these, dimensions of size 1 may stand, as in the mask of one sentence. Tokens that are None are
    positions. Raises ValueError if the mask is not boolean or does not fit.
    """
    queries = [str(i) for i in range(mask.size(-2))] if queries is None else queries
    keys = [str(i) for i in range(mask.size(-1))] if keys is None else keys
    mask = mask_per_query(mask, queries, keys)
    ax = axes_or_new(ax, 0.5 * len(keys) + 3.5, 0.5 * len(queries) + 1.5)
    colors = load("matplotlib.colors").ListedColormap([HIDDEN, ALLOWED])
    ax.imshow(mask.cpu().numpy(), cmap=colors, vmin=0, vmax=1)
    patch = load("matplotlib.patches").Patch
    patches = [patch(color=ALLOWED, label="may attend"), patch(color=HIDDEN, label="hidden")]
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


def label_tokens(ax: "plt.Axes", queries: Tokens, keys: Tokens) -> None:
    """Write queries down the left side of an image, keys along its foot, and white lines between cells."""
    look: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    ax.set_xticks(range(len(keys)), as_words(keys), parse_math=False, **look)
    ax.set_yticks(range(len(queries)), as_words(queries), parse_math=False)
    ax.set_xticks([x - 0.5 for x in range(1, len(keys))], minor=True)
    ax.set_yticks([y - 0.5 for y in range(1, len(queries))], minor=True)
    ax.grid(True, which="minor", color="white", linewidth=1.5)
    ax.tick_params(which="both", length=0)
    ax.spines[:].set_visible(False)
    ax.set(xlabel="key", ylabel="query")
