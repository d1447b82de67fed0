"""torch.nn.Transformer, both ways: PyTorch's own forward pass is the oracle."""

import itertools

import pytest
import torch
from interop_models import toy
from torch import nn

from annotated.batches import padding_mask
from annotated.transformer.attention import subsequent_mask
from annotated.translation.interop import from_torch, to_torch
from annotated.translation.interop.torch_transformer import torch_names
from annotated.translation.storage.model_folder import named_state

SRC = torch.tensor([[4, 5, 6, 7, 1], [4, 5, 1, 2, 2]])
TGT = torch.tensor([[0, 4, 5, 6], [0, 7, 8, 9]])
SETTINGS = [
    {"norm_first": norm_first, "activation": activation, "layer_norm_eps": eps}
    for norm_first, activation, eps in itertools.product(
        (False, True), ("relu", "gelu", "swish"), (1e-5, 1e-2)
    )
]


def ours(model):
    return model(SRC, TGT, padding_mask(SRC, 2), subsequent_mask(4))


def theirs(transformer, model):
    """PyTorch's output on our embeddings: its masks are True where attention is forbidden."""
    states = [model.src_embed(SRC), model.tgt_embed(TGT)]
    if not transformer.batch_first:
        states = [x.transpose(0, 1) for x in states]
    hidden = SRC == 2
    masks = {"src_key_padding_mask": hidden, "memory_key_padding_mask": hidden}
    found = transformer(*states, tgt_mask=torch.ones(4, 4, dtype=torch.bool).triu(1), **masks)
    return found if transformer.batch_first else found.transpose(0, 1)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_outputs_and_gradients_are_equal(settings):
    """Gradients by every tensor of the stacks, and by the embeddings, which feed them."""
    model = toy(**settings).double()
    transformer = to_torch(model)
    names, fed = torch_names(model.config), [model.src_embed[0].lut.weight, model.tgt_embed[0].lut.weight]
    own, other = named_state(model), dict(transformer.named_parameters())
    assert names.keys() == other.keys()
    outputs = ours(model), theirs(transformer, model)
    torch.testing.assert_close(*outputs)
    direction = torch.randn(2, 4, 16, dtype=torch.float64)
    parts = [own[part] for joined in names.values() for part in joined]
    mine = torch.autograd.grad((outputs[0] * direction).sum(), [*parts, *fed])
    found = torch.autograd.grad((outputs[1] * direction).sum(), [*(other[name] for name in names), *fed])
    left = iter(mine)
    for name, expected in zip([*names, "src", "tgt"], found, strict=True):
        gradient = torch.cat(list(itertools.islice(left, len(names.get(name, "1")))))
        torch.testing.assert_close(gradient, expected, atol=1e-9, rtol=1e-9)
        assert expected.any()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_there_and_back_is_the_same_model(settings):
    model = toy(dropout=0.1, attention_dropout=0.2, relu_dropout=0.3, **settings)
    again = from_torch(to_torch(model), 11, 11)
    assert again.config == model.config
    for name, tensor in named_state(again).items():
        if name.startswith(("encoder", "decoder")):
            assert torch.equal(tensor, named_state(model)[name])


@pytest.mark.parametrize("batch_first", [False, True])
def test_one_that_pytorch_built(batch_first):
    transformer = nn.Transformer(
        16, 4, 3, 3, 24, 0.0, "gelu", layer_norm_eps=1e-6, batch_first=batch_first, norm_first=True
    ).eval()
    model = from_torch(transformer, 11, 11, tied_embeddings="all", max_len=20)
    assert (model.config.N, model.config.activation, model.config.max_len) == (3, "gelu", 20)
    assert not model.training
    torch.testing.assert_close(ours(model), theirs(transformer, model), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["dropout", "attention_dropout", "relu_dropout"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_each_dropout_acts_where_ours_does(kind, norm_first):
    """A rate of nearly 1 drops all there is to drop, so that both are predictable in training too."""
    model = toy(norm_first=norm_first, **{kind: 1 - 1e-9}).train()
    embedded = model.src_embed.eval(), model.tgt_embed.eval()
    transformer = to_torch(model)
    assert transformer.training
    dropped = ours(model)
    torch.testing.assert_close(dropped, theirs(transformer, model), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(dropped, ours(model.eval()))
    assert all(not part.training for part in embedded)


def pre_norm(change=lambda transformer: None, **options):
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1, "dim_feedforward": 24}
    transformer = nn.Transformer(16, 4, **{**layers, "norm_first": True, **options})
    change(transformer)
    return transformer


def two_heads(transformer):
    transformer.encoder.layers = nn.ModuleList([nn.TransformerEncoderLayer(16, 2, 24, norm_first=True)])


REFUSED = {
    "post-norm with final norms": lambda: pre_norm(norm_first=False),
    "pre-norm without": lambda: pre_norm(lambda t: setattr(t.encoder, "norm", None)),
    "stacks of two heights": lambda: pre_norm(num_encoder_layers=2),
    "no biases": lambda: pre_norm(bias=False),
    "another activation": lambda: pre_norm(activation=torch.tanh),
    "layers that differ": lambda: pre_norm(two_heads),
    "no dropout": lambda: pre_norm(lambda t: setattr(t.decoder.layers[0], "dropout1", nn.Identity())),
    "another final eps": lambda: pre_norm(lambda t: setattr(t.encoder.norm, "eps", 1e-6)),
    "another norm": lambda: pre_norm(lambda t: setattr(t.decoder.layers[0], "norm2", nn.RMSNorm(16))),
    "another dropout across": lambda: pre_norm(
        lambda t: setattr(t.decoder.layers[0].multihead_attn, "dropout", 0.5)
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_what_we_do_not_compute_is_refused(name):
    with pytest.raises(ValueError, match=r"norm at its end|have not the tensors|differ|must be one of"):
        from_torch(REFUSED[name](), 11, 11)


def test_another_module_is_named():
    with pytest.raises(ValueError, match=r"takes a torch.nn.Transformer, not Linear"):
        from_torch(nn.Linear(2, 2), 11, 11)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_what_pytorchs_module_decides_is_not_given_again():
    with pytest.raises(ValueError, match="leave out h, norm_first: "):
        from_torch(pre_norm(), 11, 11, norm_first=True, tied_embeddings="none", h=2)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_the_advice_for_pytorchs_defaults_works():
    transformer = pre_norm(norm_first=False)
    for stack in ("encoder", "decoder"):
        with pytest.raises(ValueError, match=f"set transformer.{stack}.norm = None"):
            from_torch(transformer, 11, 11)
        getattr(transformer, stack).norm = None
    assert not from_torch(transformer, 11, 11).config.norm_first
