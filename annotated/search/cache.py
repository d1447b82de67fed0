"""What decoding keeps from one step to the next, so that each step computes a single position.

Shape letters as in `annotated.transformer.attention`: B batch, h heads, S keys, d_k = d_model / h.
"""

from typing import cast

from torch import Tensor


class KeyValueCache:
    """The projected keys and values of one attention layer, for decoding: no gradient can go back through it.

    A cache that does not grow is complete after its first step: the memory, unlike the target, is all there
    from the start. `room`, None before the first step, is (2, B, h, positions, d_k), the keys and the values;
    of its positions the first `used` are taken, the others wait for the next steps.
    """

    def __init__(self, grows: bool = True):
        self.grows = grows
        self.room: Tensor | None = None
        self.used = 0

    def __len__(self) -> int:
        return self.used

    @property
    def key(self) -> Tensor:
        """All keys that are held, (B, h, S, d_k), after the first step."""
        return cast(Tensor, self.room)[0, ..., : self.used, :]

    @property
    def value(self) -> Tensor:
        """All values that are held, (B, h, S, d_k), after the first step."""
        return cast(Tensor, self.room)[1, ..., : self.used, :]

    @property
    def complete(self) -> bool:
        """Whether all is held that ever will be."""
        return not self.grows and self.room is not None

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values (B, h, new, d_k) of further positions; returns all that are held."""
        start, end = self.used, self.used + key.size(-2)
        if self.room is None or end > self.room.size(-2):
            # Twice what is needed: as a sentence grows, few of its steps have to move what they have.
            old, positions = self.room, 2 * end if self.grows else end
            self.room = key.new_empty(2, *key.shape[:-2], positions, key.size(-1))
            if old is not None:
                self.room[..., :start, :] = old[..., :start, :]
        self.room[0, ..., start:end, :] = key
        self.room[1, ..., start:end, :] = value
        self.used = end
        return self.key, self.value

    def select(self, rows: Tensor) -> None:
        """Keep the given rows of the batch, in that order; a row may come more than once."""
        if self.room is not None:
            self.room = self.room.index_select(1, rows)


class LayerCache:
    """One decoder layer's keys and values: those of the target so far, and those of the memory."""

    def __init__(self) -> None:
        self.target = KeyValueCache()
        self.memory = KeyValueCache(grows=False)


class DecoderCache:
    """The caches of a decoder of N layers; its length is that of the target so far."""

    def __init__(self, N: int):
        self.layers = [LayerCache() for _ in range(N)]

    def __len__(self) -> int:
        return len(self.layers[0].target)

    def select(self, rows: Tensor) -> None:
        """Keep the given rows of the batch, in that order; a row may come more than once."""
        for layer in self.layers:
            layer.target.select(rows)
            layer.memory.select(rows)
