"""What decoding keeps from one step to the next, so that each step computes a single position.

Shape letters as in `annotated.attention`: B batch, h heads, S keys, d_k = d_model / h.
"""

import torch
from torch import Tensor


class KeyValueCache:
    """The projected keys and values of one attention layer.

    `key` and `value` are (B, h, S, d_k), or None before the first step. A cache that does not grow is
    complete after that step: the memory, unlike the target, is all there from the start.
    """

    def __init__(self, grows: bool = True):
        self.grows = grows
        self.key: Tensor | None = None
        self.value: Tensor | None = None

    def __len__(self) -> int:
        """How many positions are held."""
        return 0 if self.key is None else self.key.size(-2)

    @property
    def complete(self) -> bool:
        """Whether all is held that ever will be."""
        return not self.grows and self.key is not None

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values (B, h, new, d_k) of further positions; returns all that are held."""
        if self.key is not None:
            key, value = torch.cat([self.key, key], dim=-2), torch.cat([self.value, value], dim=-2)
        self.key, self.value = key, value
        return key, value

    def select(self, rows: Tensor) -> None:
        """Keep the given rows of the batch, in that order; a row may come more than once."""
        if self.key is not None:
            self.key, self.value = self.key.index_select(0, rows), self.value.index_select(0, rows)


class LayerCache:
    """One decoder layer's keys and values: those of the target so far, and those of the memory."""

    def __init__(self) -> None:
        self.target = KeyValueCache()
        self.memory = KeyValueCache(grows=False)


class DecoderCache:
    """The caches of a decoder of N layers."""

    def __init__(self, N: int):
        self.layers = [LayerCache() for _ in range(N)]

    def __len__(self) -> int:
        """How many target positions are held."""
        return len(self.layers[0].target)

    def select(self, rows: Tensor) -> None:
        """Keep the given rows of the batch, in that order; a row may come more than once."""
        for layer in self.layers:
            layer.target.select(rows)
            layer.memory.select(rows)
