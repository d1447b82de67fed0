"""Positional encodings (section 3.5): picture, clocks, waves, distances, similarity, lengths."""

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from annotated.plots.drawing import as_array, axes_or_new, palette, plt


def plot_encodings(encodings: Tensor, ax: "plt.Axes | None" = None) -> "plt.Axes":
    """Draw all encodings (length, d_model), position down and dimension across; sinusoids or learned."""
    values = as_array(encodings, 2, "encodings")
    ax = axes_or_new(ax)
    limit = max(1.0, abs(values).max())
    image = ax.imshow(values, cmap="viridis", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, label="value")
    ax.set(title="Positional encodings", xlabel="dimension", ylabel="position")
    return ax


def plot_similarity(encodings: Tensor, ax: "plt.Axes | None" = None) -> "plt.Axes":
    """Draw the dot products of every two encodings (length, d_model): the same all along each diagonal."""
    values = as_array(encodings, 2, "encodings")
    ax = axes_or_new(ax, 6.4, 5.2)
    image = ax.imshow(values @ values.T, cmap="viridis", interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, label="dot product")
    ax.set(title="Similarity of two positions", xlabel="position", ylabel="position")
    return ax


def plot_offsets(encodings: Tensor, starts: Sequence[int], ax: "plt.Axes | None" = None) -> "plt.Axes":
    """Draw dot products with some starting positions against the offset from there: the curves coincide.

    The encodings are (length, d_model). Raises ValueError for a start that is no position.
    """
    values = as_array(encodings, 2, "encodings")
    length = len(values)
    check_within(starts, length, "start")
    ax = axes_or_new(ax)
    for i, (start, colour) in enumerate(zip(starts, palette(len(starts)), strict=True)):
        width = 4 * (len(starts) - i) - 2  # from wide to narrow, so that each curve is seen beneath the next
        products = values @ values[start]
        ax.plot(range(-start, length - start), products, color=colour, lw=width, label=f"{start}")
    ax.legend(title="from position", frameon=False)
    ax.set(title="Similarity depends on the offset alone", xlabel="offset (positions)", ylabel="dot product")
    return ax


def plot_clocks(encodings: Tensor, positions: Sequence[int], offset: int = 0) -> "list[plt.Axes]":
    """Draw encodings (length, d_model), d_model even, as clocks, one for each position.

    Each pair of dimensions is a hand; it starts at twelve and turns clockwise, the fastest is the longest.
    With an `offset`, pale hands show the position and full ones that `offset` further.
    Raises ValueError for a position beyond the encodings.
    """
    values = as_array(encodings, 2, "encodings")
    check_within([position + offset for position in positions], len(values), "position")
    pairs = values.shape[1] // 2
    size = (2.6 * len(positions), 3.3)
    figure, axes = plt.subplots(1, len(positions), figsize=size, layout="constrained", squeeze=False)
    for ax, position in zip(axes[0], positions, strict=True):
        ax.add_patch(plt.Circle((0, 0), 1.08, fill=False, color="#999999"))
        for number, alpha in {position: 0.3 if offset else 1.0, position + offset: 1.0}.items():
            hands = values[number].reshape(pairs, 2)  # sine to the right, cosine up
            for i, ((sine, cosine), colour) in enumerate(zip(hands, palette(pairs), strict=True)):
                length = 1 - 0.6 * i / pairs
                tip = ([0, length * sine], [0, length * cosine])
                ax.plot(*tip, color=colour, alpha=alpha, lw=2.5 + 1.5 * i, solid_capstyle="round")
        name = f"position {position}" + (f" → {position + offset}" if offset else "")
        ax.set(title=name, aspect="equal", xlim=(-1.15, 1.15), ylim=(-1.15, 1.15))
        ax.axis("off")
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in palette(pairs)]
    names = [f"dimensions {2 * i} and {2 * i + 1}" for i in range(pairs)]
    figure.legend(handles, names, loc="outside lower center", ncols=pairs, frameon=False)
    return list(axes[0])


def plot_distances(encodings: Tensor, offsets: Sequence[int], ax: "plt.Axes | None" = None) -> "plt.Axes":
    """Draw how far apart position 0 and each offset are, pair by pair: 0 at one point, 2 at opposite ones.

    The encodings are (length, d_model), d_model even. Raises ValueError for an offset beyond them.
    """
    values = as_array(encodings, 2, "encodings")
    check_within(offsets, len(values), "offset")
    steps = values[list(offsets)] - values[0]
    distances = (steps.reshape(len(offsets), -1, 2) ** 2).sum(axis=-1) ** 0.5  # (offsets, d_model / 2)
    ax = axes_or_new(ax)
    image = ax.imshow(distances, cmap="viridis", vmin=0, vmax=2, aspect="auto", interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, label="distance on the circle")
    ax.set_yticks(range(len(offsets)), [f"{offset:,}" for offset in offsets])
    ax.set(title="Which pairs tell two positions apart", ylabel="positions apart")
    ax.set_xlabel("pair of dimensions (fast to slow)")
    return ax


def plot_past(accuracies: Mapping[str, Tensor], trained: int, ax: "plt.Axes | None" = None) -> "plt.Axes":
    """Draw shares right (positions,), each under its name, by position; a line where training ended.

    The first entry of each belongs to position 1: at position 0 nothing is asked.
    """
    ax = axes_or_new(ax)
    styles = ["-", "--", ":", "-."]
    for i, (name, shares) in enumerate(accuracies.items()):
        percent = 100 * as_array(shares, 1, name)
        ax.plot(range(1, len(percent) + 1), percent, styles[i % 4], color=palette()[i], label=name)
    ax.axvline(trained - 0.5, color="#555555", lw=1.2)
    ax.annotate("never trained", (trained + 0.3, 102), color="#555555", va="bottom")
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    ax.set(xlabel="position", ylabel="right (%)", ylim=(0, 110), title="Past the trained length")
    return ax


def check_within(values: Iterable[int], size: int, name: str) -> None:
    """Raise ValueError unless each value counts one of `size` things, from 0."""
    for value in values:
        if not 0 <= value < size:
            raise ValueError(f"{name} must be from 0 to {size - 1}, not {value}")
