"""Figures of the learning rate."""

import pytest

from annotated.plots.schedules import plot_schedules
from annotated.transformer.schedule import rate

pytest.importorskip("matplotlib")


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


def test_one_schedule_needs_no_list() -> None:
    alone, listed = plot_schedules(512, 4000), plot_schedules([(512, 4000)])
    for one, other in zip(alone.get_lines(), listed.get_lines(), strict=True):
        assert one.get_xydata().tolist() == other.get_xydata().tolist()


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plot_schedules([]), "at least one"),
        (lambda: plot_schedules(512), "needs a warmup beside d_model=512"),
        (lambda: plot_schedules([(512, 4000)], steps=3999), "warmup=4000"),
        (lambda: plot_schedules([(0, 4000)]), "model_size"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()
