"""`torch.nn.Transformer`, both ways: the same two stacks under PyTorch's names.

PyTorch's module is the two stacks alone: it takes embedded states and gives states, so embeddings, positions
and generator stay with us. Its weights are ours, but that it keeps queries', keys' and values' maps in one
matrix. Its boolean masks are the opposite of ours: True where attention is *forbidden*.
"""

from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.interop.common import check_parts
from annotated.transformer.layers import ACTIVATIONS
from annotated.transformer.model import EncoderDecoder, TransformerConfig, make_model
from annotated.translation.model_folder import check_rebuilds, load_weights, weights

Layer = nn.TransformerEncoderLayer | nn.TransformerDecoderLayer

# What PyTorch calls each attention of a layer, and what we call it.
ATTENTIONS = {
    "encoder": {"self_attn": "self_attn"},
    "decoder": {"self_attn": "self_attn", "multihead_attn": "src_attn"},
}
FEED_FORWARD = {"linear1": "w_1", "linear2": "w_2"}


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
    check_rebuilds(model)
    check_parts(model.config)
    c = model.config
    options = {
        "dim_feedforward": c.d_ff,
        "activation": ACTIVATIONS[c.activation],
        "layer_norm_eps": c.layer_norm_eps,
        "norm_first": c.norm_first,
        "batch_first": True,
    }
    finals = [nn.LayerNorm(c.d_model, c.layer_norm_eps) if c.norm_first else None for _ in range(2)]
    encoder_layer = nn.TransformerEncoderLayer(c.d_model, c.h, **options)
    decoder_layer = nn.TransformerDecoderLayer(c.d_model, c.h, **options)
    encoder = nn.TransformerEncoder(encoder_layer, c.N, finals[0], enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(decoder_layer, c.N, finals[1])
    theirs = nn.Transformer(c.d_model, c.h, custom_encoder=encoder, custom_decoder=decoder, batch_first=True)
    for layer in layers_of(theirs):
        set_dropout(layer, c)
    own = weights(model)
    theirs.to(next(model.parameters()))
    theirs.load_state_dict(
        {name: torch.cat([own[part] for part in parts]) for name, parts in torch_names(c).items()}
    )
    return theirs.train(model.training)


def from_torch(
    transformer: nn.Transformer, src_vocab: int, tgt_vocab: int, **settings: object
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
    parameter = next(transformer.parameters())
    load_weights(
        model.to(parameter), {**weights(model), **split_weights(transformer)}, "torch.nn.Transformer"
    )
    return model.train(transformer.training)


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


def split_weights(transformer: nn.Transformer) -> dict[str, Tensor]:
    """The tensors of PyTorch's stacks under our names."""
    state = transformer.state_dict()
    config = TransformerConfig(1, 1, **settings_of(transformer))
    names = torch_names(config)
    if surplus := [name for name in state if name not in names]:
        raise ValueError(f"torch.nn.Transformer: tensor {surplus[0]} has no place in our model")
    return {
        part: tensor
        for name, parts in names.items()
        for part, tensor in zip(parts, state[name].chunk(len(parts)), strict=True)
    }


def layers_of(transformer: nn.Transformer) -> list[Layer]:
    """All its layers, the encoder's first. Raises ValueError for layers that are not PyTorch's own."""
    layers = []
    for stack in (transformer.encoder, transformer.decoder):
        if not isinstance(stack, nn.TransformerEncoder | nn.TransformerDecoder):
            raise ValueError(f"a stack is {type(stack).__name__}, not one of PyTorch's Transformer")
        layers += stack.layers
    for layer in layers:
        if not isinstance(layer, Layer):
            raise ValueError(f"a layer is {type(layer).__name__}, not one of PyTorch's Transformer")
    return layers


def set_dropout(layer: Layer, config: TransformerConfig) -> None:
    """Set each kind of dropout apart: PyTorch's constructor knows one rate for all three."""
    for name, module in layer.named_children():
        if name.startswith("dropout"):
            module.p = config.relu_dropout if name == "dropout" else config.dropout
        elif isinstance(module, nn.MultiheadAttention):
            module.dropout = config.attention_dropout


def settings_of(transformer: nn.Transformer) -> dict[str, object]:
    """The fields of `TransformerConfig` that a torch.nn.Transformer decides.

    Raises ValueError that names what we have not.
    """
    layers = layers_of(transformer)
    N, others = len(transformer.encoder.layers), len(transformer.decoder.layers)
    if others != N:
        raise ValueError(f"{N} encoder and {others} decoder layers: our N is one number for both")
    modules = [module for layer in layers for module in layer.modules()]
    named = [each for module in modules for each in module._parameters.items()]  # those switched off too
    if any(name.endswith("bias") and parameter is None for name, parameter in named):
        raise ValueError("bias=False: our linear maps and norms have biases; train with bias=True")
    for layer in layers:
        for name, module in layer.named_children():
            if name.startswith("norm"):
                check_norm(name, module)
    settings = {"N": N, **{name: the_one(name, layers, read) for name, read in READ.items()}}
    for stack in ("encoder", "decoder"):
        check_final_norm(stack, getattr(transformer, stack).norm, settings)
    return settings


def the_one(name: str, layers: list[Layer], read: Callable[[Layer], set[object]]) -> object:
    """What all layers have in common. Raises ValueError where they differ."""
    values = set().union(*map(read, layers))
    if len(values) != 1:
        raise ValueError(f"{name} is {', '.join(map(str, values))}: our layers all have one")
    return values.pop()


def check_norm(name: str, norm: nn.Module) -> None:
    """Raise ValueError for a norm that is not ours."""
    if not isinstance(norm, nn.LayerNorm):
        raise ValueError(f"{name} is {type(norm).__name__}: our norms are torch.nn.LayerNorm")
    if norm.weight is None or norm.bias is None:
        raise ValueError(f"{name} has no {'gain' if norm.weight is None else 'bias'}: our norms have both")


def attentions_of(layer: Layer) -> list[nn.MultiheadAttention]:
    """A layer's attentions, one or two."""
    return [module for module in layer.modules() if isinstance(module, nn.MultiheadAttention)]


def activation_of(layer: Layer) -> set[object]:
    """The name of a layer's activation. Raises ValueError for one that we have not."""
    modules = {nn.ReLU: F.relu, nn.SiLU: F.silu}
    function = modules.get(type(layer.activation), layer.activation)
    if isinstance(function, nn.GELU) and function.approximate == "none":
        function = F.gelu
    for name, ours in ACTIVATIONS.items():
        if function is ours:
            return {name}
    raise ValueError(f"activation {layer.activation}: ours are {', '.join(ACTIVATIONS)}")


# How each setting is read from a layer: all values that occur in it.
READ: dict[str, Callable[[Layer], set[object]]] = {
    "d_model": lambda layer: {layer.self_attn.embed_dim},
    "d_ff": lambda layer: {layer.linear1.out_features},
    "h": lambda layer: {attention.num_heads for attention in attentions_of(layer)},
    # dropout1, dropout2, ... act on sub-layers' outputs
    "dropout": lambda layer: {m.p for name, m in layer.named_children() if name[:-1] == "dropout"},
    "attention_dropout": lambda layer: {attention.dropout for attention in attentions_of(layer)},
    "relu_dropout": lambda layer: {layer.dropout.p},
    "activation": activation_of,
    "norm_first": lambda layer: {layer.norm_first},
    "layer_norm_eps": lambda layer: {m.eps for m in layer.modules() if isinstance(m, nn.LayerNorm)},
}


def check_final_norm(stack: str, norm: nn.Module | None, settings: dict[str, object]) -> None:
    """Raise ValueError unless a stack ends as ours does: with a norm in pre-norm, without in post-norm."""
    if norm is not None and not settings["norm_first"]:
        layer = f"Transformer{stack.capitalize()}"
        raise ValueError(
            f"the {stack} is post-norm and has a final norm besides, which section 3.1 has not: build it as "
            f"custom_{stack}=torch.nn.{layer}(torch.nn.{layer}Layer(...), {settings['N']}, norm=None)"
        )
    if norm is None and settings["norm_first"]:
        raise ValueError(f"the {stack} is pre-norm without a final norm; ours ends with one")
    if norm is not None:
        check_norm(f"the {stack}'s final norm", norm)
    if norm is not None and norm.eps != settings["layer_norm_eps"]:
        eps = settings["layer_norm_eps"]
        raise ValueError(f"the {stack}'s final norm has eps {norm.eps}, its layers {eps}: ours have one")
