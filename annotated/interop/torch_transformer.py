"""`torch.nn.Transformer`, both ways: the same two stacks under PyTorch's names.

PyTorch's module is the two stacks alone: it takes embedded states and gives states, so embeddings, positions
and generator stay with us. Its weights are ours, but that it keeps queries', keys' and values' maps in one
matrix. Its boolean masks are the opposite of ours: True where attention is *forbidden*.
"""

from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from annotated.interop.common import check_parts
from annotated.transformer.layers import ACTIVATIONS
from annotated.transformer.model import EncoderDecoder, TransformerConfig, make_model
from annotated.translation.model_folder import check_can_be_saved, load_weights, weights

# What PyTorch calls each attention of a layer, and what we call it.
ATTENTIONS = {
    "encoder": {"self_attn": "self_attn"},
    "decoder": {"self_attn": "self_attn", "multihead_attn": "src_attn"},
}
FEED_FORWARD = {"linear1": "w_1", "linear2": "w_2"}
MODULES = {"relu": nn.ReLU, "gelu": nn.GELU, "swish": nn.SiLU}  # PyTorch's activations that are modules
# What no tensor tells of a module, and both have.
TRAITS = {"num_heads", "add_zero_attn", "dropout", "p", "eps", "norm_first", "activation"}


def to_torch(model: EncoderDecoder) -> nn.Transformer:
    """PyTorch's Transformer with a copy of this model's two stacks, on the same device.

    It takes what our embeddings give, (batch, len, d_model), and gives what our decoder does:

        hidden = ~src_mask[:, 0]  # (batch, src_len), True at padding
        to_torch(model)(
            model.src_embed(src),
            model.tgt_embed(tgt),
            tgt_mask=~subsequent_mask(tgt.size(1))[0],
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
        )

    In post-norm it has no final norms, as in section 3.1; those that PyTorch's constructor adds of itself
    would normalise a second time. Raises ValueError for a model that its settings do not describe, and
    for a variant.
    """
    check_can_be_saved(model)
    check_parts(model.config)
    theirs, own = torch_stacks(model.config), weights(model)
    theirs.to(next(model.parameters()))
    theirs.load_state_dict(
        {name: torch.cat([own[part] for part in parts]) for name, parts in torch_names(model.config).items()}
    )
    return theirs.train(model.training)


def from_torch(
    transformer: nn.Transformer, src_vocab: int, tgt_vocab: int, **settings: Any
) -> EncoderDecoder:
    """A model with a copy of the two stacks of PyTorch's Transformer; embeddings and generator are new.

    `settings` are those fields of `TransformerConfig` that PyTorch's module says nothing about:
    `tied_embeddings` (by default "none"), `positions`, `max_len`.

    Raises ValueError that names what PyTorch's module has and ours has not, such as the final norms that its
    constructor adds in post-norm.
    """
    found = settings_of(transformer)
    if clash := found.keys() & settings.keys():
        raise ValueError(f"{', '.join(sorted(clash))}: already decided by the torch.nn.Transformer")
    model = make_model(src_vocab, tgt_vocab, **found, **settings)
    check_modules(transformer, model.config)
    tensors = weights(model) | split_weights(transformer, model.config)
    load_weights(model.to(next(transformer.parameters())), tensors, "torch.nn.Transformer")
    return model.train(transformer.training)


def torch_stacks(c: TransformerConfig) -> nn.Transformer:
    """PyTorch's Transformer of these settings, its weights drawn at random."""
    options: dict[str, Any] = {
        "dim_feedforward": c.d_ff,
        "dropout": c.dropout,
        "activation": ACTIVATIONS[c.activation],
        "layer_norm_eps": c.layer_norm_eps,
        "norm_first": c.norm_first,
        "batch_first": True,
    }
    encoder_layer = nn.TransformerEncoderLayer(c.d_model, c.h, **options)
    decoder_layer = nn.TransformerDecoderLayer(c.d_model, c.h, **options)
    for attention in (encoder_layer.self_attn, decoder_layer.self_attn, decoder_layer.multihead_attn):
        attention.dropout = c.attention_dropout
    encoder_layer.dropout.p = decoder_layer.dropout.p = c.relu_dropout
    finals = [nn.LayerNorm(c.d_model, c.layer_norm_eps) if c.norm_first else None for _ in range(2)]
    encoder = nn.TransformerEncoder(encoder_layer, c.N, finals[0], enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(decoder_layer, c.N, finals[1])
    return nn.Transformer(c.d_model, c.h, custom_encoder=encoder, custom_decoder=decoder, batch_first=True)


def torch_names(config: TransformerConfig) -> dict[str, list[str]]:
    """PyTorch's name of each tensor of the stacks, and our names of the parts that it joins, in order."""
    names = {}
    for stack, i, kind in product(ATTENTIONS, range(config.N), ("weight", "bias")):
        layer = f"{stack}.layers.{i}"
        for theirs, ours in ATTENTIONS[stack].items():
            joined = [f"{layer}.{ours}.linears.{j}.{kind}" for j in range(4)]
            names[f"{layer}.{theirs}.in_proj_{kind}"] = joined[:3]
            names[f"{layer}.{theirs}.out_proj.{kind}"] = joined[3:]
        for theirs, ours in FEED_FORWARD.items():
            names[f"{layer}.{theirs}.{kind}"] = [f"{layer}.feed_forward.{ours}.{kind}"]
        for j in range(len(ATTENTIONS[stack]) + 1):
            names[f"{layer}.norm{j + 1}.{kind}"] = [f"{layer}.sublayer.{j}.norm.{kind}"]
        if config.norm_first:
            names[f"{stack}.norm.{kind}"] = [f"{stack}.norm.{kind}"]
    return names


def split_weights(transformer: nn.Transformer, config: TransformerConfig) -> dict[str, Tensor]:
    """The tensors of PyTorch's stacks under our names. Raises ValueError for one too many or too few."""
    state, names = transformer.state_dict(), torch_names(config)
    if surplus := [name for name in state if name not in names]:
        raise ValueError(f"torch.nn.Transformer: tensor {surplus[0]} has no place in our model")
    if missing := [name for name in names if name not in state]:
        raise ValueError(f"{missing[0]} is missing: our maps and norms all have weight and bias (bias=True)")
    return {
        part: tensor
        for name, parts in names.items()
        for part, tensor in zip(parts, state[name].chunk(len(parts)), strict=True)
    }


def settings_of(transformer: nn.Transformer) -> dict[str, Any]:
    """The fields of `TransformerConfig` that a torch.nn.Transformer decides, by its first layer.

    Raises ValueError for stacks that are not PyTorch's, of two heights, or do not end as ours do.
    """
    check_class("encoder", transformer.encoder, nn.TransformerEncoder)
    check_class("decoder", transformer.decoder, nn.TransformerDecoder)
    N, others = len(transformer.encoder.layers), len(transformer.decoder.layers)
    if others != N:
        raise ValueError(f"{N} encoder and {others} decoder layers: our N is one number for both")
    first: Any = transformer.encoder.layers[0]
    parts = dict(first.named_modules())
    for name, wanted in nn.TransformerEncoderLayer(1, 1, device="meta").named_modules():
        check_class(f"encoder.layers.0.{name}".rstrip("."), parts.get(name), type(wanted))
    for stack in ATTENTIONS:
        norm = getattr(transformer, stack).norm
        if first.norm_first and norm is None:
            raise ValueError(f"the {stack} is pre-norm without a final norm; ours ends with one")
        if norm is not None and not first.norm_first:
            its = f"torch.nn.Transformer{stack.capitalize()}"
            raise ValueError(
                f"the {stack} is post-norm and has a final norm besides, which section 3.1 has not: build it "
                f"as custom_{stack}={its}({its}Layer(...), {N}, norm=None)"
            )
    return {
        "N": N,
        "d_model": first.self_attn.embed_dim,
        "d_ff": first.linear1.out_features,
        "h": first.self_attn.num_heads,
        "dropout": first.dropout1.p,  # dropout1, dropout2, ... act on sub-layers' outputs
        "attention_dropout": first.self_attn.dropout,
        "relu_dropout": first.dropout.p,
        "activation": read(first, "activation"),
        "norm_first": first.norm_first,
        "layer_norm_eps": first.norm1.eps,
    }


def check_modules(transformer: nn.Transformer, config: TransformerConfig) -> None:
    """Raise ValueError naming a module that does not compute as the settings of the first layer say."""
    found: dict[str, Any] = dict(transformer.named_modules())
    with torch.device("meta"):
        pattern = torch_stacks(config)
    for name, wanted in pattern.named_modules():
        check_class(name, found.get(name), type(wanted))
        for trait in sorted(TRAITS & vars(wanted).keys()):
            theirs, ours = (read(module, trait) for module in (found[name], wanted))
            if theirs != ours:
                would = f"in our model it would be {ours}: our layers are all alike"
                raise ValueError(f"{name}.{trait} is {theirs}, but {would}")


def check_class(name: str, module: object, wanted: type) -> None:
    """Raise ValueError for a module that is not of the class `wanted`."""
    if not isinstance(module, wanted):
        raise ValueError(f"{name} is {type(module).__name__}, but must be torch.nn.{wanted.__name__}")


def read(module: Any, trait: str) -> object:
    """A trait of a module, an activation by its name. Raises ValueError for one that we have not."""
    found = getattr(module, trait)
    if trait != "activation":
        return found
    exact = getattr(found, "approximate", "none") == "none"  # GELU may be an approximation of itself
    for name, ours in ACTIVATIONS.items():
        if found is ours or (isinstance(found, MODULES[name]) and exact):
            return name
    raise ValueError(f"activation {found}: ours are {', '.join(ACTIVATIONS)}")
