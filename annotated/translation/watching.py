"""Watching a model, or evaluating it, for a while. Threads do not get into each other's way."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from annotated.transformer.model import EncoderDecoder

LOCK = threading.Lock()
# By how many blocks each module is being evaluated, and whether it was in training before. It stands here
# because a note on the module itself would be copied with it.
HELD: WeakKeyDictionary[nn.Module, tuple[int, bool]] = WeakKeyDictionary()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch dropout off and keep no gradients while the block runs; then set every part back as it was.

    Where several blocks overlap, in one thread or several, a part is set back at the end of the last of them.
    A thread that trains the model meanwhile trains without dropout: let it have a copy.
    """
    modules = list(model.modules())
    with LOCK:
        for module in modules:
            blocks, training = HELD.get(module, (0, module.training))
            HELD[module] = blocks + 1, training
            module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        with LOCK:
            for module in modules:
                blocks, training = HELD.pop(module)
                if blocks > 1:
                    HELD[module] = blocks - 1, training
                else:
                    module.training = training


AttentionMaps = dict[tuple[str, int], Tensor]


@contextmanager
def capture_attention(model: EncoderDecoder) -> Iterator[AttentionMaps]:
    """Record the attention weights of every layer and head while the block runs.

    Yields a dictionary: `maps["encoder", 0]`, `maps["decoder", 0]` and `maps["cross", 0]` are the weights
    (batch, h, queries, keys) of the first layer's attention of each kind, from the latest forward pass:
    float32, on the CPU, without gradient. Only the passes of this thread are recorded; others may use the
    same model meanwhile.

        with capture_attention(model) as maps:
            model(src, tgt, src_mask, tgt_mask)
        maps["cross", 0][0]  # (h, tgt_len, src_len)
    """
    maps: AttentionMaps = {}
    named: dict[tuple[str, int], Any] = {}
    for i, layer in enumerate(model.encoder.layers):
        named["encoder", i] = layer.self_attn
    for i, layer in enumerate(model.decoder.layers):
        named["decoder", i], named["cross", i] = layer.self_attn, layer.src_attn

    def record(name: tuple[str, int], weights: Tensor) -> None:
        maps[name] = weights.detach().float().cpu()

    before = [module.on_weights for module in named.values()]
    for name, module in named.items():
        module.on_weights = partial(record, name)
    try:
        yield maps
    finally:
        for module, on_weights in zip(named.values(), before, strict=True):
            module.on_weights = on_weights


def is_watched(model: nn.Module) -> bool:
    """Whether this thread records attention weights of the model."""
    return any(getattr(module, "on_weights", None) is not None for module in model.modules())


@dataclass(frozen=True, eq=False, repr=False)
class TranslationAttention:
    """The attention weights of one translation, with the tokens that stand on their axes.

    `maps["encoder" | "decoder" | "cross", layer]` is float32 (h, queries, keys). Encoder queries and keys are
    `src_tokens`; decoder queries are `tgt_tokens`, those read, from `<s>` on; cross keys are `src_tokens`.
    """

    src_tokens: list[str]
    tgt_tokens: list[str]
    maps: AttentionMaps

    def tokens(self, kind: str) -> tuple[list[str], list[str]]:
        """The tokens down (queries) and across (keys) a map of this kind."""
        queries = self.src_tokens if kind == "encoder" else self.tgt_tokens
        keys = self.tgt_tokens if kind == "decoder" else self.src_tokens
        return queries, keys
