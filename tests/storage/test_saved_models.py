"""What is saved or exported is what was trained: a model that would come back as another is refused."""

from copy import deepcopy

import pytest
import torch
from interop_models import MISSING
from small_models import WORDS, make
from torch import nn
from torch.nn import functional as F

from annotated.attention_maps import capture_attention
from annotated.transformer.attention import MultiHeadedAttention
from annotated.transformer.model import EncoderDecoder
from annotated.translation.interop import to_ctranslate2, to_marian, to_torch
from annotated.translation.storage.model_folder import load_model, save_model
from annotated.translation.tokenizers import WordTokenizer


class Rotary(MultiHeadedAttention):
    """Another attention with the same parameters."""

    def attend(self, q, k, v, mask):
        return super().attend(q.roll(1, -1), k, v, mask)


def rotary(model):
    model.encoder.layers[0].self_attn = Rotary(2, 8)


def another_activation(model):
    model.encoder.layers[0].feed_forward.activation = F.gelu


def another_forward(model):
    model.generator.forward = lambda x: x


def untied(model):
    model.generator.proj.weight = nn.Parameter(model.generator.proj.weight.detach().clone())


def repeated(model):
    model.decoder.layers.append(model.decoder.layers[0])


def shared(model):
    model.decoder.layers[0].src_attn = model.decoder.layers[0].self_attn


def ruined(model):
    nn.init.constant_(model.generator.proj.bias, torch.nan)


@pytest.mark.parametrize(
    "change", [rotary, another_activation, another_forward, untied, repeated, shared, ruined]
)
def test_a_model_that_would_come_back_as_another_is_not_saved(change, tmp_path):
    model = make()
    change(model)
    with pytest.raises(ValueError, match="the model"):
        save_model(tmp_path / "m", model, WORDS, WORDS)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("export", [to_ctranslate2, to_marian, lambda _, model, *__: to_torch(model)])
def test_nor_is_it_exported(export, tmp_path):
    if export is to_ctranslate2:
        pytest.importorskip("ctranslate2", reason=MISSING.format("ctranslate2"))
    model = make()
    rotary(model)
    with pytest.raises(ValueError, match="would not come back"):
        export(tmp_path / "out", model, WORDS, WORDS)
    assert list(tmp_path.iterdir()) == []


def test_what_leaves_a_model_as_it_is_does_not_keep_it_from_being_saved(tmp_path):
    model, state = make(positions="sinusoidal", max_len=3).eval(), torch.get_rng_state()
    tokens = torch.tensor([[0, 4, 5, 4, 5, 1]])
    model.encoder.register_forward_hook(lambda *_: None)
    model.compile()
    with capture_attention(model):
        model.encode(tokens, None)  # longer than its table of sinusoids, which has grown
        save_model(tmp_path, model, WORDS, WORDS)
    model.generator.proj.bias.requires_grad_(False)
    save_model(tmp_path, deepcopy(model).train(), WORDS, WORDS)
    load_model(tmp_path)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_wrapper_or_a_model_built_by_hand_is_refused(tmp_path):
    model = make()
    parts = model.encoder, model.decoder, model.src_embed, model.tgt_embed, model.generator
    for other in (torch.compile(model), EncoderDecoder(*parts)):
        with pytest.raises(ValueError, match="the model"):
            save_model(tmp_path / "m", other, WORDS, WORDS)


def test_tokenizers_that_do_not_fit_are_not_saved(tmp_path):
    words = WordTokenizer(["a"], None)
    with pytest.raises(ValueError, match="a tokenizer of 5 tokens for a model of 6"):
        save_model(tmp_path / "m", make(), words, words)
