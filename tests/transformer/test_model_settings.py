"""The settings of a model: which are refused, how many parameters they give, how these start."""

import json
import math
from dataclasses import asdict

import numpy
import pytest
import torch
from torch import nn

from annotated.transformer.attention import MultiHeadedAttention
from annotated.transformer.model import EncoderDecoder, TransformerConfig, make_model

TINY = {"N": 2, "d_model": 16, "d_ff": 32, "h": 4}


def count(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    "settings",
    [
        {"src_vocab": 0},
        {"N": True},
        {"max_len": 2**31},
        {"layer_norm_eps": math.nan},
        {"dropout": 1.0},
        {"activation": "tanh"},
        {"norm_first": "no"},
        {"d_model": 10, "h": 4},
        {"tgt_vocab": 12},
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        TransformerConfig.base(**{"src_vocab": 11, "tgt_vocab": 11, **settings})


def test_numbers_may_be_numpys():
    config = TransformerConfig(numpy.int64(11), 11, N=numpy.int8(2), dropout=numpy.float64(0.5))
    assert config == TransformerConfig(11, 11, N=2, dropout=0.5)
    assert json.loads(json.dumps(asdict(config))) == asdict(config)
    with pytest.raises(ValueError, match="N must be"):
        TransformerConfig(11, 11, N=numpy.float32(2))


@pytest.mark.parametrize(
    ("preset", "shape", "millions"),
    [("base", (6, 512, 2048, 8, 0.1), 64), ("big", (6, 1024, 4096, 16, 0.3), 212)],
)
def test_presets_are_those_of_table_3_with_as_many_parameters(preset, shape, millions):
    config = getattr(TransformerConfig, preset)(37_000, 37_000)
    assert config == TransformerConfig(37_000, 37_000, *shape, tied_embeddings="all")
    with torch.device("meta"):
        assert count(EncoderDecoder.from_config(config)) == pytest.approx(millions * 1e6, rel=0.02)


@pytest.mark.parametrize(
    ("tied", "sharing"), [("all", (True, True)), ("target", (True, False)), ("none", (False, False))]
)
def test_tied_embeddings_are_one_matrix(tied, sharing):
    model = make_model(7, 7, **TINY, dropout=0.0, tied_embeddings=tied)
    source, target, output = model.src_embed[0].lut, model.tgt_embed[0].lut, model.generator.proj
    assert (output.weight is target.weight, source.weight is target.weight) == sharing
    assert count(model) == count(make_model(7, 7, **TINY)) - sum(sharing) * 7 * 16
    before = output.weight.detach().clone()
    torch.optim.SGD(model.parameters(), lr=1.0).step(lambda: target(torch.tensor([3])).sum().backward())
    assert torch.equal(output.weight, before) != sharing[0]  # what one learns the other knows


@pytest.mark.parametrize("tied", ["all", "none"])
def test_weights_start_as_xavier_and_embeddings_at_their_deviation(tied):
    torch.manual_seed(0)
    model = make_model(500, 500, 1, 64, 128, 4, tied_embeddings=tied, positions="learned", max_len=100)
    tables = [model.src_embed[0].lut, model.tgt_embed[0].lut, model.tgt_embed[1].lut]
    for table in tables:
        assert abs(table.weight.std().item() * math.sqrt(64) - 1) < 0.05
        assert abs(table.weight.mean().item()) < 0.01
    shared = {table.weight.data_ptr() for table in tables}
    attentions = [module for module in model.modules() if isinstance(module, MultiHeadedAttention)]
    packed = {linear for attention in attentions for linear in attention.linears[:3]}
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.weight.data_ptr() not in shared:
            outputs = module.out_features * (3 if module in packed else 1)
            bound = math.sqrt(6 / (module.in_features + outputs))
            assert 0.98 * bound < module.weight.abs().max() <= bound
            assert not module.bias.any()
    one, two = (layer.self_attn.linears[0].weight for layer in (*model.encoder.layers, *model.decoder.layers))
    assert not torch.equal(one, two)  # equal clones would learn apart all the same, but start drawn afresh
