"""The parameter budget, against models that were built."""

from itertools import pairwise, product

import pytest
from torch import nn

from annotated.plots.parameters import count_parameters, plot_parameters
from annotated.transformer.model import EncoderDecoder, TransformerConfig

pytest.importorskip("matplotlib")

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


def test_each_bar_adds_up_to_its_model() -> None:
    configs = {
        "base": TransformerConfig.base(37000, 37000),
        "big": TransformerConfig.big(37000, 37000),
    }
    ax = plot_parameters(configs)
    for row, config in enumerate(configs.values()):
        bars = [container[row] for container in ax.containers]
        counts = count_parameters(config)
        assert [bar.get_width() * 1e6 for bar in bars] == pytest.approx(list(counts.values()))
        for left, right in pairwise(bars):
            assert right.get_x() == pytest.approx(left.get_x() + left.get_width())
    totals = [sum(count_parameters(config).values()) / 1e6 for config in configs.values()]
    assert [text.get_text() for text in ax.texts] == [f" {total:.1f} M" for total in totals]
    assert 63 < totals[0] < 65
    assert 210 < totals[1] < 215
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("parameters (millions)", "model")


def test_the_legend_leaves_out_what_cannot_be_seen() -> None:
    ax = plot_parameters({"base": TransformerConfig.base(37000, 37000)})
    shown = [text.get_text() for text in ax.get_legend().get_texts()]
    assert "feed-forward" in shown
    assert "output" not in shown  # its bias alone: 0.04 of 63 million


def test_no_model_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one model"):
        plot_parameters({})
