"""What normalisation does to gradients, layer by layer."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from annotated.plots.drawing import axes_or_new, palette

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
