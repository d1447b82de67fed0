"""What normalisation does: to gradients, layer by layer, and to one vector, number by number."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from annotated.plots.drawing import as_array, axes_or_new, palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = "os^Dv"


def plot_gradient_norms(norms: Mapping[str, Sequence[float]], ax: "Axes | None" = None) -> "Axes":
    """The gradient's norm in each layer, the one nearest the input first; a curve for each kind of model.

    Raises ValueError for a norm that is not positive: it has no place on a logarithmic axis.
    """
    for name, values in norms.items():
        if not len(values) or min(values) <= 0:
            raise ValueError(f"gradient norms must be positive, one a layer; {name!r} has {list(values)}")
    ax = axes_or_new(ax)
    for (name, values), colour, marker in zip(norms.items(), palette(len(norms)), MARKERS, strict=False):
        ax.plot(range(1, len(values) + 1), values, marker=marker, ms=8, color=colour, label=name)
    ax.set_yscale("log")
    ax.set_xticks(range(1, max(map(len, norms.values())) + 1))
    ax.legend(frameon=False)
    ax.set(
        title="Gradient in each layer", xlabel="layer (1 is nearest the input)", ylabel="norm of the gradient"
    )
    return ax


def plot_normalised(x: Tensor, normalised: Mapping[str, Tensor], ax: "Axes | None" = None) -> "Axes":
    """One vector (d,) and what different layer norms make of it, as bars side by side.

    Raises ValueError where a normalised vector is of another size.
    """
    values = as_array(x, 1, "x")
    groups = {"before": values, **{name: as_array(y, 1, name) for name, y in normalised.items()}}
    for name, bars in groups.items():
        if len(bars) != len(values):
            raise ValueError(f"{name!r} has {len(bars)} numbers, the vector before it {len(values)}")
    ax = axes_or_new(ax)
    width = 0.8 / len(groups)
    colours = ["#b0b0b0", *palette(len(normalised))]
    for i, ((name, bars), colour) in enumerate(zip(groups.items(), colours, strict=True)):
        places = [place + (i - (len(groups) - 1) / 2) * width for place in range(len(values))]
        ax.bar(places, bars, width, color=colour, label=name)
    ax.axhline(0, color="#222222", lw=1)
    ax.set_xticks(range(len(values)))
    ax.legend(frameon=False)
    ax.set(title="One vector, normalised", xlabel="dimension", ylabel="value")
    return ax
