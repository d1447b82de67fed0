"""Shared by all figures: the libraries that draw, loaded when something is drawn, axes, colors, checks."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from annotated.optional import require

Tokens = Sequence[str]
Style = dict[str, Any]  # arguments that say how something is drawn
load = partial(require, extra="notebooks")  # imports a library that draws


class Lazy:
    """A module that is imported, by `load`, when something of it is used."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(load(self._module), name)


# They are large and belong to an extra, which a user who draws nothing need not install.
if TYPE_CHECKING:
    import altair as alt
    from matplotlib import pyplot as plt
else:
    alt = Lazy("altair")
    plt = Lazy("matplotlib.pyplot")


LARGEST = 40.0  # inches; several times as much takes minutes and gigabytes


def axes_or_new(ax: "plt.Axes | None", width: float = 8.0, height: float = 4.5) -> "plt.Axes":
    """Return the axes given, or those of a new figure of this size in inches, at most 40 by 40."""
    return ax or plt.subplots(figsize=(min(width, LARGEST), min(height, LARGEST)), layout="constrained")[1]


def palette(count: int = 10) -> list[str]:
    """Return the first colors, in hexadecimal, of seaborn's color-blind-safe palette; it has ten."""
    return load("seaborn").color_palette("colorblind", count).as_hex()


def as_words(tokens: Tokens) -> list[str]:
    """Return the tokens as figures show them: without `▁`, and with a dot where a piece continues a word."""
    if not any(token.startswith("▁") for token in tokens):
        return list(tokens)
    symbols = {"<s>": "start", "</s>": "end"}
    return [symbols.get(t, t[1:] if t.startswith("▁") else "·" * t[:1].isalnum() + t) for t in tokens]


def check_tokens(grid: Tensor, queries: Tokens, keys: Tokens) -> None:
    """Raise ValueError unless `grid` is (queries, keys): a token on the wrong axis tells a wrong story."""
    expected = rows, columns = len(queries), len(keys)
    if grid.shape != expected:
        needed = f"{rows} queries (down) and {columns} keys (across) need a grid of shape {expected}"
        raise ValueError(f"{needed}, not {tuple(grid.shape)}")
