"""The settings of training: their limits, and those of the paper."""

import pytest
from hypothesis import given, strategies as st

from annotated.schedule import rate
from annotated.translation.training.config import TrainingConfig


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
