"""`torch.nn.Transformer`, both ways: the same two stacks under PyTorch's names.

PyTorch's module is the two stacks alone: it maps states to states, so embeddings, positions and generator are
ours. Its weights are ours too, except that it keeps the maps of queries, keys and values in one matrix. Its
boolean masks are the opposite of ours: True where attention is *forbidden*.
"""

from itertools import product
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from annotated.evaluation_mode import evaluating
from annotated.transformer.layers import ACTIVATIONS
from annotated.transformer.model import EncoderDecoder, TransformerConfig, make_model
from annotated.translation.interop.common import check_exportable
from annotated.translation.storage.model_folder import load_weights, named_state

# PyTorch's name of each attention of a layer, and ours.
ATTENTIONS = {
    "encoder": {"self_attn": "self_attn"},
    "decoder": {"self_attn": "self_attn", "multihead_attn": "src_attn"},
}
FEED_FORWARD = {"linear1": "w_1", "linear2": "w_2"}


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
    ValueError for a variant.
    """
    check_exportable(model)
    weights = named_state(model)
    names = torch_names(model.config)
    transformer = build_stacks(model.config).to(next(model.parameters()))
    transformer.load_state_dict({n: torch.cat([weights[part] for part in names[n]]) for n in names})
    return transformer.train(model.training)


def from_torch(
    transformer: nn.Transformer, src_vocab: int, tgt_vocab: int, **settings: Any
) -> EncoderDecoder:
    """Return a model with a copy of the stacks of PyTorch's Transformer; embeddings and generator are new.

    `settings` are the fields of `TransformerConfig` that PyTorch's module does not decide:
    `tied_embeddings`, `positions`, `max_len`. Raises ValueError for stacks that our model does not compute,
    such as post-norm with the final norms that PyTorch's constructor adds.
    """
    if not isinstance(transformer, nn.Transformer):
        raise ValueError(f"from_torch takes a torch.nn.Transformer, not {type(transformer).__name__}")
    first: Any = transformer.encoder.layers[0]
    x = torch.linspace(-3, 3, 64)
    same = [name for name, ours in ACTIVATIONS.items() if torch.equal(ours(x), first.activation(x))]
    options = {
        "N": len(transformer.encoder.layers),
        "d_model": first.self_attn.embed_dim,
        "d_ff": first.linear1.out_features,
        "h": first.self_attn.num_heads,
        "dropout": first.dropout1.p,  # dropout1, dropout2, ... act on sub-layers' outputs
        "attention_dropout": first.self_attn.dropout,
        "relu_dropout": first.dropout.p,
        "activation": same[0] if same else first.activation,
        "norm_first": first.norm_first,
        "layer_norm_eps": first.norm1.eps,
    }
    if decided := sorted(options.keys() & settings.keys()):
        raise ValueError(f"leave out {', '.join(decided)}: PyTorch's module decides it")
    model = make_model(src_vocab, tgt_vocab, **options, **settings)
    check_stacks(transformer, model.config)
    state, tensors = transformer.state_dict(), named_state(model)
    for name, parts in torch_names(model.config).items():
        tensors |= zip(parts, state[name].chunk(len(parts)), strict=True)
    load_weights(model.to(next(transformer.parameters())), tensors, "torch.nn.Transformer")
    return model.train(transformer.training)


def build_stacks(c: TransformerConfig) -> nn.Transformer:
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


def check_stacks(transformer: nn.Transformer, config: TransformerConfig) -> None:
    """Raise ValueError unless our settings give stacks that compute the same."""
    twin = build_stacks(config)
    for stack in ("encoder", "decoder"):
        final, ours = getattr(transformer, stack).norm, getattr(twin, stack).norm
        if (final is None) != (ours is None):
            remedy = f"set transformer.{stack}.norm = None" if ours is None else "PyTorch adds it by default"
            order = "pre-norm" if config.norm_first else "post-norm, as in the paper,"
            needed = "no norm at its end" if ours is None else "a norm at its end"
            raise ValueError(f"the {stack} of a model in {order} has {needed}: {remedy}, and train it so")
    try:
        twin.load_state_dict(transformer.state_dict())
    except RuntimeError as error:
        like = "as many layers a side, and biases everywhere"
        raise ValueError(f"these stacks have not the tensors of ours ({like}): {error!s:.300}") from None
    x = torch.randn(2, 5, config.d_model, dtype=torch.float64)
    outputs = []
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    for stacks in (transformer, twin):
        # In float32, another epsilon would pass for rounding.
        tensors = {name: tensor.detach().cpu().double() for name, tensor in stacks.state_dict().items()}
        states = x if stacks.batch_first else x.transpose(0, 1)
        with evaluating(stacks):
            output = functional_call(stacks, tensors, (states, states), {"tgt_mask": future})
        outputs.append(output if stacks.batch_first else output.transpose(0, 1))
    if not torch.allclose(*outputs) or dropout_rates(transformer) != dropout_rates(twin):
        raise ValueError("the layers differ in heads, norms, activations or dropout; ours are all alike")


def dropout_rates(module: nn.Module) -> dict[str, float]:
    """Return the rate of everything that drops, by name."""
    named: Any = module.named_modules()
    rates = {name: getattr(m, "p", getattr(m, "dropout", None)) for name, m in named}
    return {name: rate for name, rate in rates.items() if isinstance(rate, float)}
