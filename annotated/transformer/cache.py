"""The key/value cache of decoding: what the decoder has computed for earlier positions and for the source.

Shape letters as in `annotated.transformer.attention`: B batch, h heads, S keys, d_k = d_model / h.
"""

from typing import cast

from torch import Tensor


class KeyValueCache:
    """The projected keys and values of one attention layer.

    Those of the target grow by a position a step. Those of the memory (`grows=False`) are complete after the
    first step. They are written in place, so a cache is for evaluation: no gradient passes a second step.
    """

    def __init__(self, grows: bool = True):
        self.grows = grows
        self.storage: Tensor | None = None  # (2, B, h, positions, d_k), keys and values; room to grow
        self.used = 0

    def __len__(self) -> int:
        return self.used

    @property
    def key(self) -> Tensor:
        """Get all keys, (B, h, S, d_k), after the first step."""
        return cast(Tensor, self.storage)[0, ..., : self.used, :]

    @property
    def value(self) -> Tensor:
        """Get all values, (B, h, S, d_k), after the first step."""
        return cast(Tensor, self.storage)[1, ..., : self.used, :]

    @property
    def complete(self) -> bool:
        """Tell whether nothing will be added."""
        return not self.grows and self.storage is not None

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append the keys and values (B, h, new, d_k) of further positions; return all."""
        start, end = self.used, self.used + key.size(-2)
        if self.storage is None or end > self.storage.size(-2):
            # Twice the room needed: most steps then write one position and copy nothing.
            old, positions = self.storage, 2 * end if self.grows else end
            self.storage = key.new_empty(2, *key.shape[:-2], positions, key.size(-1))
            if old is not None:
                self.storage[..., :start, :] = old[..., :start, :]
        self.storage[0, ..., start:end, :] = key
        self.storage[1, ..., start:end, :] = value
        self.used = end
        return self.key, self.value

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order; a row may be repeated."""
        if self.storage is not None:
            self.storage = self.storage.index_select(1, rows)


class LayerCache:
    """The caches of one decoder layer: of the target so far, and of the memory."""

    def __init__(self) -> None:
        self.target = KeyValueCache()
        self.memory = KeyValueCache(grows=False)


class DecoderCache:
    """The caches of N decoder layers, for one batch of sentences; the length is that of the target so far."""

    def __init__(self, N: int):
        self.layers = [LayerCache() for _ in range(N)]
        self.first: Tensor | None = None  # (B, d_model), the first state of each sentence

    def __len__(self) -> int:
        return len(self.layers[0].target)

    def check(self, memory: Tensor) -> None:
        """Raise ValueError for a memory (B, src_len, d_model) other than that of the earlier steps."""
        first = memory[:, 0]
        if self.first is None:
            self.first = first
        if first.shape != self.first.shape or not first.allclose(self.first, 0, 0, equal_nan=True):
            raise ValueError("a DecoderCache is of one batch of sentences: begin another for these")

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order; a row may be repeated."""
        if self.first is not None:
            self.first = self.first[rows]
        for layer in self.layers:
            layer.target.select(rows)
            layer.memory.select(rows)
