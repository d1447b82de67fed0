"""Shared by all figures: axes, colors, and checks of the tokens."""

from collections.abc import Sequence
from typing import Any

import seaborn
from matplotlib import pyplot as plt
from torch import Tensor

Tokens = Sequence[str]
Style = dict[str, Any]  # arguments that say how something is drawn
LARGEST = 40.0  # inches; several times as much takes minutes and gigabytes


def axes_or_new(ax: plt.Axes | None, width: float = 8.0, height: float = 4.5) -> plt.Axes:
    """Return the axes given, or those of a new figure of this size in inches, at most 40 by 40."""
    return ax or plt.subplots(figsize=(min(width, LARGEST), min(height, LARGEST)), layout="constrained")[1]


def palette(count: int = 10) -> list[str]:
    """Return colors, in hexadecimal: the first of seaborn's color-blind-safe ten; if more, as many hues."""
    return seaborn.color_palette("colorblind" if count <= 10 else "husl", count).as_hex()


def as_words(tokens: Tokens) -> list[str]:
    """Return the tokens as figures show them: without `▁`, and with a dot where a piece continues a word."""
    tokens = [str(token) for token in tokens]  # or ids
    if not any(token.startswith("▁") for token in tokens):
        return tokens
    symbols = {"<s>": "start", "</s>": "end"}
    return [symbols.get(t, t[1:] if t.startswith("▁") else "·" * t[:1].isalnum() + t) for t in tokens]


def check_tokens(grid: Tensor, queries: Tokens, keys: Tokens) -> None:
    """Raise ValueError unless `grid` is (queries, keys): a token on the wrong axis tells a wrong story."""
    expected = rows, columns = len(queries), len(keys)
    if grid.shape != expected:
        needed = f"{rows} queries (down) and {columns} keys (across) need a grid of shape {expected}"
        raise ValueError(f"{needed}, not {tuple(grid.shape)}")
