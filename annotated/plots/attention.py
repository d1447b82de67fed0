"""Attention in pictures: weights, query down and key across; alignments; heads; the attention explorer."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from annotated.plots.drawing import (
    Look,
    Tokens,
    alt,
    as_array,
    axes_or_new,
    check_tokens,
    draw_cell_borders,
    label_tokens,
    plt,
    token_list,
)
from annotated.translation.attention_maps import AttentionMaps

MOST_NUMBERED = 150  # cells; with more of them, a number in each is too small to read
LEAST_NUMBERED = 0.05  # a weight below this is not worth its ink


def plot_attention(
    weights: Tensor,
    queries: Tokens,
    keys: Tokens,
    ax: "plt.Axes | None" = None,
    title: str = "Attention weights",
) -> "plt.Axes":
    """Draw the weights of one head, with its numbers where there is room for them.

    `weights` is (queries, keys), each row summing to 1 (or to 0, for a query that may see nothing). Raises
    ValueError if the weights do not fit the tokens.
    """
    check_tokens(weights, queries, keys)
    ax = axes_or_new(ax, 0.65 * len(keys) + 3.0, 0.5 * len(queries) + 1.6)
    image = _draw(ax, weights, queries, keys)
    if len(queries) * len(keys) <= MOST_NUMBERED:
        _write_numbers(image, 0.48, LEAST_NUMBERED, fontsize=11)
    ax.figure.colorbar(image, ax=ax, label="weight")
    ax.set_title(title)
    return ax


def _draw(ax: "plt.Axes", weights: Tensor, queries: Tokens, keys: Tokens) -> Any:
    """Draw the cells, on a scale from 0 to 1 whatever the largest weight is, so that pictures compare."""
    check_tokens(weights, queries, keys)
    values = as_array(weights, 2, "weights")
    image = ax.imshow(values, cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto")
    label_tokens(ax, queries, keys)
    draw_cell_borders(ax, len(queries), len(keys))
    return image


def _write_numbers(image: Any, bright: float, least: float | None = None, **style: Any) -> None:
    """Write each number that is no less than `least` into its cell, black on `bright` colours, else white."""
    for (row, column), number in np.ndenumerate(image.get_array()):
        if least is None or number >= least:
            text = f"{number:.2f}".replace("-0.00", "0.00")
            colour = "white" if image.norm(number) < bright else "black"
            image.axes.text(column, row, text, ha="center", va="center", color=colour, **style)


def plot_alignment(
    weights: Tensor,
    queries: Tokens,
    keys: Tokens,
    gold: Iterable[tuple[int, int]],
    ax: "plt.Axes | None" = None,
    possible: Iterable[tuple[int, int]] = (),
) -> "plt.Axes":
    """Draw cross-attention (queries, keys) with a frame round each (query, key) of the gold alignment.

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
    for style, links in (("-", gold), ((0, (2, 1.2)), possible)):
        for query, key in links:
            # White under orange: seen on dark cells and on bright ones.
            for colour, width, dashes in (("white", 5, "-"), ("#d55e00", 2.5, style)):
                look: Look = {"edgecolor": colour, "lw": width, "ls": dashes}
                ax.add_patch(plt.Rectangle((key - 0.44, query - 0.44), 0.88, 0.88, fill=False, **look))
    return ax


KINDS = ("encoder", "decoder", "cross")
CELL = 26  # pixels
# For Vega, the tokens beside the map that is shown; `src` and `tgt` are parameters that hold the two lists.
QUERIES, KEYS = "(kind == 'encoder' ? src : tgt)", "(kind == 'decoder' ? tgt : src)"


def explore_attention(maps: AttentionMaps, src_tokens: Tokens, tgt_tokens: Tokens) -> "alt.LayerChart":
    """Chart one map at a time, query down and key across, chosen by menus; the chart needs no kernel.

    `maps["encoder" | "decoder" | "cross", layer]` is (h, queries, keys), of one sentence pair, whose target
    tokens are those that the decoder read. Menus and caption count layers and heads from 1, as all figures
    do; the parameters `kind`, `layer` and `head` hold what `maps` has, from 0. The last layer's
    cross-attention is shown first.

    Raises ValueError where a map's size is not that of its tokens, or there is none.
    """
    _check_maps(maps, src_tokens, tgt_tokens)
    kinds = [kind for kind in KINDS if any(kind == name for name, _ in maps)]
    layers = sorted({layer for _, layer in maps})
    heads = range(max(weights.size(0) for weights in maps.values()))
    menus = [_menu("kind", kinds, kinds[-1]), _menu("layer", layers, layers[-1]), _menu("head", heads, 0)]
    sides = {"src": src_tokens, "tgt": tgt_tokens}
    texts = [alt.param(name=n, expr=token_list(tokens)) for n, tokens in sides.items()]
    # In the chart itself, so that a still of it, too, says which map is shown.
    words = "kind + ' attention, layer ' + (layer + 1) + ', head ' + (head + 1)"
    caption = (
        alt.Chart(alt.sequence(0, 1, as_="one"))
        .transform_calculate(words=words)
        .mark_text(align="left", baseline="bottom", dy=-8)
        .encode(x=alt.value(0), y=alt.value(0), text="words:N")
    )
    return (
        alt.layer(_cells(maps), caption, title="Who looks at whom")
        .properties(width=alt.Step(CELL), height=alt.Step(CELL))
        .add_params(*menus, *texts)
    )


def _check_maps(maps: AttentionMaps, src_tokens: Tokens, tgt_tokens: Tokens) -> None:
    if not maps:
        raise ValueError("explore_attention needs at least one map")
    for (kind, layer), weights in maps.items():
        if kind not in KINDS:
            raise ValueError(f"a map's kind must be one of {', '.join(KINDS)}, not {kind!r}")
        if weights.dim() != 3:
            raise ValueError(f"map {kind}, {layer} must be (h, queries, keys), not {tuple(weights.shape)}")
        queries = src_tokens if kind == "encoder" else tgt_tokens
        check_tokens(weights[0], queries, tgt_tokens if kind == "decoder" else src_tokens)


def _cells(maps: AttentionMaps) -> "alt.Chart":
    """Draw the map that the menus name: one record for each query, spread over its keys by Vega."""
    rows = [
        {"kind": kind, "layer": layer, "head": head, "query": query, "weights": [round(w, 4) for w in row]}
        for (kind, layer), weights in maps.items()
        for head, rows in enumerate(weights.tolist())
        for query, row in enumerate(rows)
    ]
    axis: Look = {"labelLimit": 160, "ticks": False, "domain": False}
    across = alt.Axis(labelAngle=-45, labelExpr=f"{KEYS}[datum.value]", **axis)
    down = alt.Axis(labelExpr=f"{QUERIES}[datum.value]", **axis)
    return (
        alt.Chart(alt.Data(values=rows))
        .transform_filter("datum.kind == kind && datum.layer == layer && datum.head == head")
        .transform_calculate(key="sequence(length(datum.weights))")
        .transform_flatten(["weights", "key"], as_=["weight", "key"])
        .transform_calculate(query_token=f"{QUERIES}[datum.query]", key_token=f"{KEYS}[datum.key]")
        .mark_rect()
        .encode(
            x=alt.X("key:O", title="key", axis=across),
            y=alt.Y("query:O", title="query", axis=down),
            color=alt.Color("weight:Q", title="weight", scale=alt.Scale(scheme="viridis", domain=[0, 1])),
            tooltip=["query_token:N", "key_token:N", alt.Tooltip("weight:Q", format=".3f")],
        )
    )


def _menu(name: str, options: Sequence[Any], value: Any) -> "alt.Parameter":
    """Offer the options; numbers, those of layers and heads, are shown counting from 1."""
    labels = [str(option + 1) if isinstance(option, int) else option for option in options]
    bind = alt.binding_select(options=list(options), labels=labels, name=f"{name}: ")
    return alt.param(name=name, value=value, bind=bind)
