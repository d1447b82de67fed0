"""Look-ups becoming soft, and what dividing by sqrt(d_k) does: the charts, their data, slider and axes."""

import math

import pytest
import torch

from annotated.plots import explore_scaling, plot_by_width, plot_soft_lookup
from annotated.plots.scaling import PLAIN, SCALED

WIDTHS, KEYS = [2, 4, 8], ["der", "Hund"]
SCORES = torch.tensor([[1.0, -1.0], [2.0, 0.0], [8.0, -8.0]])
BITS = {PLAIN: torch.tensor([0.9, 0.5, 0.1]), SCALED: torch.tensor([0.9, 0.8, 0.7])}
MOVES = {PLAIN: torch.tensor([0.3, 0.02, 0.0004]), SCALED: torch.tensor([0.3, 0.3, 0.2])}


@pytest.fixture
def spec() -> dict:
    return explore_scaling(WIDTHS, SCORES, KEYS, BITS, MOVES, start=4).to_dict()


def data(spec: dict, panel: dict) -> list[dict]:
    return spec["datasets"][panel["data"]["name"]]


def test_weights_are_the_softmax_of_the_scores_plain_and_scaled(spec: dict) -> None:
    rows = data(spec, spec["concat"][0])
    assert len(rows) == len(WIDTHS) * len(KEYS) * 2
    for row in rows:
        products = SCORES[WIDTHS.index(row["d_k"])].tolist()
        divisor = math.sqrt(row["d_k"]) if row["version"] == SCALED else 1
        exponentials = [math.exp(product / divisor) for product in products]
        assert row["key"] == KEYS[row["position"]]
        assert row["score"] == pytest.approx(products[row["position"]] / divisor, abs=1e-4)
        assert row["weight"] == pytest.approx(exponentials[row["position"]] / sum(exponentials), abs=1e-4)


def test_curves_are_what_was_given(spec: dict) -> None:
    rows = data(spec, spec["concat"][1])
    assert len(rows) == 6
    for row in rows:
        position = WIDTHS.index(row["d_k"])
        assert row["entropy"] == pytest.approx(BITS[row["version"]][position].item(), abs=1e-4)
        assert row["gradient"] == pytest.approx(MOVES[row["version"]][position].item(), rel=1e-3)


def test_the_slider_goes_through_all_widths_and_starts_where_told(spec: dict) -> None:
    (slider,) = spec["params"]
    assert (slider["name"], slider["value"]) == ("exponent", 2)
    assert {2**n for n in range(slider["bind"]["min"], slider["bind"]["max"] + 1)} == set(WIDTHS)
    assert slider["bind"]["step"] == 1


def test_the_slider_moves_every_panel(spec: dict) -> None:
    scores, entropy, weights, gradient = spec["concat"]
    moved = [scores, weights, entropy["layer"][0], gradient["layer"][0]]
    assert [panel["transform"] for panel in moved] == [[{"filter": "datum.d_k == pow(2, exponent)"}]] * 4
    assert "exponent" in scores["title"]["text"]["expr"]


def test_panels_have_titles_and_axes_their_units(spec: dict) -> None:
    scores, entropy, weights, gradient = spec["concat"]
    assert spec["title"] == "Scores becoming weights as d_k grows"
    named = [(p["encoding"]["x"]["title"], p["encoding"]["y"]["title"]) for p in (scores, weights)]
    assert named == [("key", "score"), ("key", "weight")]
    curves = [panel["layer"][1]["encoding"] for panel in (entropy, gradient)]
    assert [c["y"]["title"] for c in curves] == ["bits", "norm of the Jacobian"]
    assert [c["x"]["scale"]["type"] for c in curves] == ["log", "log"]
    assert curves[1]["y"]["scale"]["type"] == "log"
    assert curves[1]["y"]["axis"]["values"] == pytest.approx([1e-4, 1e-3, 1e-2, 1e-1, 1.0])
    assert scores["encoding"]["x"]["axis"]["labelExpr"] == '["der", "Hund"][datum.value]'


@pytest.mark.parametrize("widths", [[], [3, 6, 12], [2, 4, 16], [0, 1, 2], [8, 16, 32]])
def test_widths_that_a_slider_of_powers_cannot_reach_are_refused(widths: list[int]) -> None:
    with pytest.raises(ValueError, match="powers of 2 without a gap, 4 among them"):
        explore_scaling(widths, SCORES, KEYS, BITS, MOVES, start=4)


def test_scores_of_other_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"need scores \(3, 2\), not \(2, 3\)"):
        explore_scaling(WIDTHS, SCORES.T, KEYS, BITS, MOVES, start=4)


@pytest.mark.parametrize("curves", [{PLAIN: BITS[PLAIN]}, {**BITS, SCALED: BITS[SCALED][:2]}])
def test_curves_of_other_names_or_sizes_are_refused(curves: dict[str, torch.Tensor]) -> None:
    with pytest.raises(ValueError, match="3 values each"):
        explore_scaling(WIDTHS, SCORES, KEYS, curves, MOVES, start=4)
    with pytest.raises(ValueError, match="3 values each"):
        explore_scaling(WIDTHS, SCORES, KEYS, BITS, curves, start=4)


def test_measured_curves_stand_on_log_axes_over_the_widths() -> None:
    curves = {"one": {"mean": torch.tensor([1.0, 2.0, 3.0]), "median": torch.tensor([0.5, 0.1, 0.2])}}
    ax = plot_by_width(WIDTHS, curves, ylabel="norm", title="Measured")
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("d_k", "norm", "Measured")
    drawn = {line.get_label(): line.get_ydata() for line in ax.lines}
    assert list(drawn) == ["one: mean", "one: median"]
    for line, curve in zip(ax.lines, curves["one"].values(), strict=True):
        assert line.get_xdata().tolist() == WIDTHS
        assert line.get_ydata() == pytest.approx(curve.tolist())


def test_a_kind_has_one_colour_and_its_curves_differ_in_dashes() -> None:
    curve = torch.ones(3)
    ax = plot_by_width(WIDTHS, {"a": {"x": curve, "y": curve}, "b": {"x": curve, "y": curve}})
    ax_, ay, bx, by = ax.lines
    assert ax_.get_color() == ay.get_color() != bx.get_color() == by.get_color()
    assert ax_.get_linestyle() == bx.get_linestyle() != ay.get_linestyle() == by.get_linestyle()


def test_a_curve_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="a, x: 2 values for 3 widths"):
        plot_by_width(WIDTHS, {"a": {"x": torch.ones(2)}})


def test_a_soft_lookup_shows_table_and_answers() -> None:
    asked = [0.0, 1.0, 2.0]
    answers = {"soft": torch.tensor([5.0, 5.0, 5.0]), "sharp": torch.tensor([4.0, 4.0, 6.0])}
    ax = plot_soft_lookup([0, 2], [4, 6], asked, answers, xlabel="hour", ylabel="°C")
    lines = {line.get_label(): line.get_xydata().tolist() for line in ax.lines}
    assert lines == {
        "soft": [[0, 5], [1, 5], [2, 5]],
        "sharp": [[0, 4], [1, 4], [2, 6]],
        "in the table": [[0, 4], [2, 6]],
    }
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("hour", "°C")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(lines)


@pytest.mark.parametrize(("values", "answer"), [([4], [1.0, 2.0]), ([4, 6], [1.0])])
def test_a_lookup_of_unequal_lengths_is_refused(values: list[float], answer: list[float]) -> None:
    with pytest.raises(ValueError, match="needs a value"):
        plot_soft_lookup([0, 2], values, [0.0, 1.0], {"soft": torch.tensor(answer)})
