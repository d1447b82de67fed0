"""Positional encodings (section 3.5), learned or not."""

from torch import Tensor

from annotated.plots.drawing import as_array, axes_or_new, plt


def plot_encodings(encodings: Tensor, ax: "plt.Axes | None" = None) -> "plt.Axes":
    """Draw all encodings (length, d_model), position down and dimension across; sinusoids or learned."""
    values = as_array(encodings, 2, "encodings")
    ax = axes_or_new(ax)
    limit = max(1.0, abs(values).max())
    image = ax.imshow(values, cmap="viridis", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, label="value")
    ax.set(title="Positional encodings", xlabel="dimension", ylabel="position")
    return ax
