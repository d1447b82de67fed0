"""The attention explorer: every layer, head and kind of one translation in a chart that needs no kernel."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from annotated.plots.drawing import load
from annotated.plots.grids import check_tokens
from annotated.translation.watching import AttentionMaps

if TYPE_CHECKING:
    import altair as alt

KINDS = ("encoder", "decoder", "cross")
CELL = 26  # pixels
# For Vega, the tokens beside the map that is shown; `src` and `tgt` are parameters that hold the two lists.
QUERIES, KEYS = "(kind == 'encoder' ? src : tgt)", "(kind == 'decoder' ? tgt : src)"


def explore_attention(
    maps: AttentionMaps, src_tokens: Sequence[str], tgt_tokens: Sequence[str]
) -> "alt.LayerChart":
    """One map at a time, query down and key across, chosen by menus for kind, layer and head.

    Menus and caption count layers and heads from 1, as all figures do; the parameters hold what `maps` has,
    from 0.

    Args:
        maps: `maps["encoder" | "decoder" | "cross", layer]` is (h, queries, keys), of one sentence pair.
        src_tokens: encoder queries and keys, and cross keys.
        tgt_tokens: decoder queries and keys, and cross queries: the tokens that the decoder read.

    Parameters: `kind`, `layer`, `head`. Raises ValueError where a map's size is not that of its tokens,
    or there is none.
    """
    if not maps:
        raise ValueError("explore_attention needs at least one map")
    for (kind, layer), weights in maps.items():
        check_map(kind, layer, weights, src_tokens, tgt_tokens)
    alt = load("altair")
    texts = [alt.param(name="src", value=list(src_tokens)), alt.param(name="tgt", value=list(tgt_tokens))]
    return (
        alt.layer(draw_cells(maps), draw_caption(), title="Who looks at whom")
        .properties(width=alt.Step(CELL), height=alt.Step(CELL))
        .add_params(*draw_menus(maps), *texts)
    )


def draw_cells(maps: AttentionMaps) -> "alt.Chart":
    """The map that the menus name: one record for each query, spread over its keys by Vega."""
    alt = load("altair")
    axis = {"labelLimit": 160, "ticks": False, "domain": False}
    across = alt.Axis(labelAngle=-45, labelExpr=f"{KEYS}[datum.value]", **axis)
    down = alt.Axis(labelExpr=f"{QUERIES}[datum.value]", **axis)
    return (
        alt.Chart(alt.Data(values=map_rows(maps)))
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


def draw_caption() -> "alt.Chart":
    """Says which map is shown, in the chart itself, so that a still of it says so too."""
    alt = load("altair")
    words = "kind + ' attention, layer ' + (layer + 1) + ', head ' + (head + 1)"
    return (
        alt.Chart(alt.sequence(0, 1, as_="one"))
        .transform_calculate(words=words)
        .mark_text(align="left", baseline="bottom", dy=-8)
        .encode(x=alt.value(0), y=alt.value(0), text="words:N")
    )


def draw_menus(maps: AttentionMaps) -> "list[alt.Parameter]":
    """Kind, layer and head to choose from; the last layer's cross-attention comes first."""
    alt = load("altair")
    kinds = [kind for kind in KINDS if any(kind == name for name, _ in maps)]
    layers = sorted({layer for _, layer in maps})
    heads = list(range(max(weights.size(0) for weights in maps.values())))
    return [
        alt.param(
            name=name, value=value, bind=alt.binding_select(options=options, labels=labels, name=f"{name}: ")
        )
        for name, value, options, labels in (
            ("kind", kinds[-1], kinds, kinds),
            ("layer", layers[-1], layers, [str(layer + 1) for layer in layers]),
            ("head", 0, heads, [str(head + 1) for head in heads]),
        )
    ]


def map_rows(maps: AttentionMaps) -> list[dict[str, Any]]:
    """One record for each row of each head's map: `weights` holds all keys of one query, to 4 decimals."""
    return [
        {"kind": kind, "layer": layer, "head": head, "query": query, "weights": [round(w, 4) for w in row]}
        for (kind, layer), weights in maps.items()
        for head, rows in enumerate(weights.tolist())
        for query, row in enumerate(rows)
    ]


def check_map(
    kind: str, layer: int, weights: Tensor, src_tokens: Sequence[str], tgt_tokens: Sequence[str]
) -> None:
    """Raise ValueError unless the map's kind is known and its sides are as long as their tokens."""
    if kind not in KINDS:
        raise ValueError(f"a map's kind must be one of {', '.join(KINDS)}, not {kind!r}")
    if weights.dim() != 3:
        raise ValueError(f"map {kind}, {layer} must be (h, queries, keys), not {tuple(weights.shape)}")
    queries = src_tokens if kind == "encoder" else tgt_tokens
    keys = tgt_tokens if kind == "decoder" else src_tokens
    check_tokens(weights[0], queries, keys)
