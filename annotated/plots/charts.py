"""Charts to explore: attention of every layer and head by menus, and masks under the pointer."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
from torch import Tensor

from annotated.attention_maps import AttentionMaps
from annotated.plots.drawing import Style, Tokens, as_words, check_tokens
from annotated.plots.figures import ALLOWED, HIDDEN, mask_per_query
from annotated.plots.web_page import json_in_script

ATTENTIONS = ("encoder", "decoder", "cross")
ATTENTION_CELL, MASK_CELL = 26, 30  # pixels
# For Vega, the tokens beside the map that is shown; `src` and `tgt` are parameters that hold the two lists.
QUERIES, KEYS = "(kind == 'encoder' ? src : tgt)", "(kind == 'decoder' ? tgt : src)"


def explore_attention(maps: AttentionMaps, src_tokens: Tokens, tgt_tokens: Tokens) -> alt.LayerChart:
    """Chart one map at a time, query down and key across, chosen by menus; the chart needs no kernel.

    `maps["encoder" | "decoder" | "cross", layer]` is (h, queries, keys), of one sentence pair, whose target
    tokens are those that the decoder read. Menus and caption count layers and heads from 1; the parameters
    `kind`, `layer` and `head` count from 0. The last layer's cross-attention is shown first.

    Raises ValueError where there is no map, or a map's size is not that of its tokens.
    """
    if not maps:
        raise ValueError("there is no map to explore")
    for (kind, _), weights in maps.items():
        queries = src_tokens if kind == "encoder" else tgt_tokens
        keys = tgt_tokens if kind == "decoder" else src_tokens
        check_tokens(weights[0], queries, keys)
    kinds = [kind for kind in ATTENTIONS if any(kind == name for name, _ in maps)]
    layers = sorted({layer for _, layer in maps})
    heads = range(max(weights.size(0) for weights in maps.values()))
    menus = [menu("kind", kinds, kinds[-1]), menu("layer", layers, layers[-1]), menu("head", heads, 0)]
    sides = {"src": src_tokens, "tgt": tgt_tokens}
    tokens_of_sides = [alt.param(name=name, expr=token_list(tokens)) for name, tokens in sides.items()]
    # In the chart itself, so that a still of it, too, says which map is shown.
    words = "kind + ' attention, layer ' + (layer + 1) + ', head ' + (head + 1)"
    caption = (
        alt.Chart(alt.sequence(0, 1, as_="one"))
        .transform_calculate(words=words)
        .mark_text(align="left", baseline="bottom", dy=-8)
        .encode(x=alt.value(0), y=alt.value(0), text="words:N")
    )
    return (
        alt.layer(attention_cells(maps), caption, title="Who looks at whom")
        .properties(width=alt.Step(ATTENTION_CELL), height=alt.Step(ATTENTION_CELL))
        .add_params(*menus, *tokens_of_sides)
    )


def attention_cells(maps: AttentionMaps) -> alt.Chart:
    """Draw the map that the menus name: one record for each query, spread over its keys by Vega."""
    rows = [
        {"kind": kind, "layer": layer, "head": head, "query": query, "weights": [round(w, 4) for w in row]}
        for (kind, layer), weights in maps.items()
        for head, rows in enumerate(weights.tolist())
        for query, row in enumerate(rows)
    ]
    axis: Style = {"labelLimit": 160, "ticks": False, "domain": False}
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
            color=alt.Color("weight:Q", title="weight", scale=alt.Scale(scheme="blues", domain=[0, 1])),
            tooltip=["query_token:N", "key_token:N", alt.Tooltip("weight:Q", format=".3f")],
        )
    )


def menu(name: str, options: Sequence[Any], value: Any) -> alt.Parameter:
    """Offer the options; numbers, those of layers and heads, are shown counting from 1."""
    labels = [str(option + 1) if isinstance(option, int) else option for option in options]
    bind = alt.binding_select(options=list(options), labels=labels, name=f"{name}: ")
    return alt.param(name=name, value=value, bind=bind)


def explore_masks(
    masks: Mapping[str, Tensor],
    queries: Tokens,
    keys: Tokens,
    query: int = 0,
    title: str = "Point at a query to see which keys it may look at",
) -> alt.FacetChart:
    """Chart masks side by side; the row under the pointer is strong in all of them.

    `masks` are by name, each as in `plot_mask`; `query` is the row that is strong before anybody points, as
    in the still image. Raises ValueError if a mask is not boolean or does not fit the tokens.
    """
    queries, keys = as_words(queries), as_words(keys)
    labels = {True: "may attend", False: "hidden"}
    # A cell is placed by numbers, because a word may occur twice.
    rows = [
        {"mask": name, "query": t, "key": s, "looking": queries[t], "at": keys[s], "may": labels[allowed]}
        for name, mask in masks.items()
        for (t, s), allowed in np.ndenumerate(mask_per_query(mask, queries, keys).cpu().numpy())
    ]
    selection = alt.selection_point(
        name="query", fields=["query"], on="pointerover", clear=False, empty=False, value=[{"query": query}]
    )
    heading = alt.Title(title, subtitle="dark: that query; light: the others", offset=12)
    axis: Style = {"ticks": False, "domain": False, "labelOverlap": False}
    across = alt.Axis(labelExpr=f"{token_list(keys)}[datum.value]", labelAngle=-45, **axis)
    down = alt.Axis(labelExpr=f"{token_list(queries)}[datum.value]", **axis)
    scale = alt.Scale(domain=list(labels.values()), range=[ALLOWED, HIDDEN])
    return (
        alt.Chart(alt.Data(values=rows), name="masks")
        .mark_rect(stroke="white", strokeWidth=2)
        .encode(
            x=alt.X("key:O", title="key", axis=across),
            y=alt.Y("query:O", title="query", axis=down),
            color=alt.Color("may:N", scale=scale, title=None),
            opacity=alt.condition(selection, alt.value(1.0), alt.value(0.35)),
            tooltip=[alt.Tooltip("looking:N", title="query"), alt.Tooltip("at:N", title="key"), "may:N"],
        )
        .properties(width=MASK_CELL * len(keys), height=MASK_CELL * len(queries))
        .add_params(selection)
        .facet(column=alt.Column("mask:N", title=None, sort=list(masks)), title=heading)
    )


def token_list(tokens: Tokens) -> str:
    """Return the tokens as a list in Vega's expression language, for a script element of the chart's HTML."""
    return json_in_script(as_words(tokens))
