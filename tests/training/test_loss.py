import math

import pytest
import torch
from torch.nn import functional as F

from annotated.training.loss import (
    LabelSmoothing,
    rdrop_cross_entropy,
    smoothed_cross_entropy,
    symmetric_divergence,
)

PAD, SIZE, WIDTH = 2, 11, 4


def case(n=9, seed=0):
    """States of two passes, projection and targets, of which some are padding; float64, wanting gradients."""
    torch.manual_seed(seed)
    first = torch.randn(n, WIDTH, dtype=torch.float64)
    second = first + 0.5 * torch.randn(n, WIDTH, dtype=torch.float64)
    weight, bias = torch.randn(SIZE, WIDTH, dtype=torch.float64), torch.randn(SIZE, dtype=torch.float64)
    target = torch.randint(SIZE, (n,))
    target[::4] = PAD
    return [x.requires_grad_() for x in (first, second, weight, bias)], target


def readable(first, second, weight, bias, target, rdrop_weight, smoothing):
    """The same from what each word means: whole rows of log-probabilities, gradients left to torch."""
    x, y = (F.linear(states, weight, bias).log_softmax(dim=-1) for states in (first, second))
    criterion, real = LabelSmoothing(SIZE, PAD, smoothing), target != PAD
    return (criterion(x, target) + criterion(y, target)) / 2 + rdrop_weight * symmetric_divergence(
        x[real], y[real]
    )


@pytest.mark.parametrize("chunk", [1, 4, 100])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rdrop_weight", [0.3, 2.5])
def test_the_fast_form_is_the_readable_one(chunk, smoothing, rdrop_weight):
    inputs, target = case()
    expected = readable(*inputs, target, rdrop_weight, smoothing)
    found = rdrop_cross_entropy(*inputs, target, rdrop_weight, smoothing, PAD, chunk)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    wanted, gradients = (torch.autograd.grad(3 * loss, inputs) for loss in (expected, found))
    for ours, theirs in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_divergence_by_hand():
    x, y = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]]).log()
    # (0.25 ln(0.5 / 0.25) - 0.25 ln(0.5 / 0.75)) / 2
    assert symmetric_divergence(x, y).item() == pytest.approx(math.log(3) / 8)
    torch.testing.assert_close(symmetric_divergence(x, y), symmetric_divergence(y, x))


def test_two_passes_that_agree_cost_what_one_does():
    (first, _, weight, bias), target = case()
    one = smoothed_cross_entropy(first, weight, bias, target, 0.1, PAD)
    torch.testing.assert_close(rdrop_cross_entropy(first, first, weight, bias, target, 2.5, 0.1, PAD), one)


@pytest.mark.parametrize("frozen", [(0, 1), (2, 3), (0, 1, 2, 3)])
def test_the_gradients_that_are_wanted_do_not_depend_on_the_others(frozen):
    inputs, target = case()
    wanted = [x for i, x in enumerate(inputs) if i not in frozen]
    some = [x.detach() if i in frozen else x for i, x in enumerate(inputs)]
    found = rdrop_cross_entropy(*some, target, 1.0, 0.1, PAD)
    expected = readable(*inputs, target, 1.0, 0.1)
    torch.testing.assert_close(found, expected)
    assert found.requires_grad == bool(wanted)
    if wanted:
        gradients, right = (torch.autograd.grad(loss, wanted) for loss in (found, expected))
        for ours, theirs in zip(gradients, right, strict=True):
            torch.testing.assert_close(ours, theirs)
