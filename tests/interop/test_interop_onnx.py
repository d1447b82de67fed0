"""ONNX: what onnxruntime computes from the files is what our model does, step by step."""

import pytest
import torch
from interop_models import MISSING, toy

from annotated.interop import to_onnx
from annotated.search.cache import DecoderCache
from annotated.tokenizers import WordTokenizer
from annotated.transformer.attention import padding_mask
from annotated.transformer.evaluating import evaluating

WORDS = WordTokenizer([f"w{i}" for i in range(9)], None)
V = len(WORDS)
SETTINGS = {
    "the paper's": {"tied_embeddings": "all", "N": 2},
    "positions that grow": {"max_len": 4, "N": 1},
    "pre-norm, learned positions": {"norm_first": True, "positions": "learned", "max_len": 30, "N": 1},
}


@pytest.fixture(scope="module", params=SETTINGS)
def pair(request, tmp_path_factory):
    """A model with random weights, and onnxruntime's sessions of its two files."""
    for package in ("onnx", "onnxscript"):
        pytest.importorskip(package, reason=MISSING.format(package))
    runtime = pytest.importorskip("onnxruntime", reason=MISSING.format("onnxruntime"))
    model = toy(V, V, activation="gelu", **SETTINGS[request.param])
    folder = tmp_path_factory.mktemp("onnx") / "out"
    to_onnx(folder, model, WORDS, WORDS)
    assert all(b".py" not in file.read_bytes() for file in folder.glob("*.onnx"))  # no paths of whose machine
    return model, *(runtime.InferenceSession(folder / f"{name}.onnx") for name in ("encoder", "decoder"))


def steps(pair, src, tokens):
    """Our log-probabilities after each token, and onnxruntime's, (steps, batch, vocabulary) each."""
    model, encoder, decoder = pair
    mask, N, h = padding_mask(src, 2), model.config.N, model.config.h
    memory, src_mask = encoder.run(None, {"src": src.numpy()})
    past = torch.zeros(N, 2, len(src), h, 0, model.config.d_model // h).numpy()
    cache, ours, theirs = DecoderCache(N), [], []
    with evaluating(model):
        encoded = model.encode(src, mask)
        for token in tokens.split(1, dim=1):
            ours.append(model.generator(model.decode(encoded, mask, token, None, cache)[:, -1]))
            inputs = {"token": token.numpy(), "past": past, "memory": memory, "src_mask": src_mask}
            log_probs, past = decoder.run(None, inputs)
            theirs.append(torch.from_numpy(log_probs))
    return torch.stack(ours), torch.stack(theirs)


@pytest.mark.parametrize(("batch", "src_len", "tgt_len"), [(2, 5, 6), (1, 1, 1), (5, 11, 3), (1, 25, 25)])
def test_every_step_is_equal_at_any_size(pair, batch, src_len, tgt_len):
    torch.manual_seed(0)
    src, tokens = torch.randint(3, V, (batch, src_len)), torch.randint(3, V, (batch, tgt_len))
    torch.testing.assert_close(*steps(pair, src, tokens), atol=1e-4, rtol=1e-4)


def test_padding_is_hidden(pair):
    src = torch.tensor([[4, 5, 6, 7, 1], [8, 1, 2, 2, 2]])
    tokens = torch.tensor([[0, 5], [0, 7]])
    ours, theirs = steps(pair, src, tokens)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    alone, _ = steps(pair, src[1:, :2], tokens[1:])
    torch.testing.assert_close(theirs[:, 1:], alone, atol=1e-4, rtol=1e-4)
