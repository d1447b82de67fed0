"""`annotated export`, the README of an exported folder, and the example that writes ONNX."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from interop_models import ENGLISH, GERMAN, MISSING, logits, subwords, taught, toy

from annotated.translation.cli.main import main
from annotated.translation.interop import load_marian, to_ctranslate2, to_marian
from annotated.translation.storage.model_folder import save_model
from annotated.translation.tokenizers import WordTokenizer
from annotated.translation.translator import Translator


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model folder with random weights."""
    folder, tokenizer = tmp_path_factory.mktemp("model"), subwords(ENGLISH, GERMAN)
    model = toy(len(tokenizer), len(tokenizer), tied_embeddings="all")
    save_model(folder, model, tokenizer, tokenizer)
    return folder


@pytest.fixture(scope="module")
def learned():
    """A model that has learned three sentences, and its tokenizers."""
    tokenizer = subwords(ENGLISH, GERMAN)
    return taught(tokenizer), tokenizer, tokenizer


def export(folder, to, out, *flags):
    return main(["export", "--model", str(folder), "--to", to, "--out", str(out), *flags])


def test_to_marian_and_back(folder, tmp_path, capfd):
    pytest.importorskip("transformers", reason=MISSING.format("transformers"))
    assert export(folder, "marian", tmp_path / "out") == 0
    assert capfd.readouterr().out == ""
    again, before = Translator(*load_marian(tmp_path / "out")), Translator.load(folder)
    found, expected = ([best.tokens for [best] in t.search(ENGLISH)] for t in (again, before))
    assert found == expected


def test_to_ctranslate2(folder, tmp_path):
    pytest.importorskip("ctranslate2", reason=MISSING.format("ctranslate2"))
    assert export(folder, "ctranslate2", tmp_path / "out", "--quantization", "int8") == 0
    assert (tmp_path / "out" / "model.bin").exists()


def test_what_cannot_be_exported_is_one_line_and_code_2(folder, tmp_path, monkeypatch, capfd):
    words = WordTokenizer(["a", "b"], None)
    save_model(tmp_path / "words", toy(6, 6), words, words)
    (tmp_path / "there").mkdir()
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    for arguments in (
        (tmp_path / "words", "marian", tmp_path / "out"),
        (folder, "marian", tmp_path / "there"),
        (folder, "marian", tmp_path / "out", "--quantization", "int8"),
        (folder, "ctranslate2", tmp_path / "out"),
    ):
        assert export(*arguments) == 2
        out, err = capfd.readouterr()
        assert (out, err.count("\n")) == ("", 1)
    assert err == f"annotated: {MISSING.format('ctranslate2')}\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("write", "block", "package"), [(to_ctranslate2, 1, "ctranslate2"), (to_marian, 2, "transformers")]
)
def test_the_readme_uses_an_export_without_us(write, block, package, learned, tmp_path):
    pytest.importorskip(package, reason=MISSING.format(package))
    write(tmp_path / "out", *learned)
    text = (tmp_path / "out" / "README.md").read_text()
    blocks = [each.split("```")[0] for each in text.split("```python\n")[1:]]
    unnormalized = ENGLISH[1].replace(" ", "\u00a0 ")
    code = (blocks[0] + blocks[block]).replace('"A dog runs."', ascii(unnormalized))
    shadow = "import sys; sys.modules['annotated'] = None\n"
    command = [sys.executable, "-c", shadow + code]
    done = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True, check=True)
    assert done.stdout == GERMAN[1] + "\n"


def test_the_example_writes_onnx_that_says_what_we_say(learned, tmp_path):
    for package in ("onnx", "onnxscript"):
        pytest.importorskip(package, reason=MISSING.format(package))
    runtime = pytest.importorskip("onnxruntime", reason=MISSING.format("onnxruntime"))
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "to_onnx.py"))
    path, translator = str(tmp_path / "model.onnx"), Translator(*learned)
    example["export"](translator, path)
    assert example["translate"](path, translator, ENGLISH[0]) == GERMAN[0]
    session = runtime.InferenceSession(path)
    for batch, src_len, tgt_len in ((1, 1, 1), (3, 9, 12)):
        src = torch.randint(4, 50, (batch, src_len))
        src[1:, -4:] = 2
        tgt = torch.randint(4, 50, (batch, tgt_len))
        [found] = session.run(None, {"src": src.numpy(), "tgt": tgt.numpy()})
        expected = logits(learned[0], src, tgt)[:, -1].log_softmax(-1)
        torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-4, rtol=1e-4)
