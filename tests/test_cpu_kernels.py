"""Dropout and short attention on a CPU, as training computes them."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from annotated.cpu_kernels import CpuKernels, quick_dropout
from annotated.transformer.attention import MultiHeadedAttention


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_zeroes_a_share_and_scales_the_rest(p):
    n = 400_000
    out = quick_dropout(torch.ones(n), p)
    dropped = (out == 0).double().mean().item()
    assert abs(dropped - p) < 5 * math.sqrt(p * (1 - p) / n)
    torch.testing.assert_close(out[out != 0].unique(), torch.tensor([1 / (1 - p)]), rtol=2e-4, atol=0)
    assert abs(out.mean().item() - 1) < 6 * math.sqrt(p / (1 - p) / n)  # the expectation is kept


def test_dropout_in_place_drops_in_place():
    x = torch.ones(1000)
    with CpuKernels():
        out = F.dropout(x, 0.5, inplace=True)
    assert out is x
    assert 300 < (x == 0).sum() < 700


def test_dropout_is_silent_outside_training_and_at_0():
    x, state = torch.randn(5, 3), torch.get_rng_state()
    assert torch.equal(quick_dropout(x, 0.5, training=False), x)
    assert torch.equal(quick_dropout(x, 0.0), x)
    assert torch.equal(torch.get_rng_state(), state)  # neither draws anything


def test_dropout_masks_the_gradient_where_it_masks_the_value():
    x = torch.full((1001,), 3.0, dtype=torch.float64, requires_grad=True)
    out = quick_dropout(x, 0.3)
    out.sum().backward()
    torch.testing.assert_close(x.grad, out.detach() / 3)
    assert 0 < (x.grad == 0).sum() < 1001


def test_dropout_draws_where_its_input_is():
    with torch.device("meta"):  # whatever device is the default
        out = quick_dropout(torch.ones(8, device="cpu"), 0.5)
    assert out.device.type == "cpu"


def test_the_four_entries_that_share_a_draw_are_independent():
    p, n = 0.3, 200_000
    dropped = (quick_dropout(torch.ones(n, 4), p) == 0).double()
    covariance = torch.cov(dropped.T)
    torch.testing.assert_close(covariance, p * (1 - p) * torch.eye(4).double(), atol=0.004, rtol=0)
    together = dropped.prod(dim=1).mean().item()  # all four at once, which pairs do not settle
    assert abs(together - p**4) < 5 * math.sqrt(p**4 / n)


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 5), (2, 0, 4)])
def test_dropout_keeps_shape_and_type(shape):
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        out = quick_dropout(torch.ones(shape, dtype=dtype), 0.5)
        assert out.shape == shape
        assert out.dtype == dtype


def makes_a_table(attend, T, S):
    """Whether a table of weights is multiplied: the counter knows no fused kernel of a CPU."""
    query, memory = (torch.randn(1, n, 16, requires_grad=True) for n in (T, S))
    with FlopCounterMode(display=False) as counter, CpuKernels():
        attend(query, memory, memory)
    projections = 2 * (2 * T + 2 * S) * 16**2
    assert counter.get_total_flops() in (projections, projections + 2 * 2 * T * S * 16)
    return counter.get_total_flops() > projections


def test_the_fused_kernel_is_used_except_in_training_on_short_sentences():
    attend = MultiHeadedAttention(4, 16, dropout=0.0)
    assert makes_a_table(attend, 48, 48)
    assert not makes_a_table(attend, 49, 3)
    assert not makes_a_table(attend, 3, 49)
    with torch.no_grad():
        assert not makes_a_table(attend, 3, 3)


def test_dropout_is_the_quick_one_while_the_block_runs():
    x, module = torch.ones(64, 64), nn.Dropout(0.5)
    with CpuKernels():
        torch.manual_seed(1)
        inside = module(x)
    torch.manual_seed(1)
    assert torch.equal(inside, quick_dropout(x, 0.5))
    torch.manual_seed(1)
    after = module(x)
    torch.manual_seed(1)
    assert torch.equal(after, F.dropout(x, 0.5))  # PyTorch's again


def test_the_arguments_of_attention_may_stand_by_position():
    q = torch.randn(2, 1, 5, 4, requires_grad=True)
    expected = F.scaled_dot_product_attention(q, q, q, None, 0.0, True)
    with CpuKernels():
        assert torch.equal(F.scaled_dot_product_attention(q, q, q, None, 0.0, True), expected)


@pytest.mark.parametrize("length", [10, 60])
def test_numbers_that_are_added_to_the_scores_stay_pytorchs(length):
    q, bias = torch.randn(2, 1, length, 4, requires_grad=True), torch.randn(length, length)
    expected = F.scaled_dot_product_attention(q, q, q, bias)
    with CpuKernels():
        torch.testing.assert_close(F.scaled_dot_product_attention(q, q, q, bias, 0.0), expected)
