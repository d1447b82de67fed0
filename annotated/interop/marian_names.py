"""What Hugging Face's Marian calls our parameters, and which of their axes runs along d_model."""

from collections.abc import Collection, Iterator
from itertools import product

import torch
from torch import Tensor

ATTENTION = {f"linears.{i}": f"{name}_proj" for i, name in enumerate(["q", "k", "v", "out"])}
# Our name of each part of a layer, and Marian's.
LAYERS = {
    "encoder": {
        **{f"self_attn.{ours}": f"self_attn.{theirs}" for ours, theirs in ATTENTION.items()},
        "sublayer.0.norm": "self_attn_layer_norm",
        "feed_forward.w_1": "fc1",
        "feed_forward.w_2": "fc2",
        "sublayer.1.norm": "final_layer_norm",
    },
    "decoder": {
        **{f"self_attn.{ours}": f"self_attn.{theirs}" for ours, theirs in ATTENTION.items()},
        "sublayer.0.norm": "self_attn_layer_norm",
        **{f"src_attn.{ours}": f"encoder_attn.{theirs}" for ours, theirs in ATTENTION.items()},
        "sublayer.1.norm": "encoder_attn_layer_norm",
        "feed_forward.w_1": "fc1",
        "feed_forward.w_2": "fc2",
        "sublayer.2.norm": "final_layer_norm",
    },
}
SRC, TGT, OUTPUT, BIAS = (
    "src_embed.0.lut.weight",
    "tgt_embed.0.lut.weight",
    "generator.proj.weight",
    "generator.proj.bias",
)
SHARED, ENCODER, DECODER, HEAD = (
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
# For each way of tying, our matrices and all of Marian's names for each; a file has one of them or more.
MATRICES = {
    "all": {SRC: (SHARED, ENCODER, DECODER, HEAD)},
    "target": {SRC: (ENCODER,), TGT: (DECODER, HEAD)},
    "none": {SRC: (ENCODER,), TGT: (DECODER,), OUTPUT: (HEAD,)},
}
POSITIONS = "model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"


def stack_names(N: int) -> Iterator[tuple[str, str]]:
    """Our name of every parameter of the two stacks, and Marian's: one by one, as N may be any number."""
    for stack, parts in LAYERS.items():
        for i in range(N):
            for (ours, theirs), kind in product(parts.items(), ("weight", "bias")):
                yield f"{stack}.layers.{i}.{ours}.{kind}", f"model.{stack}.layers.{i}.{theirs}.{kind}"


def present(aliases: Collection[str], tensors: Collection[str]) -> list[str]:
    """Those of a matrix's names that a file has; the first of all if it has none."""
    return [name for name in aliases if name in tensors] or [next(iter(aliases))]


def along_d_model(name: str) -> int | None:
    """Which axis of one of our parameters runs along d_model, the width between layers; None if none does."""
    if name.rpartition(".")[0].endswith(("linears.3", "w_2", "norm")):
        return 0  # what a sub-layer gives, and what is normalised
    return 1 if name.endswith("weight") else None  # what a map takes; its bias lies along its own output


def sines_first(d_model: int) -> Tensor:
    """Our dimensions in Marian's order: those with a sine, then those with a cosine."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


def permuted(tensors: dict[str, Tensor], order: Tensor) -> dict[str, Tensor]:
    """Our tensors with d_model in another order.

    One of another width is left as it is: whoever takes it will say what is wrong with its shape.
    """
    found = dict(tensors)
    for name, tensor in tensors.items():
        axis = along_d_model(name)
        if axis is not None and tensor.dim() > axis and tensor.size(axis) == len(order):
            found[name] = tensor.index_select(axis, order.to(tensor.device))
    return found
