"""The settings of training: their limits, and the schedule that they give."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from annotated.training.config import TrainingConfig
from annotated.training.schedule import noam_scheduler, rate


@pytest.mark.parametrize(
    "settings",
    [{"epochs": 0}, {"smoothing": 1.0}, {"clip": float("nan")}, {"learning_rate": 0.0}, {"average": True}],
)
def test_impossible_settings_are_named(settings):
    with pytest.raises(ValueError, match=f"^{next(iter(settings))} must be"):
        TrainingConfig(**settings)


@pytest.mark.parametrize(("preset", "d_model"), [("base", 512), ("big", 1024)])
def test_the_papers_presets_have_its_schedule(preset, d_model):
    settings = getattr(TrainingConfig, preset)()
    warmup = settings.warmup_in(settings.max_steps)
    assert warmup == 4000
    assert settings.learning_rate == pytest.approx(rate(4000, d_model, 1.0, 4000), rel=1e-3)


@given(st.integers(1, 10**6), st.integers(1, 10**5))
def test_a_warmup_that_is_not_given_ends_within_the_run(updates, given):
    warmup = TrainingConfig().warmup_in(updates)
    assert 1 <= warmup <= max(1, updates // 2)
    assert TrainingConfig(warmup=given).warmup_in(updates) == given


@given(st.integers(1, 10**6), st.integers(1, 4096), st.floats(0.01, 10), st.integers(1, 10**5))
def test_the_rate_is_equation_3(step, model_size, factor, warmup):
    rising = factor * step / (math.sqrt(model_size) * warmup * math.sqrt(warmup))
    falling = factor / math.sqrt(model_size * step)
    expected = rising if step < warmup else falling
    assert math.isclose(rate(step, model_size, factor, warmup), expected, rel_tol=1e-12)


def test_the_nth_update_moves_by_the_rate_of_step_n():
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scheduler = noam_scheduler(optimizer, model_size=16, factor=2.0, warmup=4)
    for n in range(1, 10):
        before = weight.item()
        weight.grad = torch.ones_like(weight)
        optimizer.step()  # moves by just the rate
        scheduler.step()
        assert before - weight.item() == pytest.approx(rate(n, 16, 2.0, 4), rel=1e-12)


def test_another_learning_rate_would_scale_the_schedule_and_is_refused():
    with pytest.raises(ValueError, match=r"lr=1\.0, not 0\.5"):
        noam_scheduler(torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=0.5), 512)
