"""Text of one's own: what a run on it remembers, what is scored, and which files are refused."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from command_line import TINY, complains

from annotated.cli.main import main
from annotated.files import read_json, write_json
from annotated.storage.model_folder import load_model
from annotated.tokenizers import SPECIALS
from annotated.translator import Translator

SMALL = [*TINY, "--max-steps", "1"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A pair of files, and both sides in one."""
    folder = tmp_path_factory.mktemp("text")
    rows = [(f"the cat number {i} sees a dog", f"die Katze {i} sieht einen Hund") for i in range(60)]
    for name, column in zip(("a.en", "a.de"), zip(*rows, strict=True), strict=True):
        (folder / name).write_text("".join(line + "\n" for line in column), encoding="utf-8")
    both = "".join("\t".join(row) + "\n" for row in rows)
    (folder / "both.tsv").write_text(both, encoding="utf-8")
    return folder


@pytest.fixture
def files(text):
    return ["--src", str(text / "a.en"), "--tgt", str(text / "a.de")]


@pytest.fixture(scope="module")
def run(text):
    """A run on a pair of files in languages that nobody named."""
    threads = torch.get_num_threads()
    files = ["--src", str(text / "a.en"), "--tgt", str(text / "a.de")]
    assert main(["train", *files, "--out", str(text / "run"), *SMALL]) == 0
    torch.set_num_threads(threads)
    return text / "run"


def test_a_run_on_own_files_remembers_no_corpus_and_no_pair_that_it_was_not_given(run, files, tmp_path):
    settings = read_json(run / "training.json")
    assert (settings["corpus"], settings["pair"]) == ("own", None)
    assert main(["train", *files, "--pair", "en-de", "--out", str(tmp_path / "o"), *SMALL]) == 0
    settings = read_json(tmp_path / "o" / "training.json")
    assert (settings["corpus"], settings["pair"]) == ("own", "en-de")


def test_such_a_run_is_resumed_by_its_folder_alone(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    assert main(["train", "--out", str(tmp_path / "run"), "--resume", "--max-steps", "2"]) == 0
    assert read_json(tmp_path / "run" / "training.json")["corpus"] == "own"


def test_what_is_left_of_it_elsewhere_is_scored_on_files_alone(run, tmp_path, capfd):
    """Without the paths, as on the Hub, it is still no run on a corpus that others have."""
    shutil.copytree(run, tmp_path / "copy")
    settings = read_json(run / "training.json")
    paths = dict.fromkeys(("src", "tgt", "val_src", "val_tgt"))
    write_json(tmp_path / "copy" / "training.json", {**settings, **paths})
    asked = ["evaluate", "--model", tmp_path / "copy"]
    for more in ([], ["--corpus", "own"]):
        complains([*asked, *more], capfd, "unknown corpus 'own'")


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
    assert "tokenized, lower-cased beforehand: BLEU" in capfd.readouterr().out
    assert json.loads(scores.read_text(encoding="utf-8"))["pair"] == "en-de"


def test_words_without_a_language_are_cut_at_white_space(files, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    asked = ["train", *files, "--out", str(tmp_path / "o"), *SMALL, "--tokenizer", "words"]
    assert main(asked) == 0
    assert load_model(tmp_path / "o")[1].split("a dog.") == ["a", "dog."]


def test_each_side_has_its_own_units_of_text(text, tmp_path):
    """Spelling and phones: saved, resumed, translated, shown; equal sides are no fault."""
    rows = [("ab", "a b"), ("a", "a"), ("b", "b"), ("ba", "b a"), ("bb", "b b"), ("aa", "a a")]
    path, out = tmp_path / "phones.tsv", str(tmp_path / "o")
    path.write_text("".join("\t".join(row) + "\n" for row in rows * 20), encoding="utf-8")
    units = ["--src-tokenizer", "chars", "--tgt-tokenizer", "spaces", "--vocab", "9"]
    asked = ["train", "--src", str(path), "--val-src", str(path), *units, "--out", out, *SMALL]
    path.with_name("val.tsv").write_text("c\tc\n", encoding="utf-8")
    asked[asked.index("--val-src") + 1] = str(path.with_name("val.tsv"))
    assert main(asked) == 0
    assert main(["train", "--out", out, "--resume", "--max-steps", "2"]) == 0
    translator = Translator.load(out)
    assert translator.src_tokenizer.vocabulary == [*SPECIALS, "a", "b"]
    assert translator.tgt_tokenizer.vocabulary == [*SPECIALS, "a", "b"]
    assert set(translator("ab").split()) <= {"a", "b", "<unk>"}
    assert translator.attention("ab", "a b").src_tokens == ["a", "b", "</s>"]
    steps = [read_json(step / "progress.json")["step"] for step in sorted(Path(out).glob("checkpoints/*"))]
    assert steps[-1] == 2


def test_tables_are_read_by_the_columns_that_are_named(tmp_path, capfd):
    path = tmp_path / "table.csv"
    path.write_text("id,en,de\n" + "".join(f"{i},dog {i},Hund {i}\n" for i in range(60)), encoding="utf-8")
    asked = ["train", "--src", path, "--out", tmp_path / "o", *SMALL]
    complains(asked, capfd, "id, en, de")
    assert main([*map(str, asked), "--columns", "en,de"]) == 0
    assert "'dog 0' → 'Hund 0'" in capfd.readouterr().err


@pytest.mark.parametrize("flag", ["", "val-"])
def test_a_file_with_both_sides_is_given_alone(flag, text, files, tmp_path, capfd):
    both = text / "both.tsv"
    alone = f"--{flag}src and --{flag}tgt must name two files"
    out = ["train", "--out", tmp_path / "o", *SMALL, *(files if flag else [])]
    complains([*out, f"--{flag}src", both, f"--{flag}tgt", text / "a.de"], capfd, alone)
    complains([*out, f"--{flag}src", text / "a.en", f"--{flag}tgt", both], capfd, alone)
    complains([*out, f"--{flag}tgt", both], capfd, alone)
    same = [f"--{flag}src", text / "a.en", f"--{flag}tgt", text / "run/../a.en"]
    complains([*out, *same], capfd, alone)
    complains([*out, f"--{flag}src", "a.tsv.en"], capfd, alone)
    assert not list((tmp_path / "o").glob("checkpoints/*"))
