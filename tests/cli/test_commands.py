"""The command line: what it takes, what it says, and what it says when it is given the wrong things."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch
from command_line import TINY, complains, ends, feed

import annotated
from annotated.translation.cli.flags import SHOWN_FLAGS
from annotated.translation.cli.main import main
from annotated.translation.data import Corpus, ParallelText
from annotated.translation.files import read_json, write_json
from annotated.translation.storage.model_folder import WEIGHTS, load_model
from annotated.translation.storage.tensor_files import read_tensors
from annotated.translation.tokenizers import SentencePieceTokenizer, WordTokenizer
from annotated.translation.training.checkpoint import average_checkpoints

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "command", [[], ["train"], ["translate"], ["evaluate"], ["average"], ["reproduce"], ["export"]]
)
def test_help_can_be_read(command, capfd):
    assert ends([*command, "--help-all" if SHOWN_FLAGS.keys() & {*command} else "--help"]) == 0
    out = capfd.readouterr().out
    assert "annotated" in out
    assert "None" not in out
    assert out.isascii()  # for terminals under LC_ALL=C
    if command:
        for flag in ("--threads", "--config", "--version"):
            assert flag in out
        assert ("--device" in out) == (command[0] not in ("average", "export"))  # which compute on the CPU
        flags = re.findall(r"^  (--[\w-]+)", out, flags=re.MULTILINE)
        assert len(flags) == len(set(flags)) > 5


def test_the_console_script_is_this_module():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"]["annotated"] == f"{main.__module__}:{main.__name__}"


def test_every_public_name_can_be_imported():
    for name in annotated.__all__:
        value = getattr(annotated, name)
        if isinstance(value, ModuleType):
            assert value is import_module(f"annotated.{name}")
        else:  # no name is hidden by a module of the same name
            assert getattr(import_module(value.__module__), name) is value
    assert {*annotated.__all__} <= set(dir(annotated))


def test_wrong_flags(capfd, tmp_path):
    complains([], capfd, "COMMAND")
    complains(["fly"], capfd, "fly")
    complains(["train", "--out", tmp_path, "--bogus", "1"], capfd, "unrecognized arguments: --bogus")
    complains(["train", "--out", tmp_path, "--max-step", "1"], capfd, "unrecognized arguments: --max-step")
    complains(["train", "--out", tmp_path, "--preset", "huge"], capfd, "'huge'", "tiny", "big")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there(capfd, run):
    complains(["translate", "--model", run, "--device", "cuda"], capfd, "no cuda device", "auto or cpu")


def test_training_writes_what_it_says(run, cats):
    settings = read_json(run / "training.json")
    assert settings["src"] == str(cats / "a.en")
    assert (settings["preset"], settings["vocab"], settings["epochs"]) == ("tiny", 320, 2)
    model, src, tgt = load_model(run)
    assert (model.config.N, model.config.d_model) == (1, 16)
    assert src is tgt
    assert (run / "log.jsonl").read_text().count("validation_loss") == 2  # on pairs held out of the text


def test_a_file_of_pairs_is_scored_by_the_metrics_asked_for(cats, tmp_path, run, capfd):
    both = str(cats / "both.tsv")
    asked = ["--metric", "exact", "--metric", "wer", "--json", str(tmp_path / "scores.json")]
    assert main(["evaluate", "--model", str(run), "--src", both, "--beam", "1", *asked]) == 0
    scores = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert 0 <= scores["exact"]["low"] <= scores["exact"]["value"] <= 100
    assert scores["wer"]["value"] >= 0
    assert "BLEU" in capfd.readouterr().out


def test_a_header_is_not_scored_and_what_is_dropped_is_said(run, tmp_path, capfd):
    table, saved = tmp_path / "table.tsv", tmp_path / "out.txt"
    table.write_text("source\ttarget\nthe cat\tdie Katze\n\tleer\n", encoding="utf-8")
    asked = ["evaluate", "--model", run, "--src", table, "--beam", "1", "--save", saved]
    assert main(list(map(str, asked))) == 0
    assert len(saved.read_text(encoding="utf-8").splitlines()) == 1
    told = capfd.readouterr().err
    assert "column names" in told
    assert "an empty side" in told


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        (["--tokenizer", "words", "--pair", "en-de"], WordTokenizer),
        (["--tied-embeddings", "target"], SentencePieceTokenizer),
    ],
)
def test_each_language_has_a_vocabulary_of_its_own(flags, kind, files, tmp_path, capfd):
    assert main(["train", *files, "--out", str(tmp_path / "o"), *TINY, *flags, "--max-steps", "1"]) == 0
    model, *tokenizers = load_model(tmp_path / "o")
    assert [type(tokenizer) for tokenizer in tokenizers] == [kind, kind]
    assert model.config.tied_embeddings == "target"
    english, german = tokenizers
    assert english.encode("the cat") != german.encode("the cat")


def test_going_on_from_weights(run, files, tmp_path, capfd):
    flags = ["--max-tokens", "200", "--max-steps", "1", "--learning-rate", "1e-12"]
    assert main(["train", *files, "--init-from", str(run), "--out", str(tmp_path / "o"), *flags]) == 0
    before, after = read_tensors(run / WEIGHTS), read_tensors(tmp_path / "o" / WEIGHTS)
    for name, tensor in after.items():
        torch.testing.assert_close(tensor, before[name])
    assert read_json(tmp_path / "o" / "training.json")["init_from"] == str(run)
    tokenizer = (run / "tokenizer.model").read_bytes()
    assert (tmp_path / "o" / "tokenizer.model").read_bytes() == tokenizer
    capfd.readouterr()
    other = ["--out", str(tmp_path / "other"), "--d-model", "32"]
    complains(["train", *files, "--init-from", run, *other], capfd, "d_model is 16 in", "not 32")


def test_a_reader_who_has_seen_enough_is_no_error(run):
    python = [sys.executable, "-m", "annotated", "translate", "--beam", "1", "--model", str(run)]
    process = subprocess.Popen(python, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    _, err = process.communicate(b"a cat\n" * 10)
    assert process.returncode == 141
    assert b"Broken" not in err


def test_input_that_is_not_utf8_is_named_by_line(run, capfd, monkeypatch):
    feed(monkeypatch, b"a\nb\nc\xe4\n")
    complains(["translate", "--model", run], capfd, "standard input, line 3: ", "0xe4")


def test_evaluating_a_split(run, capfd, monkeypatch):
    corpus = Corpus("small", "en", "de", {"val": ParallelText(["a dog"], ["ein Hund"], [1], "val")})
    monkeypatch.setattr("annotated.translation.cli.evaluate.load_corpus", lambda *_: corpus)
    asked = ["--corpus", "multi30k", "--tokenized"]
    assert main(["evaluate", "--model", str(run), *asked, "--beam", "1"]) == 0
    assert "as written" not in capfd.readouterr().out


def test_a_model_is_scored_on_what_it_was_trained_for(run, tmp_path, capfd, monkeypatch):
    folder = tmp_path / "m"
    shutil.copytree(run, folder)
    complains(["evaluate", "--model", folder], capfd, "text of your own", "--src")
    settings = read_json(folder / "training.json")
    write_json(folder / "training.json", {**settings, "src": None, "corpus": "grammar", "pair": "de-en"})
    asked = []
    text = ParallelText(["a cat"], ["eine Katze"], [1], "val")
    corpus = Corpus("grammar", "de", "en", {"val": text})
    monkeypatch.setattr(
        "annotated.translation.cli.evaluate.load_corpus", lambda *a: asked.append(a) or corpus
    )
    assert main(["evaluate", "--model", str(folder), "--beam", "1"]) == 0
    assert asked == [("grammar", "de-en", False, None)]
    complains(["evaluate", "--model", folder, "--pair", "en-de"], capfd, "to translate de-en, not en-de")
    write_json(folder / "training.json", {"epochs": 2})  # a run begun from Python, which names no corpus
    assert main(["evaluate", "--model", str(folder), "--beam", "1"]) == 0
    assert asked[1:] == [("multi30k", None, None, None)]


def test_averaging(run, tmp_path, capfd):
    folders = sorted(str(folder) for folder in (run / "checkpoints").iterdir())
    assert main(["average", *folders, "--out", str(tmp_path / "mean")]) == 0
    found, wanted = read_tensors(tmp_path / "mean" / WEIGHTS), average_checkpoints(folders)
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in found.items())
    assert f"the mean of 2 checkpoints is in {tmp_path / 'mean'}" in capfd.readouterr().err
    load_model(tmp_path / "mean")


def test_two_directions_have_no_mean(run, tmp_path, capfd):
    """They may share settings and tokenizer, as two of the shipped models do."""
    for pair in ("en-de", "de-en"):
        shutil.copytree(next((run / "checkpoints").iterdir()), tmp_path / pair)
        write_json(tmp_path / pair / "training.json", {"pair": pair})
    for missing in ([tmp_path / "none", tmp_path / "en-de"], [tmp_path / "en-de", tmp_path / "none"]):
        complains(
            ["average", *missing, "--out", tmp_path / "mean"], capfd, "there is no model folder", "none"
        )
    asked = ["average", tmp_path / "en-de", tmp_path / "de-en", "--out", tmp_path / "mean"]
    complains(asked, capfd, "de-en was trained with pair 'de-en', but", "'en-de'")
    assert not (tmp_path / "mean").exists()
