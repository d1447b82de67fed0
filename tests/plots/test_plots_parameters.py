"""The parameter budget, against models that were built."""

from itertools import product

import pytest
from torch import nn

from annotated.plots.parameters import count_parameters
from annotated.transformer.model import EncoderDecoder, TransformerConfig

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
