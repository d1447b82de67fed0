"""Properties of the whole model. That it computes what PyTorch's does is held in tests/interop."""

import threading
from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn
from torch.nn import functional as F

from annotated.batches import Batch, padding_mask
from annotated.evaluation_mode import evaluating
from annotated.transformer.attention import MultiHeadedAttention, subsequent_mask
from annotated.transformer.layers import DecoderLayer, Embeddings, EncoderLayer, PositionwiseFeedForward
from annotated.transformer.model import (
    Decoder,
    Encoder,
    EncoderDecoder,
    Generator,
    make_model,
)
from annotated.transformer.positions import PositionalEncoding

PAD = 2
seeds = st.integers(0, 2**32)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def shaken(model):
    """The model in float64, its biases and norms no longer zeros and ones, so that none can be left out."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model.double()


def toy(**settings):
    torch.manual_seed(0)
    return shaken(make_model(11, 13, N=2, d_model=8, d_ff=12, h=2, dropout=0.0, **settings))


POST, PRE = toy(), toy(norm_first=True, positions="learned", activation="gelu", max_len=20)
models = st.sampled_from([POST, PRE])


def tokens(*shape, vocab=11):
    """Random tokens, none of them padding."""
    return torch.randint(3, vocab, shape)


def states(model, src, tgt):
    with torch.no_grad():
        return model(src, tgt, padding_mask(src, PAD), padding_mask(tgt, PAD) & subsequent_mask(tgt.size(1)))


@settings(deadline=None, max_examples=25)
@given(models, seeds, st.integers(0, 5))
def test_no_target_position_sees_a_later_one(model, seed, changed):
    torch.manual_seed(seed)
    src, tgt = tokens(2, 4), tokens(2, 6)
    other = tgt.clone()
    other[:, changed] = (other[:, changed] - 2) % 8 + 3  # another token for certain
    one, two = states(model, src, tgt), states(model, src, other)
    torch.testing.assert_close(one[:, :changed], two[:, :changed])
    assert not torch.isclose(one[:, changed], two[:, changed]).all(dim=-1).any()


@settings(deadline=None, max_examples=25)
@given(models, seeds, st.integers(0, 4), st.integers(0, 4))
def test_padding_added_to_either_side_changes_nothing(model, seed, more_src, more_tgt):
    torch.manual_seed(seed)
    src, tgt = tokens(2, 4), tokens(2, 5)
    padded = states(model, F.pad(src, (0, more_src), value=PAD), F.pad(tgt, (0, more_tgt), value=PAD))
    torch.testing.assert_close(padded[:, :5], states(model, src, tgt))


@settings(deadline=None, max_examples=10)
@given(models, seeds)
def test_a_source_of_padding_alone_gives_finite_states_and_gradients(model, seed):
    torch.manual_seed(seed)
    batch = Batch(torch.full((2, 3), PAD), tokens(2, 4), PAD)
    out = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    assert out.isfinite().all()
    found = torch.autograd.grad(out.sum(), list(model.decoder.parameters()))
    assert all(gradient.isfinite().all() for gradient in found)


def assembled(attn, dtype=torch.float64):
    """What the classes give when a reader puts them together as Figure 1 shows."""
    ff = PositionwiseFeedForward(8, 12, 0.0)
    return EncoderDecoder(
        Encoder(EncoderLayer(8, deepcopy(attn), deepcopy(ff), 0.0), 2),
        Decoder(DecoderLayer(8, deepcopy(attn), deepcopy(attn), deepcopy(ff), 0.0), 2),
        nn.Sequential(Embeddings(8, 11), PositionalEncoding(8, 0.0)),
        nn.Sequential(Embeddings(8, 13), PositionalEncoding(8, 0.0)),
        Generator(8, 13),
    ).to(dtype)


def test_a_model_put_together_by_hand_is_the_one_that_settings_give():
    by_hand, src, tgt = assembled(MultiHeadedAttention(2, 8, 0.0)), tokens(2, 4), tokens(2, 3)
    by_hand.load_state_dict(POST.state_dict())
    assert torch.equal(states(by_hand, src, tgt), states(POST, src, tgt))


@pytest.mark.parametrize("layers", [[], [nn.TransformerEncoderLayer(8, 2)]], ids=["none", "pytorchs"])
def test_a_stack_says_which_layers_it_needs(layers):
    with pytest.raises(ValueError, match="EncoderLayer"):
        Encoder(layers)


def test_a_list_of_layers_is_all_of_a_stack():
    layers = list(POST.encoder.layers)
    assert len(Encoder(layers).layers) == len(Encoder(layers, len(layers)).layers) == len(layers)
    with pytest.raises(ValueError, match=f"list of {len(layers)} layers"):
        Encoder(layers, len(layers) + 1)


def test_a_seed_gives_the_weights_that_copied_layers_begin_with():
    torch.manual_seed(1)
    by_hand = assembled(MultiHeadedAttention(2, 8, 0.0), torch.float32)
    by_hand.reset_parameters()
    torch.manual_seed(1)
    model = make_model(11, 13, N=2, d_model=8, d_ff=12, h=2)
    torch.testing.assert_close(model.state_dict(), by_hand.state_dict(), rtol=0, atol=0)


@pytest.fixture
def small():
    """A small model in training, of which a part is frozen."""
    model = make_model(11, 13, N=1, d_model=8, d_ff=12, h=2).train()
    model.encoder.layers[0].eval()
    return model


def modes(model):
    return [module.training for module in model.modules()]


def test_evaluating_is_over_when_it_is_over(small):
    before = modes(small)

    def fail():
        with evaluating(small):
            assert not any(modes(small))
            assert not small.generator(torch.randn(1, 8)).requires_grad
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert modes(small) == before
    assert torch.is_grad_enabled()


def test_evaluating_lasts_until_the_last_thread_is_done(small):
    before, seen = modes(small), []
    begun, first_over = threading.Event(), threading.Event()

    def second():
        with evaluating(small.decoder), evaluating(small):
            begun.set()
            assert first_over.wait(30)
            seen.append(any(modes(small)))
            with evaluating(small):
                pass
            seen.append(any(modes(small)))

    thread = threading.Thread(target=second)
    with evaluating(small):
        thread.start()
        assert begun.wait(30)
    first_over.set()
    thread.join()
    assert seen == [False, False]
    assert modes(small) == before


def test_a_copy_made_while_evaluating_goes_its_own_way(small):
    with evaluating(small):
        copy = deepcopy(small).train()
        with evaluating(copy):
            assert not copy.training
        assert copy.training
        assert not small.training
