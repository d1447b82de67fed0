"""The roofline: what a processor can do at each arithmetic intensity, and where a program's calls lie."""

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from annotated.plots.drawing import load

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
        read, written, changed = (
            [x for x in tree_leaves(tree) if isinstance(x, Tensor)] for tree in ((args, given), out, changed)
        )
        written = written or changed
        if func.is_view or name in VIEWS or not written:
            return out
        formula = FLOPS.get(func.overloadpacket)
        done = formula(*args, **kwargs, out_val=out) if formula else sum(x.numel() for x in written)
        size = sum(x.nbytes for x in [*written, *(written if name in LOOK_UPS else read)])
        self.calls.append((formula is not None, done, size))
        return out

    def total(self, column: int, products: Collection[bool] = (True, False)) -> int:
        """The sum of a column, operations (1) or bytes (2), of matrix products, other calls, or both."""
        return sum(call[column] for call in self.calls if call[0] in products)


def plot_roofline(
    peak: float, bandwidth: float, measured: Mapping[str, tuple[float, float]], work: Mapping[str, Operands]
) -> "tuple[Axes, Axes]":
    """The roofline with measured calls on it; below it, how the bytes of `work` spread over the intensities.

    Args:
        peak: operations per second.
        bandwidth: bytes per second.
        measured: name to (intensity, operations per second).
        work: name to the calls of a program; those outside the drawn intensities are left out.
    """
    shape = {"figsize": (9, 6.5), "sharex": True, "height_ratios": (3, 2), "layout": "constrained"}
    _, (roof, below) = load("matplotlib.pyplot").subplots(2, 1, **shape)
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
    """The share of all bytes that belongs to calls of each intensity, from 2^`LOWEST` on, doubling."""
    shares, whole = [0.0] * (HIGHEST - LOWEST), calls.total(2)
    for _, done, size in calls.calls:
        place = math.floor(math.log2(max(done, 1) / size)) - LOWEST if size else -1
        if 0 <= place < len(shares):
            shares[place] += size / whole
    return shares
