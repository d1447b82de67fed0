"""What figures share: the libraries that draw, axes, colours, and grids with queries down and keys across."""

import importlib
import json
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

# What stands for what in every drawing, as (tint, line): the model's parts, and what attention works on.
COLOURS = {
    "attention": ("#d6e8f5", "#0173b2"),
    "network": ("#fbe3c0", "#b87503"),
    "norm": ("#d3efe5", "#02795a"),
    "embedding": ("#f3dcec", "#a8598f"),
    "output": ("#f9dccb", "#b54a00"),
    "query": ("#d6e7f5", "#0067b1"),
    "key": ("#fadccb", "#b3480a"),
    "value": ("#d3eee4", "#00795a"),
    "plain": ("#f3f3f3", "#8a8a8a"),
}
Tokens = Sequence[str]
Look = dict[str, Any]  # arguments that say how something is drawn


def load(module: str) -> ModuleType:
    """Import a module of the `notebooks` extra; where it is missing, say what to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        needed = 'pip install ".[notebooks]" in the clone'
        raise ModuleNotFoundError(f"{error.name} is missing: {needed}") from error


class Lazy:
    """A module that is imported, by `load`, when something of it is used."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(load(self._module), name)


# They are heavy, and belong to an extra: who draws nothing needs none of them.
if TYPE_CHECKING:
    import altair as alt
    import pandas as pd
    from matplotlib import pyplot as plt
else:
    alt, pd, plt = Lazy("altair"), Lazy("pandas"), Lazy("matplotlib.pyplot")


def axes_or_new(ax: "plt.Axes | None", width: float = 8.0, height: float = 4.5) -> "plt.Axes":
    """Return the axes given, or those of a new figure of this size in inches."""
    return ax or plt.subplots(figsize=(width, height), layout="constrained")[1]


def palette(count: int = 10) -> list[str]:
    """Return the first colours, in hexadecimal, of seaborn's colour-blind-safe palette; it has ten."""
    return load("seaborn").color_palette("colorblind", count).as_hex()


def as_array(values: Tensor | Sequence[Any], dims: int, name: str) -> np.ndarray:
    """Return a tensor, or lists of numbers, as an array; ValueError unless it has `dims` dimensions."""
    tensor = torch.as_tensor(values).detach().cpu()
    if tensor.dtype == torch.bfloat16:  # NumPy has no such type
        tensor = tensor.float()
    if tensor.dim() != dims or tensor.numel() == 0:
        shape = tuple(tensor.shape)
        raise ValueError(f"{name} must have {dims} dimension{'s'[: dims > 1]}, none empty, not shape {shape}")
    return tensor.numpy()


def check_names(names: Sequence[str], size: int, what: str) -> None:
    """Raise ValueError unless there is one name for each of `size` things."""
    if len(names) != size:
        raise ValueError(f"{what}: {size} of them need {size} names, not {len(names)}")


def check_tokens(grid: Tensor, queries: Tokens, keys: Tokens) -> None:
    """Raise ValueError unless `grid` is (queries, keys): a token on the wrong axis tells a wrong story."""
    wanted = (len(queries), len(keys))
    if tuple(grid.shape) != wanted:
        raise ValueError(
            f"{wanted[0]} queries (down) and {wanted[1]} keys (across) need a grid of shape {wanted}, "
            f"not {tuple(grid.shape)}"
        )


def label_tokens(ax: "plt.Axes", queries: Tokens, keys: Tokens) -> None:
    """Write the tokens on an image's axes: queries down the left side, keys along the foot."""
    look: Look = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    ax.set_xticks(range(len(keys)), keys, parse_math=False, **look)
    ax.set_yticks(range(len(queries)), queries, parse_math=False)
    ax.tick_params(length=0)
    ax.set(xlabel="key", ylabel="query")


def draw_cell_borders(ax: "plt.Axes", rows: int, columns: int) -> None:
    """Draw white lines between the cells of an image, so that they can be counted."""
    ax.set_xticks([x - 0.5 for x in range(1, columns)], minor=True)
    ax.set_yticks([y - 0.5 for y in range(1, rows)], minor=True)
    ax.grid(True, which="minor", color="white", linewidth=1.5)
    ax.tick_params(which="minor", length=0)
    ax.spines[:].set_visible(False)


def token_axis(tokens: Tokens, **settings: Any) -> "alt.Axis":
    """Return a chart's axis on which position n is labelled with the n-th token."""
    return alt.Axis(labelExpr=f"{token_list(tokens)}[datum.value]", **settings)


def token_list(tokens: Tokens) -> str:
    """Return the tokens as a list in Vega's expression language.

    A chart's JSON stands in a script element of the HTML that shows it, which a token of a stranger's model
    must not close; in an expression `<` can be escaped.
    """
    return json.dumps(list(tokens), ensure_ascii=False).replace("<", "\\u003c")
