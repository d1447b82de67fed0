"""What the pictures of training show is what was measured, and what does not fit is refused."""

import json
from pathlib import Path

import pytest

from annotated.plots import plot_learning_curves, plot_schedules
from annotated.schedule import rate

plt = pytest.importorskip("matplotlib.pyplot")

RUN = [
    {"step": 50, "loss": 3.0, "rate": 0.5, "token_accuracy": 0.5, "exact_match": 0.2},
    {"step": 100, "loss": 2.0, "rate": 1.0, "token_accuracy": 0.9, "exact_match": 0.7},
    {"step": 120, "validation_loss": 1.5, "validation_accuracy": 0.4},
    {"step": 150, "loss": 1.0, "rate": 0.8, "token_accuracy": 1.0, "exact_match": 1.0},
]


def points(line: object) -> list[tuple[float, float]]:
    return [tuple(pair) for pair in line.get_xydata().tolist()]


def test_learning_curves_draw_each_measurement_at_its_update() -> None:
    losses, rates = plot_learning_curves(RUN, floor=0.25)
    training, validation, floor = losses.get_lines()
    assert points(training) == [(50, 3.0), (100, 2.0), (150, 1.0)]
    assert points(validation) == [(120, 1.5)]
    assert set(floor.get_ydata()) == {0.25}
    assert points(rates.get_lines()[0]) == [(50, 0.5), (100, 1.0), (150, 0.8)]
    assert losses.get_ylim()[0] == 0
    assert "nats" in losses.get_ylabel()


def test_a_run_is_named_by_its_folder_or_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("\n\n".join(map(json.dumps, RUN)) + "\n", encoding="utf-8")  # blank lines are passed over
    wanted = [points(line) for ax in plot_learning_curves(RUN) for line in ax.get_lines()]
    for run in (tmp_path, str(tmp_path), log):
        assert [points(line) for ax in plot_learning_curves(run) for line in ax.get_lines()] == wanted
    with pytest.raises(FileNotFoundError, match="nowhere"):
        plot_learning_curves("nowhere")


@pytest.mark.parametrize("missing", ["loss", "rate"])
def test_a_measurement_that_no_record_has_is_named(missing: str) -> None:
    records = [{key: value for key, value in record.items() if key != missing} for record in RUN]
    before = plt.get_fignums()
    with pytest.raises(ValueError, match=f"none of the 4 records has a '{missing}'"):
        plot_learning_curves(records)
    assert plt.get_fignums() == before  # no empty figure


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
