import math

import pytest
import torch
from hypothesis import given, strategies as st

from annotated.schedule import noam_scheduler, rate


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


@pytest.mark.parametrize(("model_size", "warmup"), [(512, 0), (512, -1), (0, 4000)])
def test_a_width_or_a_warm_up_of_nothing_is_refused(model_size, warmup):
    with pytest.raises(ValueError, match=f"above 0, not {model_size} and {warmup}"):
        rate(1, model_size, 1, warmup)


def test_a_step_before_the_first_is_refused():
    assert rate(0, 512, 1, 4000) == rate(1, 512, 1, 4000)
    with pytest.raises(ValueError, match="step must be at least 0, not -5"):
        rate(-5, 512, 1, 4000)


def test_another_learning_rate_would_scale_the_schedule_and_is_refused():
    with pytest.raises(ValueError, match=r"lr=1\.0, not 0\.5"):
        noam_scheduler(torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=0.5), 512)


def test_an_optimizer_that_is_loaded_goes_on_where_it_was():
    def begin():
        optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(1))], lr=1.0)
        return optimizer, noam_scheduler(optimizer, 512)

    def update(optimizer, scheduler):
        optimizer.param_groups[0]["params"][0].grad = torch.ones(1)
        optimizer.step()
        scheduler.step()

    (optimizer, scheduler), (loaded, _) = begin(), begin()
    for _ in range(3):
        update(optimizer, scheduler)
    loaded.load_state_dict(optimizer.state_dict())
    again = noam_scheduler(loaded, 512)
    again.load_state_dict(scheduler.state_dict())
    for pair in ((optimizer, scheduler), (loaded, again)):
        update(*pair)
    assert loaded.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
