"""Pictures of masks: who may look at whom, query down and key across."""

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from annotated.plots.drawing import (
    Look,
    Tokens,
    alt,
    axes_or_new,
    check_tokens,
    draw_cell_borders,
    label_tokens,
    load,
    pd,
    plt,
    token_axis,
)
from annotated.transformer.attention import check_mask

HIDDEN, ALLOWED = "#d9d9d9", "#0173b2"  # light grey and the palette's blue: apart in lightness too
CELL, GAP = 30, 110  # pixels; the gap holds the tokens of the next panel


def plot_mask(
    mask: Tensor,
    queries: Tokens | None = None,
    keys: Tokens | None = None,
    ax: "plt.Axes | None" = None,
    title: str = "Who may look at whom",
) -> "plt.Axes":
    """Draw a mask as a grid of cells: blue where the query may attend to the key, grey where it may not.

    `mask` is bool (queries, keys), True where attention is allowed, or (1, keys), which serves every query.
    Tokens that are None are positions. Raises ValueError if the mask is not boolean, or does not fit the
    tokens.
    """
    rows = [str(i) for i in range(mask.size(0))] if queries is None else queries
    columns = [str(i) for i in range(mask.size(-1))] if keys is None else keys
    mask = _spread(mask, rows, columns)
    ax = axes_or_new(ax, 0.5 * len(columns) + 3.5, 0.5 * len(rows) + 1.5)
    _draw_two(ax, mask.cpu().numpy(), {"may attend": ALLOWED, "hidden": HIDDEN})
    label_tokens(ax, rows, columns)
    draw_cell_borders(ax, *mask.shape)
    ax.set_title(title)
    return ax


def _spread(mask: Tensor, queries: Tokens, keys: Tokens) -> Tensor:
    """Return the mask with a row for each query: (queries, keys)."""
    check_mask(mask)
    if mask.dim() == 2 and mask.size(0) == 1:
        mask = mask.expand(len(queries), -1)
    check_tokens(mask, queries, keys)
    return mask


def _draw_two(ax: "plt.Axes", cells: np.ndarray, colours: Mapping[str, str]) -> None:
    """Draw bool cells (rows, columns) in the colours of True and of False, and a legend beside them."""
    true, false = colours.values()
    ax.imshow(cells, cmap=load("matplotlib.colors").ListedColormap([false, true]), vmin=0, vmax=1)
    patch = load("matplotlib.patches").Patch
    patches = [patch(color=colour, label=label) for label, colour in colours.items()]
    ax.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def explore_masks(
    masks: Mapping[str, Tensor],
    queries: Tokens,
    keys: Tokens,
    query: int = 0,
    title: str = "Point at a query: which keys does it see?",
) -> "alt.HConcatChart":
    """Chart masks side by side; the row under the pointer is bright in all, and its keys are spelt out below.

    `masks` are by name, each as in `plot_mask`; `query` is the row that is bright before anybody points, as
    in the still image. Raises ValueError if there is no mask or no such row, if a mask is not boolean or does
    not fit the tokens.
    """
    if not masks or not 0 <= query < len(queries):
        raise ValueError(f"there must be a mask, and query must be from 0 to {len(queries) - 1}, not {query}")
    chosen = alt.selection_point(
        name="query", fields=["query"], on="pointerover", clear=False, empty=False, value=[{"query": query}]
    )
    grids = {name: _spread(mask, queries, keys) for name, mask in masks.items()}
    panels = [
        alt.layer(
            _cells(grid, queries, keys, chosen, view=f"mask_{number}"),
            *_sentences(grid, queries, keys, chosen),
            title=name,
        )
        for number, (name, grid) in enumerate(grids.items())
    ]
    # Flush: a sentence longer than its panel must not push the other panels away from under the pointer.
    return alt.hconcat(*panels, title=title, bounds="flush", spacing=GAP)


def _cells(mask: Tensor, queries: Tokens, keys: Tokens, chosen: "alt.Parameter", view: str) -> "alt.Chart":
    """The cells of one mask, of which the chosen row is bright."""
    kinds = {True: "may attend", False: "hidden"}
    # Numbers place the cell, because the same word may stand there twice.
    rows = [
        {"query": t, "key": s, "looking": queries[t], "at": keys[s], "may": kinds[allowed]}
        for (t, s), allowed in np.ndenumerate(mask.cpu().numpy())
    ]
    axis: Look = {"ticks": False, "domain": False, "labelOverlap": False}
    scale = alt.Scale(domain=list(kinds.values()), range=[ALLOWED, HIDDEN])
    return (
        alt.Chart(pd.DataFrame(rows), name=view, width=CELL * len(keys), height=CELL * len(queries))
        .mark_rect(stroke="white", strokeWidth=2)
        .encode(
            x=alt.X("key:O", title="key", axis=token_axis(keys, labelAngle=-45, **axis)),
            y=alt.Y("query:O", title="query", axis=token_axis(queries, **axis)),
            color=alt.Color("may:N", scale=scale, title=None),
            opacity=alt.condition(chosen, alt.value(1.0), alt.value(0.35)),
            tooltip=[alt.Tooltip("looking:N", title="query"), alt.Tooltip("at:N", title="key"), "may:N"],
        )
        .add_params(chosen)
    )


def _sentences(mask: Tensor, queries: Tokens, keys: Tokens, chosen: "alt.Parameter") -> "list[alt.Chart]":
    """For the chosen query, in words, what it sees."""
    seen = [[key for key, allowed in zip(keys, row, strict=True) if allowed] for row in mask.tolist()]
    rows = [
        {"query": t, "says": f"“{queries[t]}” sees", "words": " ".join(words) or "nothing"}
        for t, words in enumerate(seen)
    ]
    width, height = CELL * len(keys), CELL * len(queries)
    return [
        alt.Chart(pd.DataFrame(rows))
        .mark_text(align="left", fontSize=13, fontWeight=weight, limit=width + GAP - 10)
        .encode(text=field, x=alt.value(0), y=alt.value(height + below))
        .transform_filter(chosen)
        for field, weight, below in (("says:N", "normal", 100), ("words:N", "bold", 120))
    ]
