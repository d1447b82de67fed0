import threading
from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from annotated.data.batches import Batch
from annotated.modes import evaluating
from annotated.transformer.attention import MultiHeadedAttention, padding_mask, subsequent_mask
from annotated.transformer.layers import Embeddings, PositionwiseFeedForward
from annotated.transformer.model import (
    Decoder,
    DecoderLayer,
    EmbeddedPositions,
    Encoder,
    EncoderDecoder,
    EncoderLayer,
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


# ---- against PyTorch's own Transformer


def peer_of(model, norm_first):
    """torch.nn.Transformer of the same shape; a final norm is part of the pre-norm one only."""
    options = {"dropout": 0.0, "norm_first": norm_first, "batch_first": True, "dtype": torch.float64}
    norms = [nn.LayerNorm(8, dtype=torch.float64) if norm_first else None for _ in range(2)]
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 12, **options), 2, norms[0], enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 12, **options), 2, norms[1])
    return nn.Transformer(8, 2, custom_encoder=encoder, custom_decoder=decoder, batch_first=True)


def pairs(ours, theirs):
    """Yield (our tensors, which stacked are theirs; their parameter) for every weight of a layer."""
    modules = [(ours.feed_forward.w_1, theirs.linear1), (ours.feed_forward.w_2, theirs.linear2)]
    modules += [(wrap.norm, getattr(theirs, f"norm{i}")) for i, wrap in enumerate(ours.sublayer, 1)]
    heads = [(ours.self_attn, theirs.self_attn)]
    if hasattr(ours, "src_attn"):
        heads.append((ours.src_attn, theirs.multihead_attn))
    for our_heads, their_heads in heads:
        *projections, output = our_heads.linears
        modules.append((output, their_heads.out_proj))
        for kind in ("weight", "bias"):
            yield [getattr(m, kind) for m in projections], getattr(their_heads, f"in_proj_{kind}")
    for one, other in modules:
        yield from (([getattr(one, kind)], getattr(other, kind)) for kind in ("weight", "bias"))


def all_pairs(model, peer):
    for ours, theirs in ((model.encoder, peer.encoder), (model.decoder, peer.decoder)):
        for layer, other in zip(ours.layers, theirs.layers, strict=True):
            yield from pairs(layer, other)
        if theirs.norm is not None:
            yield [ours.norm.weight], theirs.norm.weight
            yield [ours.norm.bias], theirs.norm.bias


@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
def test_the_model_is_that_of_pytorch(norm_first):
    model = toy(norm_first=norm_first)
    peer = peer_of(model, norm_first)
    copied = list(all_pairs(model, peer))
    assert len(copied) == len(list(peer.parameters()))
    with torch.no_grad():
        for ours, theirs in copied:
            theirs.copy_(torch.cat(ours))

    src = torch.tensor([[3, 4, 5, 6, 1], [7, 8, 1, PAD, PAD]])
    batch = Batch(src, torch.tensor([[0, 3, 4, 5, 1], [0, 6, 1, PAD, PAD]]), PAD)
    ours = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    theirs = peer(
        model.src_embed(batch.src),
        model.tgt_embed(batch.tgt),
        tgt_mask=~subsequent_mask(4)[0],
        src_key_padding_mask=batch.src == PAD,
        tgt_key_padding_mask=batch.tgt == PAD,
        memory_key_padding_mask=batch.src == PAD,
    )
    torch.testing.assert_close(ours, theirs)

    embeddings = [model.src_embed[0].lut.weight, model.tgt_embed[0].lut.weight]
    weights = torch.randn_like(ours)
    by_ours = torch.autograd.grad(
        (ours * weights).sum(), [*embeddings, *(p for group, _ in copied for p in group)]
    )
    by_theirs = torch.autograd.grad((theirs * weights).sum(), [*embeddings, *(p for _, p in copied)])
    flat = torch.cat([gradient.flatten() for gradient in by_theirs])
    torch.testing.assert_close(torch.cat([gradient.flatten() for gradient in by_ours]), flat)
    assert flat.abs().max() > 0.1


# ---- properties


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


@pytest.mark.parametrize("model", [POST, PRE], ids=["post-norm", "pre-norm"])
def test_the_generator_gives_log_probabilities(model):
    log_probs = model.generator(states(model, tokens(2, 3), tokens(2, 4)))
    assert log_probs.shape == (2, 4, 13)
    torch.testing.assert_close(log_probs.exp().sum(dim=-1), torch.ones(2, 4, dtype=torch.float64))


# ---- put together by hand, and otherwise than in the paper


def assembled(attn, dtype=torch.float64):
    """What the classes give when a reader puts them together as Figure 1 shows."""
    ff = PositionwiseFeedForward(8, 12, 0.0)
    return EncoderDecoder(
        Encoder(EncoderLayer(8, deepcopy(attn), deepcopy(ff), 0.0), 2),
        Decoder(DecoderLayer(8, deepcopy(attn), deepcopy(attn), deepcopy(ff), 0.0), 2),
        EmbeddedPositions(Embeddings(8, 11), PositionalEncoding(8, 0.0)),
        EmbeddedPositions(Embeddings(8, 13), PositionalEncoding(8, 0.0)),
        Generator(8, 13),
    ).to(dtype)


def test_a_model_put_together_by_hand_is_the_one_that_settings_give():
    by_hand, src, tgt = assembled(MultiHeadedAttention(2, 8, 0.0)), tokens(2, 4), tokens(2, 3)
    by_hand.load_state_dict(POST.state_dict())
    assert torch.equal(states(by_hand, src, tgt), states(POST, src, tgt))


@pytest.mark.parametrize("seed", [0, 1])
def test_a_seed_gives_the_weights_that_copied_layers_begin_with(seed):
    torch.manual_seed(seed)
    by_hand = assembled(MultiHeadedAttention(2, 8, 0.0), torch.float32)
    by_hand.reset_parameters()
    torch.manual_seed(seed)
    model = make_model(11, 13, N=2, d_model=8, d_ff=12, h=2)
    torch.testing.assert_close(model.state_dict(), by_hand.state_dict(), rtol=0, atol=0)


# ---- evaluating


def test_evaluating_is_over_when_it_is_over():
    model = make_model(11, 13, N=1, d_model=8, d_ff=12, h=2)
    model.train()
    model.encoder.layers[0].eval()  # as a frozen part would be
    before = [module.training for module in model.modules()]

    def run(error):
        with evaluating(model):
            assert not any(module.training for module in model.modules())
            assert not model.generator(torch.randn(1, 8)).requires_grad
            raise error

    with pytest.raises(KeyError):
        run(KeyError)
    assert [module.training for module in model.modules()] == before
    assert torch.is_grad_enabled()


def test_evaluating_lasts_until_the_last_thread_is_done():
    model = make_model(11, 13, N=1, d_model=8, d_ff=12, h=2).train()
    model.encoder.layers[0].eval()  # as a frozen part would be
    before = [module.training for module in model.modules()]
    begun, first_over = threading.Event(), threading.Event()
    seen = []

    def second():
        with evaluating(model.decoder), evaluating(model):
            begun.set()
            assert first_over.wait(30)
            seen.append(any(module.training for module in model.modules()))
            with evaluating(model):
                pass
            seen.append(any(module.training for module in model.modules()))

    thread = threading.Thread(target=second)
    with evaluating(model):
        thread.start()
        assert begun.wait(30)
    first_over.set()
    thread.join()
    assert seen == [False, False]
    assert [module.training for module in model.modules()] == before


def test_a_copy_made_while_evaluating_goes_its_own_way():
    model = make_model(11, 13, N=1, d_model=8, d_ff=12, h=2).train()
    with evaluating(model):
        copy = deepcopy(model).train()
        with evaluating(copy):
            assert not copy.training
        assert copy.training
        assert not model.training
