"""What the picture of the learning rate shows is what is computed."""

import pytest

from annotated.plots import plot_schedules
from annotated.schedule import rate

pytest.importorskip("matplotlib.pyplot")


def test_every_schedule_peaks_at_its_dot() -> None:
    ax = plot_schedules([(512, 4000), (128, 150)], steps=10000)
    curves, peaks = ax.lines[::2], ax.lines[1::2]
    for curve, peak, (d_model, warmup) in zip(curves, peaks, [(512, 4000), (128, 150)], strict=True):
        steps, rates = curve.get_data()
        assert rates[0] == rate(1, d_model, 1.0, warmup)
        assert steps[-1] == 10000
        assert (steps[rates.argmax()], rates.max()) == (peak.get_xdata()[0], peak.get_ydata()[0])
        assert peak.get_xdata()[0] == warmup
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "d_model 512, warm-up 4,000",
        "d_model 128, warm-up 150",
    ]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("update", "learning rate")
    assert len(plot_schedules([(512, 4000), (512, 1000)], steps=1000).lines) == 3  # one peak is beyond


def test_each_of_many_schedules_has_a_color_of_its_own() -> None:
    curves = plot_schedules([(512, warmup) for warmup in range(5000, 17000, 1000)], steps=100).lines
    assert len({curve.get_color() for curve in curves}) == 12


def test_settings_that_are_no_pairs_and_no_steps_are_refused() -> None:
    with pytest.raises(TypeError, match=r"give \[\(512, 4000\)\]"):
        plot_schedules((512, 4000))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="steps must be at least 1, not -3"):
        plot_schedules([(512, 4000)], steps=-3)
