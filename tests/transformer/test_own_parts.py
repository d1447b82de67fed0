"""Variants: parts that are not the paper's, each in a few lines, trained, saved and loaded as others are."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.search.beam import beam_search
from annotated.search.greedy import greedy_decode
from annotated.transformer.attention import MultiHeadedAttention, attention, subsequent_mask
from annotated.transformer.layers import Embeddings, PositionwiseFeedForward
from annotated.transformer.model import EncoderDecoder, make_model
from annotated.transformer.variants import BUILDERS, VARIANTS, Parts, variant


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr("annotated.transformer.variants.VARIANTS", before := dict(VARIANTS))
    return before


class GroupedQueryAttention(MultiHeadedAttention):
    """Two queries' heads share one of keys and values (Ainslie et al., 2023)."""

    def __init__(self, h: int, d_model: int, dropout: float):
        super().__init__(h, d_model, dropout)
        self.linears[1] = nn.Linear(d_model, d_model // 2)
        self.linears[2] = nn.Linear(d_model, d_model // 2)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return super().attend(q, k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1), mask)


def rotated(x: Tensor, first: int) -> Tensor:
    """Turn pairs of entries by angles that grow with the position (Su et al., 2021)."""
    rates = 100.0 ** -torch.linspace(0, 1, x.size(-1) // 2)
    angles = torch.arange(first, first + x.size(-2)).unsqueeze(1) * rates
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=-1)


class RotaryAttention(MultiHeadedAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return super().attend(rotated(q, k.size(-2) - q.size(-2)), rotated(k, 0), v, mask)


class NoPositions(nn.Module):
    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return x


class SwiGLU(nn.Module):
    def __init__(self, d_model: int, d_ff: int):
        super().__init__()
        self.gate, self.up = nn.Linear(d_model, d_ff), nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Modern(Parts):
    """Everything at once."""

    def attention(self):
        return RotaryAttention(self.config.h, self.config.d_model, 0.0)

    def cross_attention(self):
        return GroupedQueryAttention(self.config.h, self.config.d_model, 0.0)

    def feed_forward(self):
        return SwiGLU(self.config.d_model, self.config.d_ff)

    def norm(self):
        return nn.RMSNorm(self.config.d_model)

    def positions(self):
        return NoPositions()


def modern() -> nn.Module:
    variant("modern")(Modern)
    return make_model(12, 12, N=2, d_model=16, d_ff=24, h=4, dropout=0.0, variant="modern").eval()


@pytest.mark.parametrize("beam", [1, 4])
def test_a_variants_hypotheses_have_the_log_probabilities_that_the_whole_model_gives(beam):
    model = modern().double()
    kinds = {type(module) for module in model.modules()}
    assert {RotaryAttention, GroupedQueryAttention, SwiGLU, nn.RMSNorm, NoPositions} <= kinds
    for parameter in model.parameters():
        nn.init.normal_(parameter)  # large weights: the hypotheses differ, and where each token stands counts
    src = torch.randint(3, 12, (3, 5))
    for i, found in enumerate(beam_search(model, src, None, [9, 4, 9], beam=beam, n_best=beam, alpha=0.0)):
        for hypothesis in found:
            tokens = torch.tensor([[0, *hypothesis.tokens, 1]])
            states = model(src[i : i + 1], tokens[:, :-1], None, subsequent_mask(tokens.size(1) - 1))
            expected = -F.nll_loss(model.generator(states)[0], tokens[0, 1:], reduction="sum").item()
            assert hypothesis.log_prob == pytest.approx(expected, abs=1e-6)


class Gated(MultiHeadedAttention):
    """Attention with a gate, which is drawn and nearly shut."""

    def __init__(self, h, d_model):
        super().__init__(h, d_model)
        self.gate = nn.Linear(d_model, h)
        nn.init.constant_(self.gate.bias, -2.0)


class Shut(PositionwiseFeedForward):
    def reset_parameters(self):
        super().reset_parameters()
        nn.init.constant_(self.w_1.bias, -2.0)


def test_what_a_variant_initializes_stays_and_the_rest_begins_as_the_papers():
    parts = {"attention": lambda _: Gated(4, 16), "feed_forward": lambda _: Shut(16, 24)}
    variant("kind")(type("Kind", (Parts,), parts))
    model = make_model(12, 12, N=2, d_model=16, d_ff=24, h=4, variant="kind")
    attentions = [module for module in model.modules() if isinstance(module, Gated)]
    for gated in attentions:
        assert (gated.gate.bias == -2).all()
        assert gated.linears[0].weight.abs().max() <= math.sqrt(6 / (4 * 16))
    for layer in (*model.encoder.layers, *model.decoder.layers):
        assert (layer.feed_forward.w_1.bias == -2).all()
        assert not layer.feed_forward.w_2.bias.any()
    drawn = [module.weight.sum().item() for module in model.modules() if isinstance(module, nn.Linear)]
    assert len(attentions) == 6
    assert len({*drawn}) == len(drawn)  # each by itself


def test_a_module_that_a_variant_shares_among_layers_stays_one():
    @variant("sharing")
    class Sharing(Parts):
        def __init__(self, config):
            super().__init__(config)
            self.shared = super().feed_forward()

        def feed_forward(self):
            return self.shared

    model = make_model(9, 9, N=3, d_model=8, d_ff=8, h=2, variant="sharing")
    layers = [*model.encoder.layers, *model.decoder.layers]
    assert len(layers) == 6
    assert len({id(layer.feed_forward) for layer in layers}) == 1


def test_attention_that_leaves_its_cache_alone_is_refused():
    class Forgetful(MultiHeadedAttention):
        def forward(self, query, key, value, mask=None, cache=None):
            return super().forward(query, key, value, mask)

    model = modern()
    model.decoder.layers[0].self_attn = Forgetful(4, 16)
    src = torch.ones(1, 3, dtype=torch.long)
    for search in (lambda: greedy_decode(model, src, None, 5, 1), lambda: beam_search(model, src, None)):
        with pytest.raises(ValueError, match="cache"):
            search()


class Paired(MultiHeadedAttention):
    """Returns its weights as well, which is not in the contract."""

    def attend(self, q, k, v, mask):
        return attention(q, k, v, mask)


class Placeless(nn.Module):
    def forward(self, x):
        return x


def test_parts_that_break_their_contract_say_which():
    src = torch.ones(1, 3, dtype=torch.long)
    model = modern()
    model.encoder.layers[0].self_attn = Paired(4, 16)
    with pytest.raises(TypeError, match=r"attend must return .* alone, not a tuple"):
        model.encode(src, None)
    for positions in (Placeless(), nn.Identity()):
        embed = nn.Sequential(Embeddings(16, 9), positions)
        with pytest.raises(ValueError, match=rf"\(x, start\): let {type(positions).__name__} take start"):
            EncoderDecoder(model.encoder, model.decoder, embed, embed, model.generator)


@pytest.mark.parametrize("name", [Modern, "paper"])  # the first is `@variant` without a name
def test_a_variant_needs_a_name_of_its_own(name):
    with pytest.raises((TypeError, ValueError), match="name"):
        variant(name)


@pytest.mark.parametrize("method", ["attends", "reset_parameter", "foward"])
def test_a_method_of_a_part_that_is_spelled_otherwise_is_not_passed_over(method):
    misspelled = type("Mine", (MultiHeadedAttention,), {method: lambda *_: None, "_attend": None})

    @variant("mine")
    class Misspelled(Parts):
        def attention(self):
            return misspelled(self.config.h, self.config.d_model)

    with pytest.raises(ValueError, match=rf"Mine.{method} overrides nothing: is \w+ meant"):
        make_model(7, 7, N=1, d_model=8, d_ff=8, h=2, variant="mine")


def test_a_part_that_is_spelled_otherwise_is_not_passed_over():
    with pytest.raises(ValueError, match="is positions meant"):

        @variant("typo")
        class Typo(Parts):
            def postions(self):
                return nn.Identity()


def test_a_variant_that_replaces_no_part_is_refused_and_one_that_inherits_a_part_is_not():
    class Misnamed(Parts):
        def ffn(self):
            return nn.Identity()

    class Inherited(Modern):
        pass

    variant("inherited")(Inherited)
    with pytest.raises(ValueError, match="attention, cross_attention, feed_forward, norm, positions"):
        variant("misnamed")(Misnamed)
    with pytest.raises(ValueError, match="no variant 'misnamed'"):
        make_model(9, 9, variant="misnamed")


@pytest.mark.parametrize("part", BUILDERS)
@pytest.mark.parametrize("returned", [None, nn.LayerNorm])
def test_a_builder_that_returns_no_module_is_named(part, returned):
    variant("broken")(type("Broken", (Parts,), {part: lambda _: returned}))
    if (part, returned) != ("cross_attention", None):
        with pytest.raises(TypeError, match=rf"Broken\.{part} must return a torch\.nn\.Module"):
            make_model(9, 9, N=1, d_model=8, d_ff=8, h=2, variant="broken")


@pytest.mark.parametrize("config", [{"src_vocab": 9, "tgt_vocab": 9}, "config.json"])
def test_what_is_no_config_is_named(config):
    with pytest.raises(TypeError, match=r"TransformerConfig\(\.\.\.\), not a"):
        EncoderDecoder.from_config(config)


@pytest.mark.parametrize("parts", [int, nn.Module, Parts.norm])
def test_what_is_no_subclass_of_parts_is_no_variant(parts):
    with pytest.raises(TypeError, match=r"subclass of annotated\.Parts"):
        variant("other")(parts)
