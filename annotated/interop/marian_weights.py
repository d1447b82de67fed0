"""Marian's names of our parameters, and its order of d_model: sines first, then cosines."""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from annotated.interop.common import Rows, check_sinusoids, renumbered, taken
from annotated.transformer.model import EncoderDecoder, TransformerConfig
from annotated.translation.model_folder import model_with, wanted_weights, weights

# Our name of each part of a layer, and Marian's; an encoder layer's second norm is its last.
PARTS = {
    "src_attn": "encoder_attn",
    **{f"linears.{i}": f"{name}_proj" for i, name in enumerate(["q", "k", "v", "out"])},
    "feed_forward.w_1": "fc1",
    "feed_forward.w_2": "fc2",
    "sublayer.0.norm": "self_attn_layer_norm",
    "sublayer.1.norm": "encoder_attn_layer_norm",
    "sublayer.2.norm": "final_layer_norm",
}
SRC, TGT = "src_embed.0.lut.weight", "tgt_embed.0.lut.weight"
OUTPUT, BIAS = "generator.proj.weight", "generator.proj.bias"
ENCODER, DECODER = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
SHARED, HEAD, HEAD_BIAS = "model.shared.weight", "lm_head.weight", "final_logits_bias"
# For each way of tying, our matrices and all of Marian's names for each; a file has one of them or more.
MATRICES: dict[str, dict[str, tuple[str, ...]]] = {
    "all": {SRC: (SHARED, ENCODER, DECODER, HEAD)},
    "target": {SRC: (ENCODER,), TGT: (DECODER, HEAD)},
    "none": {SRC: (ENCODER,), TGT: (DECODER,), OUTPUT: (HEAD,)},
}
POSITIONS = {"model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"}
UNREACHABLE = -1e4  # a logit whose exponential is 0, yet finite in half precision


def our_model(
    tensors: Mapping[str, Tensor], config: TransformerConfig, src_rows: Rows, tgt_rows: Rows, source: Path
) -> EncoderDecoder:
    """The model of Marian's tensors, in evaluation mode; the rows say which of theirs is each of our tokens.

    Raises ValueError naming a tensor that is missing, surplus or of the wrong shape, or positions that are no
    sinusoids.
    """
    found = our_tensors(tensors, config, source)
    for name in [name for name in (SRC, TGT, OUTPUT, BIAS) if name in found]:
        rows = src_rows if name == SRC else tgt_rows
        size, shape = len(set(rows) - {None}), tuple(found[name].shape)
        if shape[:1] != (size,):
            raise ValueError(f"{source}: {name} has shape {shape}, but there are {size} pieces")
        fill = UNREACHABLE if name == BIAS and found[name].is_floating_point() else 0.0
        found[name] = renumbered(found[name], rows, fill)
    order = sines_first(found[SRC].size(-1))  # not yet what the settings claim
    model = model_with(config, permuted(found, order.argsort()), source)
    for name in tensors.keys() & POSITIONS:
        check_sinusoids(tensors[name], config.d_model, f"{source}: tensor {name}", 1e-3, order)
    return model.eval()


def our_tensors(tensors: Mapping[str, Tensor], config: TransformerConfig, source: Path) -> dict[str, Tensor]:
    """Marian's tensors under our names, in Marian's order of tokens and dimensions."""
    names, ignored = {BIAS: HEAD_BIAS}, set(POSITIONS)
    for ours, aliases in MATRICES[config.tied_embeddings].items():
        names[ours], *others = [name for name in aliases if name in tensors] or aliases[:1]
        for other in others:
            if not torch.equal(tensors[names[ours]], tensors[other]):
                raise ValueError(f"{source}: {names[ours]} and {other} must be one matrix, by the settings")
        ignored.update(others)
    wanted = (name for name, _ in wanted_weights(config, source) if ".layers." in name)
    theirs = chain(names.items(), ((name, their_name(name)) for name in wanted))
    found = taken(tensors, theirs, source, ignored)
    return found | {BIAS: found[BIAS].flatten()}


def their_name(name: str) -> str:
    """Marian's name of one of our layers' parameters."""
    if name.startswith("encoder"):
        name = name.replace("sublayer.1", "sublayer.2")
    for ours, theirs in PARTS.items():
        name = name.replace(ours, theirs)
    return f"model.{name}"


def sines_first(d_model: int) -> Tensor:
    """Our dimensions in Marian's order: those with a sine, then those with a cosine."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


def permuted(tensors: Mapping[str, Tensor], order: Tensor) -> dict[str, Tensor]:
    """Our tensors with d_model, the width between layers, in another order.

    One of another width is left as it is: whoever takes it will say what is wrong with its shape.
    """
    found = dict(tensors)
    for name, tensor in tensors.items():
        # Along the rows lies what a sub-layer gives and a norm takes, along the columns what a map takes.
        axis = 0 if name.rpartition(".")[0].endswith(("linears.3", "w_2", "norm")) else 1
        if tensor.dim() > axis and tensor.size(axis) == len(order):
            found[name] = tensor.index_select(axis, order.to(tensor.device))
    return found


def marian_tensors(model: EncoderDecoder) -> dict[str, Tensor]:
    """A model's weights under Marian's names, in Marian's order of dimensions."""
    tied = model.config.tied_embeddings
    names = {BIAS: HEAD_BIAS, **{ours: aliases[0] for ours, aliases in MATRICES[tied].items()}}
    own = {name: tensor.detach().float().cpu() for name, tensor in weights(model).items()}
    found = permuted(own, sines_first(model.config.d_model)) | {BIAS: own[BIAS].unsqueeze(0)}
    theirs = {names.get(name, their_name(name)): tensor.contiguous() for name, tensor in found.items()}
    if tied == "target":  # transformers before 5.4 reads the output by itself
        theirs[HEAD] = theirs[DECODER].clone()
    return theirs
