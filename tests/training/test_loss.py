"""The loss: `LabelSmoothing` by hand, and the fast forms against it, in value and gradient."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.nn import functional as F

from annotated.loss import LabelSmoothing, smoothed_cross_entropy
from annotated.translation.training.summed_loss import rdrop_cross_entropy, symmetric_divergence

PAD, SIZE, WIDTH = 2, 9, 4


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def test_targets_by_hand():
    # Five symbols, padding is number 0: 0.4 is spread over the three that are neither right nor padding.
    criterion = LabelSmoothing(5, 0, 0.4)
    criterion(torch.zeros(1, 3, 5), torch.tensor([[2, 1, 0]]))
    e = 0.4 / 3
    expected = [[0, e, 0.6, e, e], [0, 0.6, e, e, e], [0, 0, 0, 0, 0]]
    torch.testing.assert_close(criterion.true_dist, torch.tensor([expected]))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_it_is_cross_entropy_on_its_target_less_the_entropy_of_that(smoothing):
    logits, target = torch.randn(5, 7, dtype=torch.float64), torch.tensor([0, 1, 3, 6, 3])
    criterion = LabelSmoothing(7, PAD, smoothing)
    found = criterion(logits.log_softmax(dim=-1), target)
    entropy = torch.distributions.Categorical(criterion.true_dist).entropy().sum()
    torch.testing.assert_close(found, F.cross_entropy(logits, criterion.true_dist, reduction="sum") - entropy)


def test_a_token_that_cannot_be_does_no_harm():
    states, weight, bias = torch.randn(3, WIDTH), torch.randn(SIZE, WIDTH), torch.zeros(SIZE)
    bias[5] = -torch.inf
    target = torch.tensor([0, 1, 4])
    slow = LabelSmoothing(SIZE, PAD)(F.linear(states, weight, bias).log_softmax(dim=-1), target)
    torch.testing.assert_close(smoothed_cross_entropy(states, weight, bias, target), slow)


def test_a_prediction_of_0_for_padding_does_no_harm():
    x = torch.tensor([[0.2, 0.3, 0.0, 0.5], [1.0, 0.0, 0.0, 0.0]]).log().requires_grad_()
    loss = LabelSmoothing(4, PAD, 0.1)(x, torch.tensor([0, PAD]))
    loss.backward()
    assert loss.isfinite()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(("size", "smoothing"), [(5, -0.1), (5, 1.0), (2, 0.1), (6, 0.1)])
def test_what_has_no_smoothed_target_is_refused(size, smoothing):
    with pytest.raises(ValueError, match=r"smoothing|of 6 symbols, not 5"):
        LabelSmoothing(size, PAD, smoothing)(torch.randn(2, 5), torch.tensor([0, 1]))


@pytest.mark.parametrize(("size", "smoothing"), [(5, -0.1), (5, 1.0), (2, 0.1)])
def test_both_forms_refuse_the_same_smoothing(size, smoothing):
    states, weight, target = torch.randn(2, 3), torch.randn(size, 3), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="smoothing must be in"):
        smoothed_cross_entropy(states, weight, torch.zeros(size), target, smoothing, PAD)


@pytest.mark.parametrize("pad", [-1, -100, SIZE])
def test_both_forms_refuse_a_padding_that_is_no_symbol(pad):
    (_, *inputs), target = problem(3)
    for loss in (smoothed_cross_entropy, readable):
        with pytest.raises(ValueError, match="padding_idx must be one of the 9 symbols"):
            loss(*inputs, target, 0.1, pad)


def test_divergence_by_hand():
    x, y = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]]).log()
    # (0.25 ln(0.5 / 0.25) - 0.25 ln(0.5 / 0.75)) / 2
    assert symmetric_divergence(x, y).item() == pytest.approx(math.log(3) / 8)


def problem(n, pad=PAD):
    """States of two passes, output projection and targets (some of them padding), float64."""
    shapes = (n, WIDTH), (n, WIDTH), (SIZE, WIDTH), (SIZE,)
    inputs = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    target = torch.randint(SIZE, (n,))
    target[::3] = pad
    return inputs, target


def readable(states, weight, bias, target, smoothing, pad=PAD):
    log_probs = F.linear(states, weight, bias).log_softmax(dim=-1)
    return LabelSmoothing(len(weight), pad, smoothing)(log_probs, target)


def assert_same(fast, slow, inputs):
    torch.testing.assert_close(fast, slow)
    by_fast, by_slow = (torch.autograd.grad(3 * loss, inputs) for loss in (fast, slow))
    for one, other in zip(by_fast, by_slow, strict=True):
        torch.testing.assert_close(one, other)


@settings(deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(0, 12),
    st.integers(1, 14),
    st.sampled_from([0.0, 0.1, 0.4, 0.9]),
    st.integers(0, 8),
)
def test_the_fast_form_is_the_readable_one(seed, n, chunk, smoothing, pad):
    torch.manual_seed(seed)
    (_, *inputs), target = problem(n, pad)
    fast = smoothed_cross_entropy(*inputs, target, smoothing, pad, chunk)
    assert_same(fast, readable(*inputs, target, smoothing, pad), inputs)


@pytest.mark.parametrize("chunk", [1, 4, 100])
@pytest.mark.parametrize("rdrop_weight", [0.3, 2.5])
def test_rdrop_is_the_mean_loss_of_both_passes_and_their_divergence(chunk, rdrop_weight):
    inputs, target = problem(10)
    first, second, *output = inputs
    x, y = (F.linear(states, *output).log_softmax(dim=-1)[target != PAD] for states in (first, second))
    mean = sum(readable(states, *output, target, 0.1) for states in (first, second)) / 2
    found = rdrop_cross_entropy(*inputs, target, rdrop_weight, 0.1, PAD, chunk)
    assert_same(found, mean + rdrop_weight * symmetric_divergence(x, y), inputs)


def test_large_logits_stay_finite_in_float32():
    states = torch.tensor([[1.0, 0.0], [0.0, 1.0]]) * 300
    weight = torch.tensor([[1.0, -1.0], [-1.0, 1.0], [0.0, 0.0], [0.5, 0.5]])
    inputs = [x.requires_grad_() for x in (states, weight, torch.zeros(4))]
    target = torch.tensor([1, 3])
    fast, slow = smoothed_cross_entropy(*inputs, target, 0.1), readable(*inputs, target, 0.1)
    torch.testing.assert_close(fast, slow)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(fast, inputs))


def test_many_tokens_add_up_in_half_precision():
    torch.manual_seed(0)
    half = [torch.randn(*shape).bfloat16() for shape in ((5000, 4), (9, 4), (9,))]
    target = torch.randint(9, (5000,))
    found = smoothed_cross_entropy(*half, target, 0.1, PAD, chunk=20)
    assert found.dtype == torch.bfloat16
    assert float(found) == pytest.approx(float(readable(*(x.double() for x in half), target, 0.1)), rel=0.01)


def test_no_more_than_a_chunk_of_logits_is_held():
    (_, *inputs), target = problem(50)
    shapes = []

    class Spy(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                shapes.append(tuple(result.shape))
            return result

    with Spy():
        smoothed_cross_entropy(*inputs, target, 0.1, PAD, 7).backward()
    assert max(shape[0] for shape in shapes if shape[1:] == (SIZE,)) == 7


def test_a_second_derivative_is_an_error_rather_than_a_wrong_number():
    (_, *inputs), target = problem(5)
    loss = smoothed_cross_entropy(*inputs, target, 0.1)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(loss, inputs, create_graph=True)  # for a penalty on the gradient, say
