"""Pictures of masks, who may look at whom, query down and key across; and of the padding that they hide."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from annotated.plots.drawing import axes_or_new, load, palette
from annotated.plots.grids import check_tokens, draw_cell_borders, label_tokens
from annotated.transformer.attention import check_mask

if TYPE_CHECKING:
    import altair as alt
    import numpy as np
    from matplotlib.axes import Axes


HIDDEN, ALLOWED = "#d9d9d9", "#0173b2"  # light grey and the palette's blue: apart in lightness too
CELL, GAP = 30, 110  # pixels; the gap holds the tokens of the next panel


def plot_mask(
    mask: Tensor,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    ax: "Axes | None" = None,
    title: str = "Who may look at whom",
) -> "Axes":
    """Draw a mask as a grid of cells: blue where the query may attend to the key, grey where it may not.

    Args:
        mask: bool (queries, keys), True where attention is allowed, or (1, keys), which serves every query.
        queries, keys: the tokens down the side and along the foot; their positions if None.
        ax: where to draw; a new figure if None.

    Raises ValueError if the mask is not boolean, or does not fit the tokens.
    """
    check_mask(mask)
    queries, keys = (
        [str(i) for i in range(size)] if tokens is None else tokens
        for tokens, size in ((queries, mask.size(0)), (keys, mask.size(-1)))
    )
    mask = _spread(mask, queries, keys)
    ax = axes_or_new(ax, 0.5 * len(keys) + 3.5, 0.5 * len(queries) + 1.5)
    draw_two(ax, mask.cpu().numpy(), {"may attend": ALLOWED, "hidden": HIDDEN})
    label_tokens(ax, queries, keys)
    draw_cell_borders(ax, len(queries), len(keys))
    ax.set_title(title)
    return ax


def draw_two(ax: "Axes", cells: "np.ndarray", colours: Mapping[str, str]) -> None:
    """Draw bool cells (rows, columns) in the colours of True and of False, and a legend beside them."""
    true, false = colours.values()
    ax.imshow(cells, cmap=load("matplotlib.colors").ListedColormap([false, true]), vmin=0, vmax=1)
    patch = load("matplotlib.patches").Patch
    patches = [patch(color=colour, label=label) for label, colour in colours.items()]
    ax.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def explore_masks(
    masks: Mapping[str, Tensor],
    queries: Sequence[str],
    keys: Sequence[str],
    query: int = 0,
    title: str = "Point at a query: which keys does it see?",
) -> "alt.HConcatChart":
    """Draw masks side by side; the row under the pointer is bright in all, and its keys are spelt out below.

    Args:
        masks: by name, each as in `plot_mask`.
        query: the row that is bright before anybody points; the still image shows it.

    Raises ValueError if there is no mask or no such row, if a mask is not boolean or does not fit the tokens.
    """
    import altair as alt

    if not masks or not 0 <= query < len(queries):
        raise ValueError(f"there must be a mask, and query must be from 0 to {len(queries) - 1}, not {query}")
    chosen = alt.selection_point(
        name="query", fields=["query"], on="pointerover", clear=False, empty=False, value=[{"query": query}]
    )
    panels = [
        _panel(name, _spread(mask, queries, keys), queries, keys, chosen, view=f"mask_{number}")
        for number, (name, mask) in enumerate(masks.items())
    ]
    # Flush: a sentence longer than its panel must not push the other panels away from under the pointer.
    return alt.hconcat(*panels, title=title, bounds="flush", spacing=GAP)


def _spread(mask: Tensor, queries: Sequence[str], keys: Sequence[str]) -> Tensor:
    """The mask with a row for each query: (queries, keys)."""
    check_mask(mask)
    if mask.dim() == 2 and mask.size(0) == 1:
        mask = mask.expand(len(queries), -1)
    check_tokens(mask, queries, keys)
    return mask


def _cells(mask: Tensor, queries: Sequence[str], keys: Sequence[str]) -> list[dict[str, Any]]:
    """One row of data for each pair: numbers place the cell, for the same word may stand there twice."""
    return [
        {
            "query": t,
            "key": s,
            "looking": queries[t],
            "at": keys[s],
            "may": "may attend" if allowed else "hidden",
        }
        for t, row in enumerate(mask.tolist())
        for s, allowed in enumerate(row)
    ]


def _sentences(mask: Tensor, queries: Sequence[str], keys: Sequence[str]) -> list[dict[str, Any]]:
    """For each query, in words, what it sees."""
    seen = [[key for key, allowed in zip(keys, row, strict=True) if allowed] for row in mask.tolist()]
    return [
        {"query": t, "says": f"“{queries[t]}” sees", "words": " ".join(words) or "nothing"}
        for t, words in enumerate(seen)
    ]


def _panel(
    name: str, mask: Tensor, queries: Sequence[str], keys: Sequence[str], chosen: "alt.Parameter", view: str
) -> "alt.LayerChart":
    """One mask: its cells, of which the chosen row is bright, and the sentence below them."""
    import altair as alt
    import pandas as pd

    width, height = CELL * len(keys), CELL * len(queries)
    kinds = alt.Scale(domain=["may attend", "hidden"], range=[ALLOWED, HIDDEN])
    cells = (
        alt.Chart(pd.DataFrame(_cells(mask, queries, keys)), name=view, width=width, height=height)
        .mark_rect(stroke="white", strokeWidth=2)
        .encode(
            x=alt.X("key:O", title="key", axis=_token_axis(keys, labelAngle=-45)),
            y=alt.Y("query:O", title="query", axis=_token_axis(queries)),
            color=alt.Color("may:N", scale=kinds, title=None),
            opacity=alt.condition(chosen, alt.value(1.0), alt.value(0.35)),
            tooltip=[alt.Tooltip("looking:N", title="query"), alt.Tooltip("at:N", title="key"), "may:N"],
        )
        .add_params(chosen)
    )
    sentences = pd.DataFrame(_sentences(mask, queries, keys))
    lines = [
        alt.Chart(sentences)
        .mark_text(align="left", fontSize=13, fontWeight=weight, limit=width + GAP - 10)
        .encode(text=field, x=alt.value(0), y=alt.value(height + below))
        .transform_filter(chosen)
        for field, weight, below in (("says:N", "normal", 100), ("words:N", "bold", 120))
    ]
    return alt.layer(cells, *lines, title=name)


def _token_axis(tokens: Sequence[str], **settings: Any) -> "alt.Axis":
    """An axis on which position n is labelled with the n-th token."""
    import json

    import altair as alt

    names = json.dumps(list(tokens), ensure_ascii=False)
    return alt.Axis(
        labelExpr=f"{names}[datum.value]", ticks=False, domain=False, labelOverlap=False, **settings
    )


PADDING, TOKEN = "#e4e4e4", "#56b4e9"  # apart in lightness too, and black can be read on both
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


def plot_tokens(
    tokens: Tensor,
    pad: int,
    names: Sequence[Sequence[str]] | None = None,
    ax: "Axes | None" = None,
    title: str = "The places of a batch",
) -> "Axes":
    """Draw one side of a batch: a row for each sentence, blue where a token stands, grey where padding does.

    Args:
        tokens: integers (batch, len).
        pad: the padding symbol's number.
        names: for each row a name for each place, written into the cells that hold tokens; none if None.
        ax: where to draw; a new figure if None.

    Raises ValueError if the names are not as many as the places.
    """
    rows, columns = tokens.shape
    if names is not None and [len(row) for row in names] != [columns] * rows:
        raise ValueError(f"{rows} rows of {columns} tokens need as many names, not {[*map(len, names)]}")
    real = (tokens != pad).cpu().numpy()
    ax = axes_or_new(ax) if names is None else axes_or_new(ax, 0.9 * columns + 2.5, 0.5 * rows + 1.2)
    draw_two(ax, real, {"token": TOKEN, "padding": PADDING})
    ax.set_aspect("auto")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    if names is not None:
        draw_cell_borders(ax, rows, columns)
        for row, column in zip(*real.nonzero(), strict=True):
            ax.text(column, row, names[row][column], ha="center", va="center", fontsize=11)
    ax.set(title=title, xlabel="position", ylabel="sentence")
    return ax
