import math
import threading
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from annotated.attention_maps import attention_weights, capture_attention
from annotated.batches import padding_mask
from annotated.cpu_kernels import CpuKernels
from annotated.search.greedy import greedy_decode
from annotated.transformer.attention import MultiHeadedAttention, attention, subsequent_mask
from annotated.transformer.layers import EncoderLayer
from annotated.transformer.model import make_model

seeds = st.integers(0, 2**32)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def random(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def readable(module):
    """Let the module compute by `attention` rather than by the fused kernel."""
    module.attend = lambda q, k, v, mask: attention(q, k, v, mask, module.dropout)[0]
    return module


def fused(module):
    """Let the module compute by the fused kernel, as it does."""
    return module


def quick(module):
    """Let the module compute as in training on a CPU, by `attention` where that is faster."""
    forward = module.forward

    def quickly(*inputs):
        with CpuKernels():
            return forward(*inputs)

    module.forward = quickly
    return module


def gradients(output, inputs):
    """Of a sum that weighs each entry of the output differently."""
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    return torch.autograd.grad((output * weights).sum(), inputs)


def naive_attention(query, key, value, mask):
    """Equation 1 for one head, a query and a key at a time, in Python's own numbers."""
    output = []
    for q, allowed in zip(query.tolist(), mask.tolist(), strict=True):
        powers = [
            math.exp(sum(a * b for a, b in zip(q, k, strict=True)) / math.sqrt(len(q))) if allow else 0.0
            for k, allow in zip(key.tolist(), allowed, strict=True)
        ]
        columns = zip(*value.tolist(), strict=True)
        output.append([sum(p * v for p, v in zip(powers, c, strict=True)) / sum(powers) for c in columns])
    return torch.tensor(output, dtype=torch.float64)


def test_attention_is_equation_1():
    query, key, value = random(4, 3), random(5, 3), random(5, 2)
    everything = torch.ones(4, 5, dtype=torch.bool)
    some = torch.rand(4, 5) < 0.6
    some[:, 0] = True
    for mask, allowed in ((None, everything), (some, some)):
        output, weights = attention(query, key, value, mask)
        torch.testing.assert_close(output, naive_attention(query, key, value, allowed))
        torch.testing.assert_close(weights @ value, output)


@pytest.mark.parametrize("form", [readable, fused, quick])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(max_examples=20, deadline=None)
@given(seeds)
def test_a_query_that_may_see_nothing_gets_zeros_and_finite_gradients(form, dtype, seed):
    torch.manual_seed(seed)
    attend = form(MultiHeadedAttention(2, 8)).to(dtype)
    nn.init.normal_(attend.linears[-1].bias)
    query, memory = random(2, 3, 8, dtype=dtype), random(2, 4, 8, dtype=dtype)
    mask = torch.rand(2, 3, 4) < 0.7
    mask[0, 1] = False
    output = attend.eval()(query, memory, memory, mask)
    assert torch.equal(output[0, 1], attend.linears[-1].bias)  # what W^O makes of zeros
    found = gradients(output, [query, memory, *attend.parameters()])
    assert all(gradient.isfinite().all() for gradient in found)
    assert not found[0][0, 1].any()


def copied(attend):
    """PyTorch's own module with our weights."""
    peer = nn.MultiheadAttention(attend.h * attend.d_k, attend.h, batch_first=True, dtype=torch.float64)
    to_query, to_key, to_value, to_output = attend.linears
    with torch.no_grad():
        peer.in_proj_weight.copy_(torch.cat([m.weight for m in (to_query, to_key, to_value)]))
        peer.in_proj_bias.copy_(torch.cat([m.bias for m in (to_query, to_key, to_value)]))
        peer.out_proj.weight.copy_(to_output.weight)
        peer.out_proj.bias.copy_(to_output.bias)
    return peer


@pytest.mark.parametrize("form", [readable, fused, quick])
def test_heads_are_those_of_pytorch(form):
    attend = form(MultiHeadedAttention(4, 12, dropout=0.0)).double()
    peer = copied(attend)
    query, key, value = random(3, 5, 12), random(3, 5, 12), random(3, 5, 12)
    real = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], dtype=torch.bool)
    causal = subsequent_mask(5)
    ours = attend(query, key, value, real.unsqueeze(1) & causal)
    theirs, _ = peer(query, key, value, key_padding_mask=~real, attn_mask=~causal[0])
    torch.testing.assert_close(ours, theirs)
    our_gradients = gradients(ours, [query, key, value, *(m.weight for m in attend.linears)])
    their_gradients = gradients(theirs, [query, key, value, peer.in_proj_weight, peer.out_proj.weight])
    joined = (*our_gradients[:3], torch.cat(our_gradients[3:6]), our_gradients[6])
    for one, other in zip(joined, their_gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_a_mask_of_padding_alone_is_not_taken_for_one_of_queries():
    """(B, S), where there are as many sentences as queries."""
    x, mask = torch.randn(3, 3, 8), torch.ones(3, 3, dtype=torch.bool).tril()
    with pytest.raises(ValueError, match=r"not \(3, 3\)"):
        MultiHeadedAttention(2, 8)(x, x, x, mask)


def test_a_mask_that_is_not_boolean_is_refused():
    x, mask = random(1, 3, 8), torch.ones(1, 3, 3, dtype=torch.int64)
    for form in (attention, MultiHeadedAttention(2, 8).double()):
        with pytest.raises(ValueError, match="bool"):
            form(x, x, x, mask)


def test_dropout_changes_what_is_summed_and_not_the_weights():
    query, key, value = random(1, 3, 4), random(1, 5, 4), random(1, 5, 4)
    plain, weights = attention(query, key, value)
    dropped, same = attention(query, key, value, dropout=nn.Dropout(0.5))
    assert torch.equal(weights, same)
    assert not torch.allclose(plain, dropped)
    assert torch.equal(attention(query, key, value, dropout=nn.Dropout(0.5).eval())[0], plain)


@pytest.fixture
def model():
    return make_model(11, 13, N=2, d_model=16, d_ff=32, h=4, dropout=0.0)


@pytest.fixture
def batch():
    src, tgt = torch.tensor([[5, 6, 7, 1], [8, 1, 2, 2]]), torch.tensor([[0, 4, 5], [0, 6, 2]])
    return src, tgt, padding_mask(src, 2), padding_mask(tgt, 2) & subsequent_mask(3)


def test_captured_weights_are_those_of_the_readable_form_and_of_the_latest_pass(model, batch):
    src, tgt, src_mask, tgt_mask = batch
    with capture_attention(model.double()) as maps:
        model(src[1:], tgt[1:, :2], src_mask[1:], tgt_mask[1:, :2, :2])
        model(*batch)
    assert sorted(maps) == sorted((kind, i) for kind in ("encoder", "decoder", "cross") for i in (0, 1))
    for kind, shape, mask in (
        ("encoder", (2, 4, 4, 4), src_mask),
        ("decoder", (2, 4, 3, 3), tgt_mask),
        ("cross", (2, 4, 3, 4), src_mask),
    ):
        for i in (0, 1):
            assert (maps[kind, i].shape, maps[kind, i].dtype) == (shape, torch.float32)
            assert (maps[kind, i][~mask.unsqueeze(1).expand(shape)] == 0).all()
            assert not maps[kind, i].requires_grad
    attend = model.encoder.layers[0].self_attn
    query, key = (attend.split(linear(model.src_embed(src))) for linear in attend.linears[:2])
    expected = attention(query, key, key, src_mask.unsqueeze(1))[1].float()
    torch.testing.assert_close(maps["encoder", 0], expected)


class MultiQuery(MultiHeadedAttention):
    """One head of keys and values for all heads of queries (Shazeer 2019)."""

    def attend(self, q, k, v, mask):
        k, v = (x[:, :1].expand(-1, self.h, x.size(-2), self.d_k) for x in (k, v))
        return super().attend(q, k, v, mask)


@pytest.mark.parametrize("keys", [1, 3, 4, 5, 11])
def test_the_weights_of_a_variant_are_captured_within_what_attend_takes(keys):
    variant = MultiQuery(4, 16).double().eval()
    query, memory = random(2, 3, 16).double(), random(2, keys, 16).double()
    mask = torch.ones(2, 1, keys, dtype=torch.bool)
    mask[0, 0, 1:] = False
    weights = attention_weights(variant, query, memory, memory, mask)
    q, k = variant.split(variant.linears[0](query)), variant.split(variant.linears[1](memory))
    expected = attention(q, k[:, :1].expand_as(k), k, mask.unsqueeze(1))[1]
    torch.testing.assert_close(weights, expected)


def test_capture_changes_no_output_and_ends_with_its_block(model, batch):
    before = model(*batch)
    with capture_attention(model) as maps:
        torch.testing.assert_close(model(*batch), before)
        with capture_attention(model) as inner:
            model(*batch)
        seen = maps["cross", 0]
        model(*batch)
    assert maps["cross", 0] is not seen  # the outer block went on recording
    assert inner.keys() == maps.keys()
    held = dict(maps)
    assert torch.equal(model(*batch), before)
    assert all(maps[name] is held[name] for name in held)


def test_capture_sees_only_the_passes_of_its_own_thread(model, batch):
    src, tgt, src_mask, tgt_mask = batch
    begun, passed = threading.Event(), threading.Event()
    others = {}

    def look():
        with capture_attention(model) as maps:
            begun.set()
            assert passed.wait(30)
            others.update(maps)
            model(*batch)

    thread = threading.Thread(target=look)
    thread.start()
    assert begun.wait(30)
    with capture_attention(model) as maps:
        model(src[:1], tgt[:1, :2], src_mask[:1], tgt_mask[:1, :2, :2])
        passed.set()
        thread.join()  # the other block has begun before this one and ends within it
    assert not others
    assert maps["cross", 1].shape == (1, 4, 2, 4)


def share_one(model):
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.self_attn = model.encoder.layers[0].self_attn
    for layer in model.decoder.layers:
        layer.src_attn = layer.self_attn


def share_within_layers(model):
    for layer in model.decoder.layers:
        layer.src_attn = layer.self_attn


def repeat_layers(model):
    for stack in (model.encoder, model.decoder):
        stack.layers[1] = stack.layers[0]


@pytest.mark.parametrize("share", [share_one, share_within_layers, repeat_layers])
def test_shared_attention_is_recorded_in_each_of_its_places_as_unshared_attention_is(share, model, batch):
    shared = make_model(11, 13, N=2, d_model=16, d_ff=32, h=4, dropout=0.0).eval()
    share(shared)
    model.eval().load_state_dict(shared.state_dict())  # which has a shared weight under each of its names
    src, _, src_mask, _ = batch

    def search(model):
        return greedy_decode(model, src, src_mask, max_len=5, start_symbol=0, end_symbol=None)

    for run in (lambda model: model(*batch), search):
        with capture_attention(model) as expected, capture_attention(shared) as maps:
            run(model)
            run(shared)
        assert maps.keys() == expected.keys()
        for name, weights in expected.items():
            torch.testing.assert_close(maps[name], weights)


class ByKeyword(EncoderLayer):
    def forward(self, x, mask):
        return x + self.self_attn(query=x, key=x, value=x, mask=mask)


def test_attention_that_is_called_by_keyword_is_recorded_alike(model, batch):
    model.encoder.layers[0] = ByKeyword(16, model.encoder.layers[0].self_attn, nn.Identity(), 0.0)
    with capture_attention(model) as maps:
        model(*batch)
    x = model.src_embed(batch[0])
    expected = attention_weights(model.encoder.layers[0].self_attn, x, x, x, batch[2])
    torch.testing.assert_close(maps["encoder", 0], expected.detach())


@pytest.mark.parametrize("model", [nn.Transformer(8, 2, 1, 1, 8), "name"])
def test_what_is_no_model_of_the_package_is_not_recorded(model):
    with pytest.raises(TypeError, match="recorded in an EncoderDecoder"), capture_attention(model):
        pass


@pytest.mark.parametrize("kernels", [nullcontext, CpuKernels])
@pytest.mark.parametrize("form", [readable, fused])
@pytest.mark.parametrize("p", [0.2, 0.7])
def test_every_form_drops_the_share_of_weights_it_was_told_to(kernels, form, p):
    module = form(MultiHeadedAttention(1, 1, dropout=p))
    n = 40_000
    # One key, so its weight is 1, and with a value of 1 so is the output.
    ones = torch.ones(n, 1, 1, 1, requires_grad=True)
    with kernels():
        out = module.attend(ones, ones, ones, None)
    assert abs((out == 0).double().mean().item() - p) < 5 * math.sqrt(p * (1 - p) / n)
    torch.testing.assert_close(out[out != 0].unique(), torch.tensor([1 / (1 - p)]), rtol=2e-4, atol=0)
    assert torch.equal(module.eval().attend(ones, ones, ones, None), ones)
