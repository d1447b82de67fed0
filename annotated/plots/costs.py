"""What each kind of layer costs (Table 1), and the parameters of Table 3."""

from collections.abc import Mapping, Sequence
from typing import cast

from annotated.plots.drawing import axes_or_new, palette, plt
from annotated.transformer.model import TransformerConfig

MARKERS = "os^DvP*X"


def plot_against(
    sizes: Sequence[float],
    curves: Mapping[str, Sequence[float | None]],
    title: str,
    xlabel: str,
    ylabel: str,
    xscale: str = "log",
    limit: float | None = None,
    ax: "plt.Axes | None" = None,
) -> "plt.Axes":
    """Draw one curve a name over the same sizes, the vertical axis logarithmic.

    None stands for a value that was not reached: a cross at `limit`, to which a dotted line leads. NaN stands
    for one that nobody asked for: nothing is drawn. Raises ValueError if a curve has another length, or a
    value was not reached and there is no limit to draw it at.
    """
    ax = axes_or_new(ax)
    for (name, values), colour, marker in zip(curves.items(), palette(len(curves)), MARKERS, strict=False):
        points = list(zip(sizes, values, strict=True))
        there = [(size, value) for size, value in points if value is not None]
        missing = [size for size, value in points if value is None]
        if missing and limit is None:
            raise ValueError(f"{name!r} has no value at {missing}, and there is no limit to draw it at")
        foot = cast(float, limit)
        ax.plot(*zip(*there, strict=True), marker=marker, ms=7, color=colour, label=name)
        ax.plot(missing, [foot] * len(missing), "x", ms=10, mew=2.5, color=colour)
        if missing and there:
            before, value = max(point for point in there if point[1] == point[1])  # no NaN
            ax.plot([before, missing[0]], [value, foot], ":", color=colour)
    ax.set(xscale=xscale, yscale="log", title=title, xlabel=xlabel, ylabel=ylabel)
    if xscale == "log":
        ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
        ax.xaxis.set_minor_locator(plt.NullLocator())
    ax.grid(True)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return ax


def count_parameters(config: TransformerConfig) -> dict[str, int]:
    """Return how many trained numbers each component holds, by the settings; shared matrices count once."""
    c, d = config, config.d_model
    attention = 4 * (d * d + d)
    feed_forward = (d * c.d_ff + c.d_ff) + (c.d_ff * d + d)
    embedded = c.tgt_vocab if c.tied_embeddings == "all" else c.src_vocab + c.tgt_vocab
    norms = 5 * c.N + (2 if c.norm_first else 0)  # two a layer in the encoder, three in the decoder
    return {
        "embeddings": embedded * d,
        "positions": 2 * c.max_len * d if c.positions == "learned" else 0,
        "encoder self-attention": c.N * attention,
        "decoder self-attention": c.N * attention,
        "cross-attention": c.N * attention,
        "feed-forward": 2 * c.N * feed_forward,
        "layer norms": norms * 2 * d,
        "output": c.tgt_vocab + (c.tgt_vocab * d if c.tied_embeddings == "none" else 0),
    }
