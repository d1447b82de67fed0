import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from annotated.training.schedule import noam_scheduler, rate


@given(st.integers(1, 10**6), st.integers(1, 4096), st.floats(0.01, 10), st.integers(1, 10**5))
def test_the_rate_is_equation_3(step, model_size, factor, warmup):
    rising = factor * step / (math.sqrt(model_size) * warmup * math.sqrt(warmup))
    falling = factor / math.sqrt(model_size * step)
    assert math.isclose(
        rate(step, model_size, factor, warmup), rising if step < warmup else falling, rel_tol=1e-12
    )


@given(st.integers(1, 2000), st.integers(1, 1024))
def test_the_peak_is_at_the_end_of_warmup(warmup, model_size):
    peak = rate(warmup, model_size, 2.0, warmup)
    assert math.isclose(peak, 2.0 / math.sqrt(model_size * warmup))
    assert all(rate(step, model_size, 2.0, warmup) < peak for step in (warmup - 1, warmup + 1) if step > 0)


def test_the_papers_base_model_peaks_at_7e_4():
    assert rate(4000, 512, 1.0, 4000) == pytest.approx(6.99e-4, rel=1e-3)


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
    parameters = [torch.nn.Parameter(torch.zeros(1))]
    with pytest.raises(ValueError, match=r"lr=1\.0, not 0\.5"):
        noam_scheduler(torch.optim.Adam(parameters, lr=0.5), 512)
