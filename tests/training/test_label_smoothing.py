import math

import pytest
import torch
from torch.nn import functional as F

from annotated.training.loss import LabelSmoothing

PAD = 2
SMOOTHINGS = [0.0, 0.1, 0.4, 0.9]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def test_targets_by_hand():
    # Five symbols, padding is number 0: 0.4 is spread over the three that are neither right nor padding.
    criterion = LabelSmoothing(5, 0, 0.4)
    criterion(torch.zeros(3, 5), torch.tensor([2, 1, 0]))
    e = 0.4 / 3
    expected = [[0, e, 0.6, e, e], [0, 0.6, e, e, e], [0, 0, 0, 0, 0]]
    torch.testing.assert_close(criterion.true_dist, torch.tensor(expected))


def test_a_batch_of_sentences_counts_as_all_their_tokens():
    x, target = torch.randn(2, 3, 5).log_softmax(dim=-1), torch.tensor([[0, 1, 2], [3, 4, 2]])
    criterion = LabelSmoothing(5, PAD, 0.1)
    torch.testing.assert_close(criterion(x, target), criterion(x.flatten(0, 1), target.flatten()))


def test_divergence_by_hand():
    # Symbols 0 to 3, padding 2, smoothing 0.2: target (0.8, 0.1, 0, 0.1), prediction (0.5, 0.25, 0, 0.25).
    x = torch.tensor([[0.5, 0.25, 0.0, 0.25]], dtype=torch.float64).log()
    expected = 0.8 * math.log(0.8 / 0.5) + 2 * 0.1 * math.log(0.1 / 0.25)
    assert LabelSmoothing(4, PAD, 0.2)(x, torch.tensor([0])).item() == pytest.approx(expected, abs=1e-12)


def test_without_smoothing_it_is_cross_entropy():
    x, target = torch.randn(6, 5).log_softmax(dim=-1), torch.tensor([0, 1, 2, 3, 4, 2])
    expected = F.nll_loss(x, target, ignore_index=PAD, reduction="sum")
    torch.testing.assert_close(LabelSmoothing(5, PAD)(x, target), expected)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_it_is_cross_entropy_on_its_target_less_the_entropy_of_that(smoothing):
    logits, target = torch.randn(5, 7, dtype=torch.float64), torch.tensor([0, 1, 3, 6, 3])
    criterion = LabelSmoothing(7, PAD, smoothing)
    found = criterion(logits.log_softmax(dim=-1), target)
    entropy = torch.distributions.Categorical(criterion.true_dist).entropy().sum()
    cross = F.cross_entropy(logits, criterion.true_dist, reduction="sum")
    torch.testing.assert_close(found, cross - entropy)
    assert found > 0


def test_the_loss_is_0_only_for_the_smoothed_target_itself():
    target = torch.tensor([3, 0])
    criterion = LabelSmoothing(5, PAD, 0.3)
    criterion(torch.zeros(2, 5), target)
    perfect = criterion.true_dist.log()  # -inf for padding
    assert criterion(perfect, target).item() == pytest.approx(0, abs=1e-6)
    surer = torch.tensor([[0.01, 0.01, 0, 0.97, 0.01], [0.97, 0.01, 0, 0.01, 0.01]]).log()
    assert criterion(surer, target) > 0.1


def test_a_prediction_of_0_for_padding_does_no_harm():
    x = torch.tensor([[0.2, 0.3, 0.0, 0.5], [1.0, 0.0, 0.0, 0.0]]).log().requires_grad_()
    loss = LabelSmoothing(4, PAD, 0.1)(x, torch.tensor([0, PAD]))
    loss.backward()
    assert loss.isfinite()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(("size", "smoothing"), [(5, -0.1), (5, 1.0), (2, 0.1)])
def test_impossible_smoothing_is_refused(size, smoothing):
    with pytest.raises(ValueError, match="smoothing"):
        LabelSmoothing(size, PAD, smoothing)


def test_log_probabilities_of_another_vocabulary_are_refused():
    with pytest.raises(ValueError, match="of 5 symbols, not 6"):
        LabelSmoothing(5, PAD)(torch.randn(2, 6), torch.tensor([0, 1]))
