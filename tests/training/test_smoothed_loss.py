"""The fast loss is the readable one, in value and gradient."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from annotated.training.loss import LabelSmoothing, smoothed_cross_entropy

PAD = 2
SMOOTHINGS = [0.0, 0.1, 0.4, 0.9]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def problem(n, size=9, width=4, pad=PAD):
    """States, output projection and targets (some of them padding), float64."""
    states, weight, bias = (
        torch.randn(*s, dtype=torch.float64) for s in ((n, width), (size, width), (size,))
    )
    target = torch.randint(size, (n,))
    target[::3] = pad
    return [x.requires_grad_() for x in (states, weight, bias)], target


def readable(states, weight, bias, target, smoothing, pad=PAD):
    log_probs = F.linear(states, weight, bias).log_softmax(dim=-1)
    return LabelSmoothing(len(weight), pad, smoothing)(log_probs, target)


@settings(deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(0, 12),
    st.integers(1, 14),
    st.sampled_from(SMOOTHINGS),
    st.integers(0, 8),
)
def test_the_fast_form_is_the_readable_one(seed, n, chunk, smoothing, pad):
    torch.manual_seed(seed)
    inputs, target = problem(n, pad=pad)
    slow = readable(*inputs, target, smoothing, pad)
    fast = smoothed_cross_entropy(*inputs, target, smoothing, pad, chunk)
    torch.testing.assert_close(fast, slow)
    by_fast, by_slow = torch.autograd.grad(3 * fast, inputs), torch.autograd.grad(3 * slow, inputs)
    for one, other in zip(by_fast, by_slow, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("form", [smoothed_cross_entropy, readable])
def test_a_batch_of_padding_alone_costs_nothing(form):
    inputs, target = problem(4)
    loss = form(*inputs, torch.full_like(target, PAD), 0.1)
    loss.backward()
    assert loss.item() == 0
    assert not any(x.grad.any() for x in inputs)


def test_large_logits_stay_finite_in_float32():
    states = torch.tensor([[1.0, 0.0], [0.0, 1.0]]) * 300
    weight = torch.tensor([[1.0, -1.0], [-1.0, 1.0], [0.0, 0.0], [0.5, 0.5]])
    inputs = [x.requires_grad_() for x in (states, weight, torch.zeros(4))]
    target = torch.tensor([1, 3])
    fast, slow = smoothed_cross_entropy(*inputs, target, 0.1), readable(*inputs, target, 0.1)
    torch.testing.assert_close(fast, slow)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(fast, inputs))


def test_no_more_than_a_chunk_of_logits_is_held():
    inputs, target = problem(50, size=40)
    shapes = []

    class Spy(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                shapes.append(tuple(result.shape))
            return result

    with Spy():
        smoothed_cross_entropy(*inputs, target, 0.1, PAD, 7).backward()
    assert (7, 40) in shapes
    assert all(shape[0] <= 7 for shape in shapes if len(shape) == 2 and shape[1] == 40)


def test_a_second_derivative_is_an_error_rather_than_a_wrong_number():
    inputs, target = problem(5)
    loss = smoothed_cross_entropy(*inputs, target, 0.1)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(loss, inputs, create_graph=True)  # for a penalty on the gradient, say
