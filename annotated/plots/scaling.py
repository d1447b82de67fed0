"""Pictures for section 3.2.1: a look-up becoming soft, and what dividing by sqrt(d_k) does to the weights."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from annotated.plots.drawing import Look, Tokens, alt, axes_or_new, load, palette, pd, plt, token_axis

PLAIN, SCALED = "q·k", "q·k / √d_k"
CHOSEN = "datum.d_k == pow(2, exponent)"  # for Vega, where `exponent` is what the slider sets
PANEL: Look = {"width": 330, "height": 190}  # pixels
DASHES = ("-", "--", ":")


def plot_soft_lookup(
    places: Sequence[float],
    values: Sequence[float],
    asked: Sequence[float],
    answers: Mapping[str, Tensor],
    ax: "plt.Axes | None" = None,
    known: str = "in the table",
    **labels: str,
) -> "plt.Axes":
    """Draw a table's entries as points, and over them what each kind of look-up answers.

    `places` and `values` are the table, called `known` in the legend; `answers` has, by name, one answer for
    each place `asked`, the softest first; `labels` are `title`, `xlabel` and `ylabel`. Raises ValueError if
    lengths differ.
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
    ax.set(xlabel="what is asked for", ylabel="what comes back", title="A look-up becoming soft")
    ax.set(**labels)
    ax.grid(True)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return ax


def plot_by_width(
    widths: Sequence[int],
    curves: Mapping[str, Mapping[str, Tensor]],
    ax: "plt.Axes | None" = None,
    ylabel: str = "gradient norm",
    title: str = "Against d_k",
) -> "plt.Axes":
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


def explore_scaling(
    widths: Sequence[int],
    scores: Tensor,
    keys: Tokens,
    entropy: Mapping[str, Tensor],
    gradient: Mapping[str, Tensor],
    start: int = 64,
) -> "alt.ConcatChart":
    """Chart scores becoming weights, as they are and divided by sqrt(d_k), beside their entropy and gradient.

    A slider, the parameter `exponent`, chooses d_k; it starts at `start`, which the still image shows.

    Args:
        widths: the d_k, each twice the one before, the first a power of 2.
        scores: (widths, keys), the products q·k of one query, not divided by anything.
        keys: the tokens that the scores belong to.
        entropy, gradient: curves (widths,) named `PLAIN` and `SCALED`: in bits, and the norm of the softmax's
            Jacobian.

    Raises ValueError if the sizes do not fit, or the widths are not such powers.
    """
    _check_sizes(widths, start, scores, keys, [entropy, gradient])
    first, last, value = map(_exponent, (widths[0], widths[-1], start))
    slider = alt.binding_range(min=first, max=last, step=1, name="d_k = 2 to the power ")
    bars = pd.DataFrame(_bar_rows(widths, scores, keys))
    curves = pd.DataFrame(_curve_rows(widths, entropy, gradient))
    low, high = (math.log10(norm) for norm in (curves["gradient"].min(), curves["gradient"].max()))
    powers = alt.Axis(format="~e", values=[10.0**n for n in range(math.floor(low), math.ceil(high) + 1)])
    bits = alt.Y("entropy:Q", title="bits", scale=alt.Scale(zero=True), axis=alt.Axis())
    norm = alt.Y("gradient:Q", title="norm of the Jacobian", scale=alt.Scale(type="log"), axis=powers)
    heading = alt.Title(alt.expr("'Scores of one query at d_k = ' + pow(2, exponent)"))
    panels: list[Any] = [
        _bar_panel(bars, keys, "score", heading, alt.Scale()),
        _curve_panel(curves, "entropy", bits, "Entropy of the weights, typical query"),
        _bar_panel(bars, keys, "weight", "Its weights", alt.Scale(domain=[0, 1])),
        _curve_panel(curves, "gradient", norm, "Response of the weights, typical query"),
    ]
    chart = alt.concat(*panels, columns=2, align="all", title="Scores becoming weights as d_k grows")
    return chart.add_params(alt.param(name="exponent", value=value, bind=slider))


def _check_sizes(
    widths: Sequence[int], start: int, scores: Tensor, keys: Tokens, curves: Sequence[Mapping[str, Tensor]]
) -> None:
    count = len(widths)
    if start not in widths or list(widths) != [2 ** (_exponent(widths[0]) + i) for i in range(count)]:
        raise ValueError(f"widths must be powers of 2 without a gap, {start} among them, not {list(widths)}")
    wanted, found = (count, len(keys)), tuple(scores.shape)
    if found != wanted:
        raise ValueError(f"{count} widths and {len(keys)} keys need scores {wanted}, not {found}")
    for pair in curves:
        sizes = {name: len(curve) for name, curve in pair.items()}
        if sizes != {PLAIN: count, SCALED: count}:
            raise ValueError(f"curves must be {PLAIN!r} and {SCALED!r}, {count} values each, not {sizes}")


def _exponent(power: int) -> int:
    """Return n of 2^n."""
    return power.bit_length() - 1


def _bar_rows(widths: Sequence[int], scores: Tensor, keys: Tokens) -> Iterator[dict[str, Any]]:
    """Score and weight of each key at each width, as they are and scaled."""
    for width, products in zip(widths, scores, strict=True):
        for version, score in ((PLAIN, products), (SCALED, products / math.sqrt(width))):
            columns = (keys, score.tolist(), score.softmax(dim=-1).tolist())
            for position, (key, a, w) in enumerate(zip(*columns, strict=True)):
                numbers = {"score": round(a, 4), "weight": round(w, 4)}
                yield {"d_k": width, "version": version, "position": position, "key": key, **numbers}


def _curve_rows(
    widths: Sequence[int], entropy: Mapping[str, Tensor], gradient: Mapping[str, Tensor]
) -> Iterator[dict[str, Any]]:
    for version in (PLAIN, SCALED):
        columns = (widths, entropy[version].tolist(), gradient[version].tolist())
        for width, bits, norm in zip(*columns, strict=True):
            numbers = {"entropy": round(bits, 4), "gradient": float(f"{norm:.4g}")}
            yield {"d_k": width, "version": version, **numbers}


def _colour() -> "alt.Color":
    colour = alt.Color("version:N", sort=[PLAIN, SCALED], title="score")
    return colour.legend(orient="top", symbolType="square")


def _bar_panel(
    frame: Any, keys: Tokens, field: str, title: "alt.Title | str", scale: "alt.Scale"
) -> "alt.Chart":
    """Two bars for each key, at the d_k that the slider chose."""
    return (
        alt.Chart(frame, title=title, **PANEL)
        .mark_bar()
        .encode(
            x=alt.X("position:O", title="key", axis=token_axis(keys, labelAngle=-45)),
            xOffset=alt.XOffset("version:N", sort=[PLAIN, SCALED]),
            y=alt.Y(f"{field}:Q", title=field, scale=scale),
            color=_colour(),
            tooltip=["key:N", "version:N", f"{field}:Q"],
        )
        .transform_filter(CHOSEN)
    )


def _curve_panel(frame: Any, field: str, y: "alt.Y", title: str) -> "alt.LayerChart":
    """One curve for each version, and a line at the d_k that the slider chose."""
    widths = sorted(set(frame["d_k"]))
    across = alt.Axis(grid=False, values=widths, format="d", labelOverlap=False, labelFlush=False)
    base = alt.Chart(frame, title=title, **PANEL)
    curves = base.mark_line(point=True).encode(
        x=alt.X("d_k:Q", scale=alt.Scale(type="log", base=2), title="d_k", axis=across),
        y=y,
        color=_colour(),
        tooltip=["d_k:Q", "version:N", f"{field}:Q"],
    )
    return base.mark_rule(strokeDash=[4, 4]).encode(x="d_k:Q").transform_filter(CHOSEN) + curves
