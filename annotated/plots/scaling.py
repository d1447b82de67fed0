"""Pictures of what dividing by sqrt(d_k) does to the weights and their gradients (section 3.2.1)."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from annotated.plots.drawing import axes_or_new, palette

if TYPE_CHECKING:
    import altair as alt
    from matplotlib.axes import Axes

PLAIN, SCALED = "q·k", "q·k / √d_k"
PANEL: dict[str, Any] = {"width": 330, "height": 190}  # pixels
DASHES = ("-", "--", ":")


def explore_scaling(
    widths: Sequence[int],
    scores: Tensor,
    keys: Sequence[str],
    entropy: Mapping[str, Tensor],
    gradient: Mapping[str, Tensor],
    start: int = 64,
) -> "alt.ConcatChart":
    """Draw scores becoming weights, as they are and divided by sqrt(d_k), beside their entropy and gradient.

    A slider, the parameter `exponent`, chooses d_k; it starts at `start`, which the still image shows.

    Args:
        widths: the d_k, each twice the one before, the first a power of 2.
        scores: (widths, keys), the products q·k of one query, not divided by anything.
        keys: the tokens that the scores belong to.
        entropy, gradient: curves (widths,) named `PLAIN` and `SCALED`: in bits, and the norm of the softmax's
            Jacobian.

    Raises ValueError if the sizes do not fit, or the widths are not such powers.
    """
    import altair as alt

    first = _first_exponent(widths, start)
    _check_sizes(scores, widths, keys, [entropy, gradient])
    slider = alt.binding_range(min=first, max=first + len(widths) - 1, step=1, name="d_k = 2 to the power ")
    exponent = alt.param(name="exponent", value=int(math.log2(start)), bind=slider)
    bars = _bars(widths, scores, keys)
    curves = _curves(widths, entropy, gradient)
    scores_title = alt.Title(alt.expr("'Scores of one query at d_k = ' + pow(2, exponent)"))
    panels: list[Any] = [
        _bar_panel(bars, "score", scores_title, keys),
        _curve_panel(curves, "entropy", "Entropy of the weights, typical query", "bits"),
        _bar_panel(bars, "weight", "Its weights", keys, alt.Scale(domain=[0, 1])),
        _curve_panel(
            curves, "gradient", "Response of the weights, typical query", "norm of the Jacobian", True
        ),
    ]
    chart = alt.concat(*panels, columns=2, align="all", title="Scores becoming weights as d_k grows")
    return chart.add_params(exponent)


def plot_by_width(
    widths: Sequence[int],
    curves: Mapping[str, Mapping[str, Tensor]],
    ax: "Axes | None" = None,
    ylabel: str = "gradient norm",
    title: str = "Against d_k",
) -> "Axes":
    """Draw measured curves against d_k, both axes logarithmic.

    `curves` has kinds, each with its curves (widths,) by name: a kind is a colour, a name a way of dashing.
    Raises ValueError if a curve has another length.
    """
    ax = axes_or_new(ax)
    for (kind, named), colour in zip(curves.items(), palette(len(curves)), strict=True):
        for (name, curve), dashes in zip(named.items(), DASHES, strict=False):
            if len(curve) != len(widths):
                raise ValueError(f"{kind}, {name}: {len(curve)} values for {len(widths)} widths")
            ax.plot(widths, curve.tolist(), dashes, marker="o", color=colour, label=f"{kind}: {name}")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(widths, [str(width) for width in widths])
    ax.set(xlabel="d_k", ylabel=ylabel, title=title)
    ax.grid(True)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return ax


def _first_exponent(widths: Sequence[int], start: int) -> int:
    first = int(math.log2(widths[0])) if widths and widths[0] > 0 else 0
    if not widths or list(widths) != [2 ** (first + i) for i in range(len(widths))] or start not in widths:
        raise ValueError(f"widths must be powers of 2 without a gap, {start} among them, not {list(widths)}")
    return first


def _check_sizes(
    scores: Tensor, widths: Sequence[int], keys: Sequence[str], curves: Sequence[Mapping[str, Tensor]]
) -> None:
    wanted = (len(widths), len(keys))
    if tuple(scores.shape) != wanted:
        raise ValueError(
            f"{wanted[0]} widths and {wanted[1]} keys need scores {wanted}, not {tuple(scores.shape)}"
        )
    for pair in curves:
        sizes = {name: len(curve) for name, curve in pair.items()}
        if sizes != {PLAIN: len(widths), SCALED: len(widths)}:
            raise ValueError(
                f"curves must be {PLAIN!r} and {SCALED!r}, {len(widths)} values each, not {sizes}"
            )


def _bars(widths: Sequence[int], scores: Tensor, keys: Sequence[str]) -> list[dict[str, Any]]:
    """Score and weight of each key at each width, as they are and scaled."""
    rows = []
    for width, products in zip(widths, scores, strict=True):
        for version, score in ((PLAIN, products), (SCALED, products / math.sqrt(width))):
            weights = score.softmax(dim=-1)
            rows += [
                {"d_k": width, "version": version, "position": s, "key": key, "score": a, "weight": w}
                for s, (key, a, w) in enumerate(zip(keys, _round(score), _round(weights), strict=True))
            ]
    return rows


def _curves(
    widths: Sequence[int], entropy: Mapping[str, Tensor], gradient: Mapping[str, Tensor]
) -> list[dict[str, Any]]:
    return [
        {
            "d_k": width,
            "version": version,
            "entropy": round(float(h), 4),
            "gradient": float(f"{float(g):.4g}"),
        }
        for version in (PLAIN, SCALED)
        for width, h, g in zip(widths, entropy[version], gradient[version], strict=True)
    ]


def _round(values: Tensor) -> list[float]:
    return [round(value, 4) for value in values.tolist()]


def _version_colour() -> "alt.Color":
    import altair as alt

    return alt.Color("version:N", sort=[PLAIN, SCALED], title="score").legend(
        orient="top", symbolType="square"
    )


def _bar_panel(
    rows: list[dict[str, Any]],
    field: str,
    title: "alt.Title | str",
    keys: Sequence[str],
    scale: "alt.Scale | None" = None,
) -> "alt.Chart":
    """Two bars for each key, at the d_k that the slider chose."""
    import json

    import altair as alt
    import pandas as pd

    names = alt.Axis(labelExpr=f"{json.dumps(list(keys), ensure_ascii=False)}[datum.value]", labelAngle=-45)
    return (
        alt.Chart(pd.DataFrame(rows), title=title, **PANEL)
        .mark_bar()
        .encode(
            x=alt.X("position:O", title="key", axis=names),
            xOffset=alt.XOffset("version:N", sort=[PLAIN, SCALED]),
            y=alt.Y(f"{field}:Q", title=field, scale=scale or alt.Scale()),
            color=_version_colour(),
            tooltip=["key:N", "version:N", f"{field}:Q"],
        )
        .transform_filter("datum.d_k == pow(2, exponent)")
    )


def _curve_panel(
    rows: list[dict[str, Any]], field: str, title: str, unit: str, logarithmic: bool = False
) -> "alt.LayerChart":
    """One curve for each version, and a line at the d_k that the slider chose."""
    import altair as alt
    import pandas as pd

    frame = pd.DataFrame(rows)
    if logarithmic:
        scale, axis = alt.Scale(type="log"), alt.Axis(format="~e", values=_powers_of_ten(frame[field]))
    else:
        scale, axis = alt.Scale(zero=True), alt.Axis()
    widths = alt.Axis(
        grid=False, values=sorted(set(frame["d_k"])), format="d", labelOverlap=False, labelFlush=False
    )
    base = alt.Chart(frame, title=title, **PANEL)
    curves = base.mark_line(point=True).encode(
        x=alt.X("d_k:Q", scale=alt.Scale(type="log", base=2), title="d_k", axis=widths),
        y=alt.Y(f"{field}:Q", title=unit, scale=scale, axis=axis),
        color=_version_colour(),
        tooltip=["d_k:Q", "version:N", f"{field}:Q"],
    )
    here = (
        base.mark_rule(strokeDash=[4, 4]).encode(x="d_k:Q").transform_filter("datum.d_k == pow(2, exponent)")
    )
    return here + curves


def _powers_of_ten(values: Sequence[float]) -> list[float]:
    """The powers of ten from the smallest value to the largest."""
    return [
        10.0**n for n in range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)
    ]
