"""`torch.nn.Transformer`, both ways: the same two stacks under PyTorch's names.

PyTorch's module is the two stacks alone: it maps states to states, so embeddings, positions and generator are
ours. Its weights are ours too, except that it keeps the maps of queries, keys and values in one matrix. Its
boolean masks are the opposite of ours: True where attention is *forbidden*.
"""

from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from annotated.interop.export import check_parts
from annotated.transformer.layers import ACTIVATIONS
from annotated.transformer.model import EncoderDecoder, TransformerConfig, make_model
from annotated.translation.model_folder import check_can_be_saved, load_weights, weights

# PyTorch's name of each attention of a layer, and ours.
ATTENTIONS = {
    "encoder": {"self_attn": "self_attn"},
    "decoder": {"self_attn": "self_attn", "multihead_attn": "src_attn"},
}
FEED_FORWARD = {"linear1": "w_1", "linear2": "w_2"}
MODULES = {"relu": nn.ReLU, "gelu": nn.GELU, "swish": nn.SiLU}  # PyTorch's activations that are modules
# Traits of modules that no tensor shows.
TRAITS = {"num_heads", "add_zero_attn", "dropout", "p", "eps", "norm_first", "activation"}


def to_torch(model: EncoderDecoder) -> nn.Transformer:
    """Return PyTorch's Transformer with a copy of this model's two stacks, on the same device.

    It maps the outputs of our embeddings, (batch, len, d_model), to that of our decoder:

        hidden = ~src_mask[:, 0]  # (batch, src_len), True at padding
        to_torch(model)(
            model.src_embed(src),
            model.tgt_embed(tgt),
            tgt_mask=~subsequent_mask(tgt.size(1))[0],
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
        )

    In post-norm it has no final norms, as in section 3.1; PyTorch's constructor would add them. Raises
    ValueError for a variant, and for a model that its settings do not describe.
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
    """Return a model with a copy of the stacks of PyTorch's Transformer; embeddings and generator are new.

    `settings` are the fields of `TransformerConfig` that PyTorch's module does not decide:
    `tied_embeddings` (by default "none"), `positions`, `max_len`. Raises ValueError naming what our model
    lacks, such as the final norms that PyTorch's constructor adds in post-norm.
    """
    model = make_model(src_vocab, tgt_vocab, **infer_settings(transformer), **settings)
    check_modules(transformer, model.config)
    tensors = weights(model) | split_weights(transformer, model.config)
    load_weights(model.to(next(transformer.parameters())), tensors, "torch.nn.Transformer")
    return model.train(transformer.training)


def torch_stacks(c: TransformerConfig) -> nn.Transformer:
    """Build PyTorch's Transformer of these settings, with random weights."""
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
    """Map PyTorch's name of each tensor of the stacks to our names of its parts, in order."""
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
    """Split the tensors of PyTorch's stacks into ours. Raises ValueError for one too many or too few."""
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


def infer_settings(transformer: nn.Transformer) -> dict[str, Any]:
    """Infer the fields of `TransformerConfig` that PyTorch's module decides, from its first layer.

    Raises ValueError for stacks of two heights, or that do not end as ours do.
    """
    first: Any = transformer.encoder.layers[0]
    N, others = len(transformer.encoder.layers), len(transformer.decoder.layers)
    if others != N:
        raise ValueError(f"{N} encoder and {others} decoder layers: our N is one number for both")
    for stack in ATTENTIONS:
        if (getattr(transformer, stack).norm is None) == first.norm_first:
            name = f"torch.nn.Transformer{stack.capitalize()}"
            raise ValueError(
                f"the {stack} must end with a norm in pre-norm, and without one in post-norm (section 3.1): "
                f"build it as custom_{stack}={name}({name}Layer(...), {N}, norm=...)"
            )
    return {
        "N": N,
        "d_model": first.self_attn.embed_dim,
        "d_ff": first.linear1.out_features,
        "h": first.self_attn.num_heads,
        "dropout": first.dropout1.p,  # dropout1, dropout2, ... act on sub-layers' outputs
        "attention_dropout": first.self_attn.dropout,
        "relu_dropout": first.dropout.p,
        "activation": read_trait(first, "activation"),
        "norm_first": first.norm_first,
        "layer_norm_eps": first.norm1.eps,
    }


def check_modules(transformer: nn.Transformer, config: TransformerConfig) -> None:
    """Raise ValueError naming a module that does not compute as the settings of the first layer say."""
    modules: dict[str, Any] = dict(transformer.named_modules())
    with torch.device("meta"):
        expected = torch_stacks(config)
    for name, module in expected.named_modules():
        if not isinstance(modules.get(name), type(module)):
            kinds = type(modules.get(name)).__name__, type(module).__name__
            raise ValueError(f"{name} is {kinds[0]}, but must be torch.nn.{kinds[1]}")
        for trait in sorted(TRAITS & vars(module).keys()):
            theirs, ours = (read_trait(each, trait) for each in (modules[name], module))
            if theirs != ours:
                raise ValueError(f"{name}.{trait} is {theirs}, but {ours} in the first layer: ours are alike")


def read_trait(module: Any, trait: str) -> object:
    """Return a trait of a module, an activation by its name. Raises ValueError for one that ours lacks."""
    value = getattr(module, trait)
    if trait != "activation":
        return value
    exact = getattr(value, "approximate", "none") == "none"
    for name, ours in ACTIVATIONS.items():
        if value is ours or (isinstance(value, MODULES[name]) and exact):
            return name
    raise ValueError(f"activation {value}: ours are {', '.join(ACTIVATIONS)}")
