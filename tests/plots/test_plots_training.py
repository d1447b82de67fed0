"""What the pictures of training show is what was measured, and what does not fit is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from annotated.plots.attention import plot_growth
from annotated.plots.training import (
    plot_accuracies,
    plot_gradient_norms,
    plot_learning_curves,
    plot_loss,
    plot_losses,
    plot_schedules,
    plot_true_dist,
)
from annotated.transformer.loss import LabelSmoothing
from annotated.transformer.schedule import rate

plt = pytest.importorskip("matplotlib.pyplot")
alt = pytest.importorskip("altair")

QUERIES, KEYS = ["1", "7", "3"], ["1", "7", "3", "9"]
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


def test_a_run_without_validation_or_floor_has_one_curve() -> None:
    losses, _ = plot_learning_curves([RUN[0], RUN[1]])
    assert len(losses.get_lines()) == 1
    assert len(losses.get_legend().get_texts()) == 1


def test_a_run_is_named_by_its_folder_or_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(record) + "\n" for record in RUN), encoding="utf-8")
    wanted = [points(line) for ax in plot_learning_curves(RUN) for line in ax.get_lines()]
    for run in (tmp_path, str(tmp_path), log):
        assert [points(line) for ax in plot_learning_curves(run) for line in ax.get_lines()] == wanted
    before = plt.get_fignums()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        plot_learning_curves("nowhere")
    with pytest.raises(ValueError, match="has a 'loss'"):
        plot_learning_curves([{"step": 1, "rate": 0.1}])
    assert plt.get_fignums() == before  # no empty figure


def test_learning_curves_go_where_they_are_told() -> None:
    axes = plt.subplots(1, 2)[1]
    assert list(plot_learning_curves(RUN, axes=axes)) == list(axes)


def test_losses_are_means_of_the_updates_up_to_each_point() -> None:
    ax = plt.subplots()[1]
    assert plot_losses({"one": [4.0, 2.0, 0.0, 4.0], "other": [1.0, 3.0]}, window=2, ax=ax) is ax
    one, other = ax.get_lines()
    assert points(one) == [(2, 3.0), (3, 1.0), (4, 2.0)]
    assert points(other) == [(2, 2.0)]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["one", "other"]
    assert one.get_linestyle() != other.get_linestyle()


def test_losses_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(ValueError, match="short: 2 losses are too few for means of 10"):
        plot_losses({"short": [1.0, 2.0]})
    with pytest.raises(ValueError, match="from 1 to 5 runs can be told apart, not 6"):
        plot_losses({str(n): [1.0] * 10 for n in range(6)})
    with pytest.raises(ValueError, match="not 0"):
        plot_losses({})


@pytest.mark.parametrize("missing", ["loss", "rate"])
def test_a_measurement_that_no_record_has_is_named(missing: str) -> None:
    records = [{key: value for key, value in record.items() if key != missing} for record in RUN]
    with pytest.raises(ValueError, match=f"none of the 4 records has a '{missing}'"):
        plot_learning_curves(records)


def test_accuracies_are_percent_beside_what_independent_mistakes_leave() -> None:
    tokens, rows, expected = plot_accuracies(RUN, length=2).get_lines()
    assert points(tokens) == [(50, 50), (100, 90), (150, 100)]
    assert points(rows) == [(50, 20), (100, 70), (150, 100)]
    assert expected.get_ydata().tolist() == pytest.approx([25, 81, 100])


def test_accuracies_need_a_length_and_measurements() -> None:
    with pytest.raises(ValueError, match="at least 1 token, not 0"):
        plot_accuracies(RUN, length=0)
    with pytest.raises(ValueError, match="'token_accuracy'"):
        plot_accuracies([RUN[2]], length=2)


def heads(seed: int) -> torch.Tensor:
    """Weights (layers 2, h 3, queries, keys)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(2, 3, len(QUERIES), len(KEYS), generator=generator).softmax(dim=-1)


@pytest.mark.parametrize("count", [1, 3, 4])
def test_growth_shows_each_update_on_one_scale(count: int) -> None:
    snapshots = {10 * i: heads(i)[0, 0] for i in range(count)}
    axes = plot_growth(snapshots, QUERIES, KEYS)
    assert [ax.get_title() for ax in axes] == [f"update {step}" for step in snapshots]
    for ax, weights in zip(axes, snapshots.values(), strict=True):
        torch.testing.assert_close(torch.tensor(ax.images[0].get_array()), weights)
        assert ax.images[0].get_clim() == (0, 1)
        assert [label.get_text() for label in ax.get_xticklabels()] == KEYS
        assert [label.get_text() for label in ax.get_yticklabels()] == QUERIES


def test_growth_refuses_nothing_and_swapped_axes() -> None:
    with pytest.raises(ValueError, match="at least one snapshot"):
        plot_growth({}, QUERIES, KEYS)
    with pytest.raises(ValueError, match="grid of shape"):
        plot_growth({0: heads(0)[0, 0].T}, QUERIES, KEYS)


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


def test_a_curve_for_each_kind_of_model() -> None:
    ax = plot_gradient_norms({"post-norm": [0.1, 1.0, 10.0], "pre-norm": [2.0, 1.5, 1.0]})
    assert [list(line.get_ydata()) for line in ax.lines] == [[0.1, 1.0, 10.0], [2.0, 1.5, 1.0]]
    assert all(list(line.get_xdata()) == [1, 2, 3] for line in ax.lines)
    assert ax.get_yscale() == "log"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["post-norm", "pre-norm"]
    # Told apart by more than colour.
    assert len({line.get_marker() for line in ax.lines}) == 2


NAMES = ["<s>", "</s>", "<blank>", "dog", "cat"]


def test_the_loss_has_its_floor_at_the_targets_entropy() -> None:
    """Cross-entropy = entropy + what LabelSmoothing gives, at every confidence that is drawn."""
    size, smoothing = 10, 0.2
    ax = plot_loss(size, [smoothing])
    curve, floor, best = ax.lines
    confidence, losses = curve.get_data()
    rows = torch.from_numpy((1 - confidence) / (size - 2)).unsqueeze(1).repeat(1, size)
    rows[:, 3] = torch.from_numpy(confidence)
    criterion = LabelSmoothing(size, 0, smoothing)
    divergence = [criterion(row.log()[None], torch.tensor([3])).item() for row in rows]
    entropy = floor.get_ydata()[0]
    np.testing.assert_allclose(losses - entropy, divergence, atol=1e-7)
    assert losses.min() == pytest.approx(entropy, abs=1e-6)
    assert (best.get_xdata()[0], best.get_ydata()[0]) == (pytest.approx(0.8), entropy)


def test_without_smoothing_the_floor_is_zero() -> None:
    _, floor, best = plot_loss(10, [0.0]).lines
    assert floor.get_ydata()[0] == 0
    assert best.get_xdata()[0] == 1


def test_the_heatmap_is_what_the_loss_asked_for() -> None:
    criterion = LabelSmoothing(5, 2, 0.4)
    criterion(torch.zeros(3, 5), torch.tensor([3, 4, 2]))
    ax = plot_true_dist(criterion.true_dist, NAMES)
    np.testing.assert_allclose(ax.collections[0].get_array(), criterion.true_dist)
    assert [text.get_text() for text in ax.texts][:5] == ["0.13", "0.13", "0.00", "0.60", "0.13"]
    assert [label.get_text() for label in ax.get_xticklabels()] == NAMES
    assert ax.yaxis_inverted()  # the first position on top


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plot_schedules([]), "at least one"),
        (lambda: plot_schedules(512), "needs a warmup beside d_model=512"),
        (lambda: plot_schedules([(512, 4000)], steps=3999), "warmup=4000"),
        (lambda: plot_schedules([(0, 4000)]), "model_size"),
        (lambda: plot_gradient_norms({"dead": [1.0, 0.0]}), "'dead' has"),
        (lambda: plot_gradient_norms({"none": []}), "'none' has"),
        (lambda: plot_loss(2, [0.1]), "size 2"),
        (lambda: plot_true_dist(torch.zeros(3, 4), NAMES), "need 4 names"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()
