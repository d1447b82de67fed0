"""What each kind of layer costs (Table 1), the parameters of Table 3, and the roofline of a processor."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from annotated.plots.drawing import axes_or_new, palette, plt
from annotated.transformer.model import TransformerConfig

Curve = tuple[Sequence[float], Sequence[float]]  # sizes, and what each cost
MARKERS = "os^DvP*X"


def fit_power(sizes: Sequence[float], costs: Sequence[float]) -> tuple[float, float]:
    """Return (factor, exponent) of the power law that fits best: cost = factor * size^exponent.

    Least squares on logarithms. Raises ValueError unless there are two sizes or more and all is positive.
    """
    if len(sizes) != len(costs) or len(set(sizes)) < 2 or min(*sizes, *costs) <= 0:
        raise ValueError(f"need two sizes or more, a cost for each, all positive, not {sizes} and {costs}")
    exponent, intercept = np.polyfit(np.log(sizes), np.log(costs), 1)
    return float(np.exp(intercept)), float(exponent)


def plot_costs(
    curves: Mapping[str, Curve],
    title: str,
    ylabel: str = "time (s)",
    fitted: int = 4,
    ax: "plt.Axes | None" = None,
) -> "plt.Axes":
    """Draw measured points, and the power law (dashed) through the `fitted` largest of each, exponent named.

    Only the largest: small sizes are all overhead. Raises ValueError as `fit_power` does.
    """
    if not curves or fitted < 2:
        raise ValueError(f"plot_costs needs a curve, and two points or more to fit, not {fitted}")
    fits = {name: fit_power(sizes[-fitted:], costs[-fitted:]) for name, (sizes, costs) in curves.items()}
    ax = axes_or_new(ax)
    for (name, curve), colour, marker in zip(curves.items(), palette(len(curves)), MARKERS, strict=False):
        factor, exponent = fits[name]
        ax.plot(*curve, marker, color=colour, ms=8, label=f"{name}: exponent {exponent:.2f}")
        ends = [curve[0][-fitted:][0], curve[0][-1]]
        ax.plot(ends, [factor * size**exponent for size in ends], "--", color=colour)
    ax.set(xscale="log", yscale="log", title=title, xlabel="length (tokens)", ylabel=ylabel)
    sizes = sorted({size for xs, _ in curves.values() for size in xs})
    ax.set_xticks(sizes[:: -(-len(sizes) // 7)])
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.xaxis.set_minor_locator(plt.NullLocator())
    ax.legend(frameon=False)
    return ax


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


def _attention_flops(q: Tensor, k: Tensor, v: Tensor, *args: object, **kwargs: object) -> int:
    return sdpa_flop_count(q.shape, k.shape, v.shape)


# PyTorch's formulas for what multiplies matrices; it has none for the fused attention of a CPU.
FLOPS = {**flop_registry, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops}
LOOK_UPS = {"embedding", "index", "index_select", "gather"}  # read as much as they write
VIEWS = {"_unsafe_view"}  # beside those that say so themselves
LOWEST, HIGHEST = -5, 9  # the intensities that are drawn, as powers of two


class Operands(TorchDispatchMode):
    """Note each call of PyTorch while the block runs: its operations, and the bytes of operands and results.

        with Operands() as step:
            loss.backward()

    `step.calls` holds (whether it multiplies matrices, operations, bytes) of each, without views. One that
    does not multiply matrices counts as one operation per number that it writes. What comes from memory can
    be less than these bytes, because a processor's cache may still hold an operand.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[bool, int, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the call, and note it."""
        kwargs = kwargs or {}
        out, name = func(*args, **kwargs), func.overloadpacket.__name__
        given = {key: value for key, value in kwargs.items() if key != "out"}  # that one is only written
        known = zip(func._schema.arguments, args, strict=False)
        changed = [value for x, value in known if x.alias_info is not None and x.alias_info.is_write]
        read, written = _tensors((args, given)), _tensors(out) or _tensors(changed)
        if func.is_view or name in VIEWS or not written:
            return out
        formula = FLOPS.get(func.overloadpacket)
        done = formula(*args, **kwargs, out_val=out) if formula else sum(x.numel() for x in written)
        size = sum(x.nbytes for x in [*written, *(written if name in LOOK_UPS else read)])
        self.calls.append((formula is not None, done, size))
        return out

    def total(self, column: int, products: Collection[bool] = (True, False)) -> int:
        """Add up a column, operations (1) or bytes (2), of matrix products, of other calls, or of both."""
        return sum(call[column] for call in self.calls if call[0] in products)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def plot_roofline(
    peak: float, bandwidth: float, measured: Mapping[str, tuple[float, float]], work: Mapping[str, Operands]
) -> "tuple[plt.Axes, plt.Axes]":
    """Draw the roofline with measured calls on it; below it, how the bytes of `work` spread over intensities.

    `peak` is in operations per second, `bandwidth` in bytes per second; `measured` has (intensity, operations
    per second) by name, `work` the calls of programs; those outside the drawn intensities are left out.
    """
    _, (roof, below) = plt.subplots(
        2, 1, figsize=(9, 6.5), sharex=True, height_ratios=(3, 2), layout="constrained"
    )
    grid = [2.0**n for n in range(LOWEST, HIGHEST + 1)]
    bends = [grid[0], peak / bandwidth, grid[-1]]
    line = [min(peak, i * bandwidth) / 1e9 for i in bends]
    roof.plot(bends, line, color="black", label="roofline: min(P, I B)")
    roof.axvline(bends[1], color="black", ls=":", label=f"ridge point: P / B = {bends[1]:.1f}")
    points = [(intensity, rate / 1e9) for intensity, rate in measured.values()]
    roof.plot(*zip(*points, strict=True), "o", ms=9, label="measured products")
    for name, point in zip(measured, points, strict=True):
        behind = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        roof.annotate(name, point, xytext=(9, -12), textcoords="offset points", bbox=behind)
    roof.set(yscale="log", ylabel="GFLOP/s", title="A roofline of one core, and where the calls lie")
    roof.yaxis.set_major_formatter("{x:g}")
    roof.legend(frameon=False, loc="upper left")
    edges = [2 ** (k / len(work)) for k in range(len(work) + 1)]  # side by side between two grid points
    for left, right, (name, calls) in zip(edges, edges[1:], work.items(), strict=False):
        heights = [100 * share for share in byte_shares(calls)]
        places, widths = ([x * size for x in grid[:-1]] for size in (left, right - left))
        below.bar(places, heights, widths, align="edge", label=name)
    below.axvline(bends[1], color="black", ls=":")
    below.set(xscale="log", xlabel="arithmetic intensity (operations per byte)", ylabel="share of bytes (%)")
    below.set_xticks(grid[1::2], [f"1/{1 / i:.0f}" if i < 1 else f"{i:.0f}" for i in grid[1::2]])
    below.minorticks_off()
    below.legend(frameon=False)
    return roof, below


def byte_shares(calls: Operands) -> list[float]:
    """Return the share of all bytes that belongs to calls of each intensity, from 2^`LOWEST` on, doubling."""
    shares, whole = [0.0] * (HIGHEST - LOWEST), calls.total(2)
    for _, done, size in calls.calls:
        place = math.floor(math.log2(max(done, 1) / size)) - LOWEST if size else -1
        if 0 <= place < len(shares):
            shares[place] += size / whole
    return shares
