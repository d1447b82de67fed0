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


def load(module: str) -> ModuleType:
    """Import a module of the `notebooks` extra; where it is missing, say what to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        needed = 'pip install "annotated-transformer[notebooks]"'
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
