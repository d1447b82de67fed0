"""Figures of the learning rate."""

import pytest
from charts import marks, texts

from annotated.plots.schedules import explore_schedule, plot_schedules, plot_used_rate
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


def test_the_run_lies_over_its_schedule() -> None:
    used = [(1, 0.1), (50, 0.2), (99, 0.3)]
    schedule, run = plot_used_rate(used, d_model=64, warmup=40, factor=2.0).lines
    assert list(zip(*run.get_data(), strict=True)) == used
    steps, rates = schedule.get_data()
    assert (steps[0], steps[-1]) == (1, 99)
    assert list(rates) == pytest.approx([rate(int(step), 64, 2.0, 40) for step in steps])


@pytest.mark.parametrize(
    "settings", [{}, {"d_model": 128, "warmup": 8000}, {"factor": 0.5}, {"warmup": 100, "factor": 4}]
)
def test_the_sliders_move_the_peak(settings: dict[str, float]) -> None:
    chosen = {"d_model": 512, "warmup": 4000, "factor": 1.0, **settings}
    peak = rate(chosen["warmup"], chosen["d_model"], chosen["factor"], chosen["warmup"])
    # Vega writes exponents with no zero before them, as 7.0e-4.
    number = f"{peak:.2e}".replace("e-0", "e-")
    chart = explore_schedule()
    assert f"peak {number} at {chosen['warmup']:,}" in texts(chart, **settings)
    first = next(mark for mark in marks(chart, **settings) if "update" in mark)
    expected = rate(1, chosen["d_model"], chosen["factor"], chosen["warmup"])
    assert float(first["learning rate"]) == pytest.approx(expected, rel=0.05)


def test_the_sliders_have_the_names_of_equation_3() -> None:
    spec = explore_schedule(256, 1000, 2.0).to_dict()
    assert {param["name"]: param["value"] for param in spec["params"]} == {
        "d_model": 256,
        "warmup": 1000,
        "factor": 2.0,
    }
    assert spec == explore_schedule(256, 1000, 2.0).to_dict()


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
        (lambda: plot_used_rate([], 512, 4000), "at least one"),
        (lambda: explore_schedule(warmup=30000), "steps=20000"),
        (lambda: explore_schedule(factor=0), "factor > 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()
