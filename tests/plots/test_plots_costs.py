"""Figures of measured costs, and parameters counted."""

import math
from itertools import product

import pytest
from torch import nn

from annotated.plots.costs import (
    count_parameters,
    plot_against,
)
from annotated.transformer.model import EncoderDecoder, TransformerConfig

pytest.importorskip("matplotlib")


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
