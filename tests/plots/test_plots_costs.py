"""Figures of measured costs, with their exponents; the roofline, with calls counted by hand."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from annotated.plots.costs import (
    Operands,
    byte_shares,
    count_parameters,
    fit_power,
    plot_against,
    plot_costs,
    plot_roofline,
)
from annotated.transformer.model import EncoderDecoder, TransformerConfig

pytest.importorskip("matplotlib")

SIZES = [64, 128, 256, 512, 1024]


@given(exponent=st.floats(-3, 3), factor=st.floats(1e-6, 1e3))
def test_a_power_law_is_found_again(exponent: float, factor: float) -> None:
    assert fit_power(SIZES, [factor * n**exponent for n in SIZES]) == pytest.approx(
        (factor, exponent), rel=1e-6, abs=1e-9
    )


def test_overhead_at_small_sizes_does_not_spoil_the_exponent() -> None:
    costs = [1.0, 1.0, 256**2 / 1e4, 512**2 / 1e4, 1024**2 / 1e4]
    ax = plot_costs({"layer": (SIZES, costs)}, "Time of one layer", fitted=3)
    points, fit = ax.lines
    assert list(points.get_ydata()) == costs
    assert list(fit.get_xdata()) == [256, 1024]
    assert list(fit.get_ydata()) == pytest.approx([costs[2], costs[4]])
    assert ax.get_legend().get_texts()[0].get_text() == "layer: exponent 2.00"
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("length (tokens)", "time (s)")
    assert list(ax.get_xticks()) == SIZES


@pytest.mark.parametrize(
    ("curve", "fitted"),
    [
        (([1, 2], [1.0]), 4),
        (([1, 1], [1.0, 2.0]), 4),
        (([1, 2], [1.0, 0.0]), 4),
        (([0, 2], [1.0, 1.0]), 4),
        (([1], [1.0]), 4),
        (([1, 2], [1.0, 2.0]), 1),
    ],
)
def test_what_has_no_exponent_is_refused(curve, fitted: int) -> None:
    with pytest.raises(ValueError, match="two"):
        plot_costs({"layer": curve}, "Time", fitted=fitted)


def test_what_was_not_reached_is_a_cross_at_the_limit() -> None:
    ax = plot_against(
        [1, 2, 4], {"quick": [3, 4, 5], "slow": [9, None, math.nan]}, "Updates", "d", "u", limit=50
    )
    quick, none, slow, crosses, way = ax.lines
    assert list(quick.get_ydata()) == [3, 4, 5]
    assert (slow.get_xdata()[0], slow.get_ydata()[0]) == (1, 9)
    assert (list(crosses.get_xdata()), list(crosses.get_ydata())) == ([2], [50])  # nobody asked for size 4
    assert (list(way.get_xdata()), list(way.get_ydata())) == ([1, 2], [9, 50])
    assert len(none.get_xdata()) == 0
    assert quick.get_color() != slow.get_color() == crosses.get_color()
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["quick", "slow"]


def test_a_missing_value_needs_a_limit_and_a_curve_needs_all_sizes() -> None:
    with pytest.raises(ValueError, match="no limit"):
        plot_against([1, 2], {"slow": [9, None]}, "Updates", "d", "u")
    with pytest.raises(ValueError):  # noqa: PT011 (zip says it)
        plot_against([1, 2], {"short": [9]}, "Updates", "d", "u")


TINY = {"N": 2, "d_model": 12, "d_ff": 20, "h": 3, "max_len": 7}


def built_counts(config: TransformerConfig) -> dict[str, int]:
    """The same components, counted in the modules of a model."""
    model = EncoderDecoder.from_config(config)
    seen: set[int] = set()

    def count(*modules: nn.Module) -> int:
        found = {id(p): p.numel() for module in modules for p in module.parameters() if id(p) not in seen}
        seen.update(found)
        return sum(found.values())

    decoder = model.decoder.layers
    return {
        "embeddings": count(model.tgt_embed[0], model.src_embed[0]),
        "positions": count(model.src_embed[1], model.tgt_embed[1]),
        "encoder self-attention": count(*(layer.self_attn for layer in model.encoder.layers)),
        "decoder self-attention": count(*(layer.self_attn for layer in decoder)),
        "cross-attention": count(*(layer.src_attn for layer in decoder)),
        "feed-forward": count(*(layer.feed_forward for layer in [*model.encoder.layers, *decoder])),
        "layer norms": count(*(module for module in model.modules() if isinstance(module, nn.LayerNorm))),
        "output": count(model.generator),
        "rest": count(model),
    }


@pytest.mark.parametrize(
    ("tied", "norm_first", "positions"),
    list(product(["all", "target", "none"], [False, True], ["sinusoidal", "learned"])),
)
def test_the_settings_alone_give_the_models_counts(tied: str, norm_first: bool, positions: str) -> None:
    settings = {"tied_embeddings": tied, "norm_first": norm_first, "positions": positions, **TINY}
    config = TransformerConfig(11, 11 if tied == "all" else 13, **settings)
    assert {**count_parameters(config), "rest": 0} == built_counts(config)


def test_a_product_an_addition_and_a_view_are_counted() -> None:
    x, y = torch.ones(2, 3), torch.ones(3, 4)
    with Operands() as found:
        (x @ y).t().add(1)
    assert found.calls == [(True, 2 * 2 * 3 * 4, 4 * (6 + 12 + 8)), (False, 8, 4 * (8 + 8))]
    assert (found.total(1), found.total(1, [True]), found.total(2, [False])) == (56, 48, 64)


def test_a_look_up_reads_its_rows_not_the_table() -> None:
    table = torch.ones(1000, 4)
    with Operands() as found:
        F.embedding(torch.tensor([1, 2]), table)
    assert found.calls == [(False, 8, 2 * 2 * 4 * 4)]


def test_fused_attention_counts_as_its_two_products() -> None:
    heads = torch.ones(3, 1, 2, 5, 16)
    with Operands() as found:
        F.scaled_dot_product_attention(*heads)
    assert found.total(1, [True]) == 2 * (2 * 2 * 5 * 5 * 16)


def test_what_is_written_to_a_place_given_is_counted_once() -> None:
    x, y = torch.ones(2, 3), torch.ones(2, 2)
    with Operands() as found:
        torch.mm(x, x.t(), out=y)
    assert found.calls == [(True, 2 * 2 * 3 * 2, 4 * (6 + 6 + 4))]


def test_what_returns_nothing_counts_what_it_changes_or_not_at_all() -> None:
    weight = torch.nn.Parameter(torch.ones(8))
    weight.grad = torch.ones(8)
    optimizer = torch.optim.SGD([weight], fused=True)
    with Operands() as found:
        weight.grad[0].item()
        optimizer.step()
    assert found.calls[-1][1] >= 8
    assert all(done for _, done, _ in found.calls)
    assert found.total(2) >= 3 * 8 * 4  # reads weight and gradient, writes the weight


def test_the_roof_bends_at_the_ridge_point_alone() -> None:
    x = torch.ones(4)
    with Operands() as found:
        x.add(1)  # 4 operations, 32 bytes
    roof, below = plot_roofline(60e9, 10e9, {"1 row": (0.5, 4e9)}, {"a step": found})
    assert list(roof.lines[0].get_xdata()) == [2**-5, 6, 2**9]
    assert list(roof.lines[0].get_ydata()) == pytest.approx([10 / 32, 60, 60])
    assert list(roof.lines[2].get_ydata()) == [4]
    assert [text.get_text() for text in roof.texts] == ["1 row"]
    assert [bars.get_label() for bars in below.containers] == ["a step"]
    assert byte_shares(found)[:4] == [0, 0, 1, 0]  # from 1/8 to 1/4
