"""The attention weights of every layer and head, recorded while a model computes."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from inspect import signature
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from annotated.evaluation_mode import evaluating
from annotated.transformer.attention import Mask, MultiHeadedAttention
from annotated.transformer.cache import KeyValueCache
from annotated.transformer.model import EncoderDecoder

AttentionMaps = dict[tuple[str, int], Tensor]


@dataclass(frozen=True, eq=False, repr=False)
class TranslationAttention:
    """The attention weights of one translation, with the tokens that stand on their axes.

    `maps["encoder" | "decoder" | "cross", layer]` is float32 (h, queries, keys). Encoder queries and keys are
    `src_tokens`; decoder queries are `tgt_tokens`, those read, from `<s>` on; cross keys are `src_tokens`.
    """

    src_tokens: list[str]
    tgt_tokens: list[str]
    maps: AttentionMaps

    def __repr__(self) -> str:
        return f"TranslationAttention({self.src_tokens} → {self.tgt_tokens}, {len(self.maps)} maps)"


@contextmanager
def capture_attention(model: EncoderDecoder) -> Iterator[AttentionMaps]:
    """Record the attention weights of every layer and head while the block runs.

    Yields a dictionary: `maps["encoder", 0]`, `maps["decoder", 0]` and `maps["cross", 0]` are the weights
    (batch, h, queries, keys) of the first layer's attention of each kind, before dropout, from the latest
    forward pass of this thread: float32, on the CPU, without gradient.

        with capture_attention(model) as maps:
            model(src, tgt, src_mask, tgt_mask)
        maps["cross", 0][0]  # (h, tgt_len, src_len)

    An attention or a layer that stands in several places has the weights of each under its own name.
    Raises TypeError for another model, and for a variant whose attention has a `forward` of its own.
    """
    maps: AttentionMaps = {}
    thread = threading.get_ident()
    modules: dict[tuple[str, int], Any] = {}
    try:
        modules |= {("encoder", i): layer.self_attn for i, layer in enumerate(model.encoder.layers)}
        modules |= {("decoder", i): layer.self_attn for i, layer in enumerate(model.decoder.layers)}
        modules |= {("cross", i): layer.src_attn for i, layer in enumerate(model.decoder.layers)}
    except AttributeError as error:
        remedy = "attention is recorded in an EncoderDecoder, such as a translator's `model`"
        raise TypeError(f"{remedy}: {error}") from None
    for module in modules.values():
        if getattr(type(module), "forward", None) is not MultiHeadedAttention.forward:
            raise TypeError(f"{type(module).__name__} attends in a way of its own, which is not recorded")
    running: list[tuple[str, int]] = []  # the names of the attentions of the layer that is running

    def enter(kinds: tuple[str, ...], places: Iterator[int], *_: Any) -> None:
        if threading.get_ident() == thread:
            place = next(places)
            running[:] = [(kind, place) for kind in kinds]

    def record(module: Any, inputs: tuple[Any, ...], named: dict[str, Any], _: Tensor) -> None:
        if threading.get_ident() == thread:
            call = signature(attention_weights).bind(module, *inputs, **named)
            here = [name for name in running if modules[name] is module]
            names = here or [name for name in modules if modules[name] is module]
            itself = call.arguments["query"] is call.arguments["key"]
            maps[names[0 if itself else -1]] = attention_weights(*call.args, **call.kwargs).float().cpu()

    with ExitStack() as hooks:
        for kinds, stack in ((("encoder",), model.encoder), (("decoder", "cross"), model.decoder)):
            for layer in {*stack.layers}:
                places = cycle([i for i, other in enumerate(stack.layers) if other is layer])
                hooks.enter_context(layer.register_forward_pre_hook(partial(enter, kinds, places)))
        for module in {*modules.values()}:
            hooks.enter_context(module.register_forward_hook(record, with_kwargs=True))
        yield maps


def attention_weights(
    module: MultiHeadedAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask = None,
    cache: KeyValueCache | None = None,
) -> Tensor:
    """Compute the weights (batch, h, queries, keys) of an attention, or a variant's, after such a call."""
    to_query, to_key, *_ = module.linears
    with evaluating(module):
        q = module.split(to_query(query))  # (batch, h, queries, d_k)
        k = module.split(to_key(key)) if cache is None else cache.key  # (batch, h, keys, d_k)
        mask = None if mask is None else mask.unsqueeze(1)
        keys = k.size(-2)
        # With the identity matrix as values, the output of attention is its weights. The matrix is given in
        # parts of the width d_k, which `attend` may count on.
        identity = torch.eye(keys, keys + -keys % module.d_k, dtype=k.dtype, device=k.device)
        parts = (part.expand(*k.shape[:-1], -1) for part in identity.split(module.d_k, dim=-1))
        return torch.cat([module.attend(q, k, part, mask) for part in parts], dim=-1)[..., :keys]
