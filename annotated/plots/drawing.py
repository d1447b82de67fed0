"""What the figures share: the drawing libraries, axes to draw on, colours, and plain arrays to draw."""

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes


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


def load(module: str) -> ModuleType:
    """Import a module of the `notebooks` extra; where it is missing, say what to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        needed = 'pip install ".[notebooks]" in the clone'
        raise ModuleNotFoundError(f"{error.name} is missing: {needed}") from error


def axes_or_new(ax: "Axes | None", width: float = 8.0, height: float = 4.5) -> "Axes":
    """The axes given, or those of a new figure of this size in inches."""
    if ax is not None:
        return ax
    return load("matplotlib.pyplot").subplots(figsize=(width, height), layout="constrained")[1]


def palette(count: int = 10) -> list[str]:
    """The first colours, as hexadecimal strings, of seaborn's colour-blind-safe palette; it has ten."""
    return load("seaborn").color_palette("colorblind", count).as_hex()


def as_array(values: Tensor | Sequence[Any], dims: int, name: str) -> "np.ndarray":
    """A tensor, or lists of numbers, as an array; raises ValueError unless it has `dims` dimensions."""
    tensor = torch.as_tensor(values).detach().cpu()
    if tensor.dim() != dims or tensor.numel() == 0:
        shape = tuple(tensor.shape)
        raise ValueError(f"{name} must have {dims} dimension{'s'[: dims > 1]}, none empty, not shape {shape}")
    return tensor.numpy()


def check_names(names: Sequence[str], size: int, what: str) -> None:
    """Raise ValueError unless there is one name for each of `size` things."""
    if len(names) != size:
        raise ValueError(f"{what}: {size} of them need {size} names, not {len(names)}")
