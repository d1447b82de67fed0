"""`annotated export`, and what all ways in and out have in common."""

import subprocess
import sys

import pytest
import sentencepiece
from interop_models import ENGLISH, GERMAN, MISSING, spm, subwords, taught, toy

from annotated.cli.main import main
from annotated.interop import (
    load_marian,
    to_ctranslate2,
    to_marian,
    to_onnx,
)
from annotated.tokenizers import SPECIALS, CharacterTokenizer, MarianTokenizer, WordTokenizer
from annotated.translation.model_folder import save_model
from annotated.translation.translator import Translator


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model folder with random weights."""
    folder, tokenizer = tmp_path_factory.mktemp("model"), subwords(ENGLISH, GERMAN)
    model = toy(len(tokenizer), len(tokenizer), tied_embeddings="all")
    save_model(folder, model, tokenizer, tokenizer)
    return folder


def export(folder, to, out, *flags):
    return main(["export", "--model", str(folder), "--to", to, "--out", str(out), *flags])


def test_to_marian_and_back(folder, tmp_path, capfd):
    assert export(folder, "marian", tmp_path / "out") == 0
    out, err = capfd.readouterr()
    size = sum(file.stat().st_size for file in (tmp_path / "out").iterdir())
    assert (out, err) == ("", f"{tmp_path / 'out'}: {size / 1e6:.1f} MB for marian\n")
    again, before = Translator(*load_marian(tmp_path / "out")), Translator.load(folder)
    found, expected = ([best.tokens for [best] in t.search(ENGLISH)] for t in (again, before))
    assert found == expected


@pytest.mark.parametrize("flags", [[], ["--quantization", "int8"]])
def test_to_ctranslate2_says_what_int8_may_cost(folder, tmp_path, flags, capfd):
    pytest.importorskip("ctranslate2", reason=MISSING.format("ctranslate2"))
    assert export(folder, "ctranslate2", tmp_path / "out", *flags) == 0
    assert (tmp_path / "out" / "model.bin").exists()
    assert ("VNNI" in capfd.readouterr().err) == ("int8" in flags)


def test_what_cannot_be_exported_is_one_line_and_code_2(folder, tmp_path, capfd):
    words = WordTokenizer(["a", "b"], None)
    save_model(tmp_path / "words", toy(6, 6), words, words)
    says = {
        (tmp_path / "words", "marian", tmp_path / "out"): "cut by SentencePiece",
        (tmp_path / "none", "onnx", tmp_path / "out"): "there is no model folder",
        (folder, "marian", tmp_path / "words"): "exists already",
        (
            folder,
            "marian",
            tmp_path / "out",
            "--quantization",
            "int8",
        ): "--quantization is for --to ctranslate2",
    }
    for arguments, message in says.items():
        assert export(*arguments) == 2
        out, err = capfd.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert message in err
    assert not (tmp_path / "out").exists()


NEEDS = {"ctranslate2": "ctranslate2", "onnx": "onnx"}


@pytest.mark.parametrize("to", NEEDS)
def test_a_missing_package_is_named_with_its_extra(to, folder, tmp_path, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, NEEDS[to], None)
    assert export(folder, to, tmp_path / "out") == 2
    assert capfd.readouterr().err == f"annotated: {MISSING.format(NEEDS[to])}\n"
    assert list(tmp_path.iterdir()) == []


# ---- the README.md of what was exported


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A model that has learned sentences, with one tokenizer, and with words of each language."""
    tokenizer = subwords(ENGLISH, GERMAN)
    return taught(tokenizer), tokenizer, tokenizer


def code_of(folder):
    """The code in a folder's README.md."""
    _, found = (folder / "README.md").read_text().split("```python\n")
    code, _ = found.split("```")
    return code


def say_it(folder, sentence):
    """What the code in a folder's README.md prints for a sentence, where there is no `annotated`."""
    code = code_of(folder).replace('"A dog runs."', ascii(sentence))
    assert ascii(sentence) in code
    shadow = "import sys; sys.modules['annotated'] = None\n"
    command = [sys.executable, "-c", shadow + code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


WRITERS = {"ctranslate2": to_ctranslate2, "onnx": to_onnx, "transformers": to_marian}
RUNS = {"onnx": ("onnx", "onnxscript", "onnxruntime")}


def write(package, *args):
    """Export with the writer for a library; skip where it is missing."""
    for each in RUNS.get(package, (package,)):
        pytest.importorskip(each, reason=MISSING.format(each))
    WRITERS[package](*args)


@pytest.mark.parametrize("package", WRITERS)
def test_ten_lines_use_an_export_without_us(package, learned, tmp_path):
    write(package, tmp_path / "out", *learned)
    assert len([line for line in code_of(tmp_path / "out").splitlines() if line]) <= 22
    unnormalized = ENGLISH[1].replace(" ", "\u00a0 ")
    for sentence, translation in zip([ENGLISH[0], unnormalized], GERMAN, strict=False):
        assert say_it(tmp_path / "out", sentence) == translation + "\n"


@pytest.mark.parametrize("package", ["ctranslate2", "onnx"])
def test_the_same_for_words(package, tmp_path):
    pytest.importorskip("spacy")
    tgt = WordTokenizer.train([*ENGLISH, *GERMAN], None, min_freq=1)
    src = WordTokenizer(tgt.words, "en", lower=True)
    write(package, tmp_path / "out", taught(tgt), src, tgt)
    assert say_it(tmp_path / "out", ENGLISH[0].capitalize()) == GERMAN[0] + "\n"


@pytest.mark.parametrize("package", ["ctranslate2", "onnx"])
def test_the_same_for_characters(package, tmp_path):
    tokenizer = CharacterTokenizer.train([*ENGLISH, *GERMAN])
    write(package, tmp_path / "out", taught(tokenizer), tokenizer, tokenizer)
    assert say_it(tmp_path / "out", ENGLISH[0]) == GERMAN[0] + "\n"


@pytest.mark.parametrize("package", ["ctranslate2", "onnx"])
def test_the_same_for_marians_subwords(package, tmp_path):
    model = spm([*ENGLISH, *GERMAN], 60)
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    tokenizer = MarianTokenizer(model, [*SPECIALS, *map(pieces.id_to_piece, range(3, len(pieces)))])
    write(package, tmp_path / "out", taught(tokenizer), tokenizer, tokenizer)
    assert say_it(tmp_path / "out", ENGLISH[0]) == GERMAN[0] + "\n"
