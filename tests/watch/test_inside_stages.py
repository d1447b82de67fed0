"""Every stage that the page shows is PyTorch's, caught by hooks; also with a part left out."""

import math
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from page_models import TEXTS, page, small_translator
from torch import Tensor, nn

from annotated.attention_maps import capture_attention
from annotated.evaluation_mode import evaluating
from annotated.transformer.attention import MultiHeadedAttention, subsequent_mask
from annotated.transformer.layers import Embeddings, SublayerConnection
from annotated.transformer.model import EncoderDecoder, Generator
from annotated.transformer.positions import PositionalEncoding

LOWEST = torch.finfo(torch.float32).min  # in the place of minus infinity, which JSON lacks


def hooked(
    model: EncoderDecoder, source: list[int], target: list[int], causal: bool = True
) -> dict[str, Tensor]:
    """Every stage of a forward pass, caught by PyTorch's hooks: the layer's name -> (positions, values).

    In double precision: of two float32 results neither could be told right.
    """
    model = deepcopy(model).double()
    found: dict[str, Tensor] = {}
    inputs = {"linears.3": "heads", "w_2": "fired", "norm": "sum"}

    def catch(name: str, given: tuple[Tensor, ...], output: Tensor) -> None:
        found[name] = output[0]
        for own, stage in inputs.items():
            if name.endswith(own):
                found[name.removesuffix(own) + stage] = given[0][0]

    kinds = nn.Linear | nn.LayerNorm | Generator | Embeddings | PositionalEncoding
    handles = [
        module.register_forward_hook(lambda _, given, output, name=name: catch(name, given, output))
        for name, module in model.named_modules()
        if isinstance(module, kinds)
    ]
    mask = subsequent_mask(len(target)) if causal else None
    with evaluating(model), capture_attention(model) as maps:
        states = model(torch.tensor([source]), torch.tensor([target]), None, mask)
        model.generator(states)
    for handle in handles:
        handle.remove()
    for side, module in (("src_embed", model.src_embed[1]), ("tgt_embed", model.tgt_embed[1])):
        found[f"{side}.1.pe"] = module.pe[: len(found[f"{side}.0"])]
    names = {"encoder": "encoder.layers.{}.self_attn", "decoder": "decoder.layers.{}.self_attn"}
    names["cross"] = "decoder.layers.{}.src_attn"
    for (kind, layer), looked in maps.items():
        name = names[kind].format(layer)
        q, k = (found[f"{name}.linears.{i}"].unflatten(-1, (model.config.h, -1)) for i in (0, 1))
        products = torch.einsum("thd,shd->ths", q, k)
        scores = products / math.sqrt(q.size(-1))
        hidden = ~mask[0] if kind == "decoder" and causal else torch.zeros(len(q), len(k), dtype=torch.bool)
        stages = {"products": products, "scores": scores, "weights": looked[0].transpose(0, 1)}
        stages["masked"] = scores.masked_fill(hidden.unsqueeze(1), LOWEST)
        found |= {f"{name}.{stage}": rows.flatten(1) for stage, rows in stages.items()}
    return {name: rows.float() for name, rows in found.items()}


def assert_same(trace: dict[str, list], expected: dict[str, Tensor]) -> None:
    assert trace.keys() == expected.keys()
    for name, rows in trace.items():
        torch.testing.assert_close(
            torch.tensor(rows),
            expected[name],
            atol=1e-4,
            rtol=1e-5,
            msg=lambda text, name=name: f"{name}: {text}",
        )


@pytest.mark.parametrize("settings", [{}, {"N": 1, "h": 1}, {"d_model": 10, "h": 2, "d_ff": 7}])
def test_every_stage_is_pytorchs(tmp_path: Path, settings: dict) -> None:
    translator = small_translator(**settings)
    pair = {"source": translator.encode(TEXTS[0]), "target": [0, *translator.tgt_tokenizer.encode(TEXTS[1])]}
    [trace] = page(translator, tmp_path)(("trace", pair))
    assert_same(trace, hooked(translator.model, **pair))


PARTS = ["positions", "mask", "scale", "residual", "networks", "encoder.layers.1.feed_forward"]


@pytest.mark.parametrize("part", [*PARTS, "decoder.layers.1.src_attn 2"])
def test_a_part_left_out_is_left_out_as_in_pytorch(
    tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = small_translator()
    model = translator.model
    pair = {"source": translator.encode(TEXTS[0]), "target": [0, *translator.tgt_tokenizer.encode(TEXTS[1])]}
    whole, [trace] = hooked(model, **pair), page(translator, tmp_path)(("trace", {**pair, "leftOut": [part]}))
    attentions = [module for module in model.modules() if isinstance(module, MultiHeadedAttention)]
    with torch.no_grad():
        if part == "positions":
            model.src_embed[1].pe.zero_()
            model.tgt_embed[1].pe.zero_()
        if part == "scale":
            for module in attentions:  # scores are divided by the root of d_k, so queries are multiplied
                for parameter in module.linears[0].parameters():
                    parameter.mul_(module.d_k**0.5)
        if part == "residual":
            forward = lambda self, x, sublayer: self.norm(sublayer(x))  # noqa: E731
            monkeypatch.setattr(SublayerConnection, "forward", forward)
        if part in ("networks", "encoder.layers.1.feed_forward"):
            networks = [
                module
                for name, module in model.named_modules()
                if name.endswith(part if "." in part else "feed_forward")
            ]
            assert len(networks) == (1 if "." in part else 4)
            for network in networks:  # its last linear map gives zeros, which are added
                network.w_2.weight.zero_()
                network.w_2.bias.zero_()
        if part.endswith(" 2"):
            module = model.decoder.layers[1].src_attn
            module.linears[3].weight[:, 2 * module.d_k :] = 0
    broken = hooked(model, **pair, causal=part != "mask")
    layers = [name for name in broken if name.endswith(("norm", "linears.3", "w_2", "generator", "weights"))]
    for name in layers:
        found = torch.tensor(trace[name], dtype=torch.float32)
        torch.testing.assert_close(found, broken[name], atol=1e-4, rtol=1e-5)
    assert not torch.allclose(broken["generator"], whole["generator"], atol=1e-2)


def test_without_the_mask_a_search_reads_everything_anew(tmp_path: Path) -> None:
    """Each step's states come from the whole prefix, in which earlier positions see later ones."""
    translator = small_translator()
    settings = {"beam": 1, "alpha": 0.6, "prefix": [], "leftOut": ["mask"]}
    [found] = page(translator, tmp_path)(("translate", {"sentence": TEXTS[0], **settings}))
    source, total = translator.encode(TEXTS[0]), 0.0
    for i, step in enumerate(found["steps"][:10]):
        log_probs = hooked(translator.model, source, [0, *found["ended"][0]["tokens"][:i]], causal=False)[
            "generator"
        ]
        total += log_probs[-1, step[0]["token"]].item()
        assert step[0]["logProb"] == pytest.approx(total, abs=1e-3)


@pytest.mark.parametrize("left_out", [[], ["mask"], ["positions"]])
def test_the_page_shows_the_probabilities_with_which_it_wrote(tmp_path: Path, left_out: list[str]) -> None:
    """Also without the mask, where a decoder that reads the finished sentence would give others."""
    settings = {"beam": 2, "alpha": 0.6, "prefix": [], "leftOut": left_out}
    [look] = page(small_translator(), tmp_path)(("look", {"sentence": TEXTS[0], **settings}))
    best = look["ended"][0]
    assert look["written"] == [*best["tokens"], 1]
    assert sum(look["logProbs"]) == pytest.approx(best["logProb"], abs=1e-3)
