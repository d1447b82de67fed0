"""Text of one's own: what a run on it remembers, what is scored, and which files are refused."""

import json
import shutil
import sys

import pytest
from command_line import TINY, complains
from tiny_runs import steps

from annotated.translation.cli.main import main
from annotated.translation.files import read_json, write_json
from annotated.translation.storage.model_folder import load_model
from annotated.translation.tokenizers import SPECIALS
from annotated.translation.translator import Translator

SMALL = [*TINY, "--max-steps", "1"]


def test_a_run_on_own_files_remembers_no_corpus_and_is_resumed_by_its_folder_alone(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    assert main(["train", "--out", str(tmp_path / "run"), "--resume", "--epochs", "3"]) == 0
    assert steps(tmp_path / "run")[-1] > steps(run)[-1]
    for folder in (run, tmp_path / "run"):
        settings = read_json(folder / "training.json")
        assert (settings["corpus"], settings["pair"]) == ("own", None)


def test_what_is_left_of_it_elsewhere_is_scored_on_files_alone(run, tmp_path, capfd):
    """Without the paths, as on the Hub, it is still no run on a corpus that others have."""
    shutil.copytree(run, tmp_path / "copy")
    settings = read_json(run / "training.json")
    paths = dict.fromkeys(("src", "tgt", "val_src", "val_tgt"))
    write_json(tmp_path / "copy" / "training.json", {**settings, **paths})
    asked = ["evaluate", "--model", tmp_path / "copy"]
    for more in ([], ["--corpus", "own"]):
        complains([*asked, *more], capfd, "name its files by --src")


def test_no_score_leans_on_a_language_that_nobody_named(run, files, tmp_path, capfd):
    scores = tmp_path / "scores.json"
    asked = ["evaluate", "--model", str(run), *files, "--beam", "1", "--json", str(scores)]
    assert main(asked) == 0
    out = capfd.readouterr().out
    assert "as written: BLEU" in out
    assert "tokenized" not in out
    found = json.loads(scores.read_text(encoding="utf-8"))
    assert (found["corpus"], found["pair"], found["tokenized_bleu"]) == ("own", None, None)
    assert main([*asked, "--pair", "en-de"]) == 0
    assert "tokenized" not in capfd.readouterr().out  # tables of others have no such text
    assert json.loads(scores.read_text(encoding="utf-8"))["pair"] == "en-de"


def test_words_without_a_language_are_cut_at_white_space(files, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    asked = ["train", *files, "--out", str(tmp_path / "o"), *SMALL, "--tokenizer", "words"]
    assert main(asked) == 0
    assert load_model(tmp_path / "o")[1].split("a dog.") == ["a", "dog."]


def test_each_side_has_its_own_units_of_text(tmp_path):
    """Spelling and phones: saved, resumed, translated, shown; equal sides are no fault."""
    rows = [("ab", "a b"), ("a", "a"), ("b", "b"), ("ba", "b a"), ("bb", "b b"), ("aa", "a a")]
    path, out = tmp_path / "phones.tsv", str(tmp_path / "o")
    path.write_text("".join("\t".join(row) + "\n" for row in rows * 20), encoding="utf-8")
    units = ["--src-tokenizer", "chars", "--tgt-tokenizer", "spaces"]
    path.with_name("val.tsv").write_text("c\tc\n", encoding="utf-8")
    asked = ["train", "--src", str(path), "--val-src", str(path.with_name("val.tsv")), *units]
    assert main([*asked, "--out", out, *SMALL]) == 0
    assert main(["train", "--out", out, "--resume", "--max-steps", "2"]) == 0
    translator = Translator.load(out)
    assert translator.src_tokenizer.vocabulary == [*SPECIALS, "a", "b"]
    assert translator.tgt_tokenizer.vocabulary == [*SPECIALS, "a", "b"]
    assert set(translator("ab").split()) <= {"a", "b", "<unk>"}
    assert translator.attention("ab", "a b").src_tokens == ["a", "b", "</s>"]
    assert steps(out)[-1] == 2


@pytest.mark.parametrize("flag", ["", "val-"])
def test_a_file_with_both_sides_is_given_alone(flag, cats, run, files, tmp_path, capfd):
    out = ["train", "--out", tmp_path / "o", *SMALL, *(files if flag else [])]
    src, tgt = f"--{flag}src", f"--{flag}tgt"
    for wrong in (
        [src, cats / "both.tsv", tgt, cats / "a.de"],
        [src, cats / "a.en", tgt, cats / "both.tsv"],
        [src, cats / "a.en", tgt, cats / "run/../a.en"],
        [src, "a.tsv.en"],
    ):
        complains([*out, *wrong], capfd, f"{src} and {tgt} must name two files")
    complains([*out, src, "de.po"], capfd, "a recipe on the site's page Recipes reads .po files")
