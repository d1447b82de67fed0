"""Where the parameters are (Table 3): counted from the settings alone, no model built."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from annotated.plots.drawing import axes_or_new, palette
from annotated.transformer.model import TransformerConfig

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def count_parameters(config: TransformerConfig) -> dict[str, int]:
    """How many trained numbers each component holds; matrices that are shared count once, as embeddings."""
    c, d = config, config.d_model
    attention = 4 * (d * d + d)
    feed_forward = (d * c.d_ff + c.d_ff) + (c.d_ff * d + d)
    matrices = {"all": c.tgt_vocab, "target": c.src_vocab + c.tgt_vocab, "none": c.src_vocab + c.tgt_vocab}
    norms = 5 * c.N + (2 if c.norm_first else 0)  # two a layer in the encoder, three in the decoder
    return {
        "embeddings": matrices[c.tied_embeddings] * d,
        "positions": 2 * c.max_len * d if c.positions == "learned" else 0,
        "encoder self-attention": c.N * attention,
        "decoder self-attention": c.N * attention,
        "cross-attention": c.N * attention,
        "feed-forward": 2 * c.N * feed_forward,
        "layer norms": norms * 2 * d,
        "output": c.tgt_vocab + (c.tgt_vocab * d if c.tied_embeddings == "none" else 0),
    }


def plot_parameters(configs: Mapping[str, TransformerConfig], ax: "Axes | None" = None) -> "Axes":
    """A bar for each model, stacked by component, in millions, its total at the end.

    Components of less than a thousandth of the largest model are left out of the legend, not of the sum.
    Raises ValueError if there is no model.
    """
    if not configs:
        raise ValueError("plot_parameters needs at least one model")
    counts = [count_parameters(config) for config in configs.values()]
    most = max(sum(count.values()) for count in counts)
    ax = axes_or_new(ax, 9.0, 1.1 * len(configs) + 2.6)
    before = [0.0] * len(counts)
    for component, colour in zip(counts[0], palette(len(counts[0])), strict=True):
        widths = [count[component] / 1e6 for count in counts]
        label = component if max(widths) * 1e6 >= most / 1000 else f"_{component}"
        ax.barh(list(configs), widths, left=before, color=colour, edgecolor="white", label=label)
        before = [start + width for start, width in zip(before, widths, strict=True)]
    for name, total in zip(configs, before, strict=True):
        ax.annotate(f" {total:,.1f} M", (total, name), va="center")
    ax.invert_yaxis()
    ax.margins(x=0.15)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=3, frameon=False)
    ax.set(title="Where the parameters are", xlabel="parameters (millions)", ylabel="model")
    return ax
