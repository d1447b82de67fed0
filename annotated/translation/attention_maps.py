"""The attention weights of every layer and head, recorded while a model computes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from annotated.transformer.model import EncoderDecoder

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
