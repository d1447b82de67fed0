"""CTranslate2: a model written for it scores as ours does; its search is in test_ctranslate2_engine.py."""

import pytest
import torch
from interop_models import ENGLISH, GERMAN, MISSING, logits, subwords, toy

from annotated.interop import to_ctranslate2
from annotated.storage.model_folder import weights

SETTINGS = {
    "the paper's": {"tied_embeddings": "all"},
    "pre-norm, learned positions": {"norm_first": True, "positions": "learned", "max_len": 99},
    "GELU, one layer": {"activation": "gelu", "N": 1, "tied_embeddings": "target"},
    "swish, large eps": {"activation": "swish", "layer_norm_eps": 0.1, "tied_embeddings": "all"},
}
ctranslate2 = pytest.importorskip("ctranslate2", reason=MISSING.format("ctranslate2"))


@pytest.mark.parametrize("name", SETTINGS)
def test_every_token_is_scored_alike(name, tmp_path):
    """By its `score_batch` on given pairs: no search on either side."""
    joint = SETTINGS[name].get("tied_embeddings") == "all"
    src_tokenizer = subwords(ENGLISH, GERMAN) if joint else subwords(ENGLISH)
    tgt_tokenizer = src_tokenizer if joint else subwords(GERMAN)
    model = toy(len(src_tokenizer), len(tgt_tokenizer), **SETTINGS[name])
    to_ctranslate2(tmp_path / "model", model, src_tokenizer, tgt_tokenizer)
    theirs = ctranslate2.Translator(str(tmp_path / "model"))
    tgt = torch.randint(4, len(tgt_tokenizer), (7,)).tolist()
    src = src_tokenizer.encode(ENGLISH[1])
    pieces = [src_tokenizer.vocabulary[i] for i in src], [tgt_tokenizer.vocabulary[i] for i in tgt]
    [scored] = theirs.score_batch([pieces[0]], [pieces[1]])
    said = logits(model, torch.tensor([[*src, 1]]), torch.tensor([[0, *tgt]])).log_softmax(-1)
    expected = said[0].gather(1, torch.tensor([*tgt, 1]).unsqueeze(1)).flatten()
    torch.testing.assert_close(torch.tensor(scored.log_probs), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("quantization", ["float32", "int8"])
def test_our_model_stays_as_it_was(quantization, tmp_path):
    """CTranslate2 scales and rounds in place what it is handed."""
    tokenizer = subwords(ENGLISH, GERMAN)
    model = toy(len(tokenizer), len(tokenizer), tied_embeddings="all")
    before = {name: tensor.clone() for name, tensor in weights(model).items()}
    to_ctranslate2(tmp_path / "out", model, tokenizer, tokenizer, quantization)
    for name, tensor in weights(model).items():
        assert torch.equal(tensor, before[name]), name
