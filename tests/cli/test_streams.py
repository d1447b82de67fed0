"""What commands read and write besides folders: terminals, pipes, devices, links, streams that are closed."""

import contextlib
import io
import os
import pty
import subprocess
import sys
import threading
from datetime import date, datetime
from pathlib import Path

import openpyxl
import pytest
import torch
from command_line import complains, ends, feed
from small_models import make

from annotated.translation.cli import evaluate, translate
from annotated.translation.cli.main import main
from annotated.translation.files import read_json
from annotated.translation.storage.model_folder import save_model
from annotated.translation.tokenizers import WordTokenizer
from annotated.translation.translator import Translator

PYTHON = [sys.executable, "-m", "annotated"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model that has learned nothing, of whole words; any text will do for it."""
    folder, words = tmp_path_factory.mktemp("model"), ["ein", "zwei", "drei", "Hund", "Hunde"]
    save_model(folder, make(words, words), *[WordTokenizer(words, None)] * 2)
    return folder


@pytest.fixture
def files(tmp_path):
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("ein Hund\nzwei Hunde\n" * 5)
    return ["--src", str(tmp_path / "a.en"), "--tgt", str(tmp_path / "a.de")]


@pytest.fixture
def echo(monkeypatch):
    """A translation that takes no time: the line in capitals. Returns the calls."""
    calls = []

    def translate(self, lines, **options):
        calls.append(list(lines))
        return [line.upper() for line in calls[-1]]

    monkeypatch.setattr(Translator, "translate", translate)
    return calls


def test_output_comes_in_order_and_in_parts(model, echo, monkeypatch, capfd):
    monkeypatch.setattr(translate, "FIRST_GROUP", 1)
    monkeypatch.setattr(translate, "LARGEST_GROUP", 3)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    lines = [f"{'ein ' * (i * 7 % 5)}Hund {i}" for i in range(14)]
    feed(monkeypatch, "".join(line + "\n" for line in lines).encode())
    assert main(["translate", "--model", str(model)]) == 0
    assert capfd.readouterr().out.splitlines() == [line.upper() for line in lines]
    assert [len(part) for part in echo] == [2, 4, 6, 2]


def test_a_line_is_answered_before_the_next_is_there(model, monkeypatch):
    """Whatever ends the process then, a signal or the machine, and whoever waits for an answer."""
    source, sink = os.pipe()
    read_out, write_out = os.pipe()
    with open(source, "rb") as stdin, open(write_out, "w") as stdout:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stdin))
        monkeypatch.setattr(sys, "stdout", stdout)
        thread = threading.Thread(target=main, args=(["translate", "--model", str(model), "--beam", "1"],))
        thread.start()
        with open(read_out, "rb") as found:
            for line in (b"Hund\n", b"ein ", b"Hund\nzwei\n"):
                os.write(sink, line)
                for _ in range(line.count(b"\n")):
                    assert found.readline().endswith(b"\n")  # else the test would wait here for ever
            os.close(sink)
            thread.join()


def test_a_pause_of_a_writer_that_does_not_block_is_not_the_end(model, echo, monkeypatch, capfd):
    read, write = os.pipe()
    os.set_blocking(read, False)
    with open(read, encoding="utf-8") as stdin, open(write, "w") as writer:
        monkeypatch.setattr(sys, "stdin", stdin)
        threading.Timer(0.5, lambda: (writer.write("a b\n"), writer.close())).start()
        assert main(["translate", "--model", str(model)]) == 0
    assert capfd.readouterr().out.count("\n") == 1


def test_a_terminal_of_another_encoding(model, echo, monkeypatch, capfd):
    """Its bytes are UTF-8, whatever Python takes them for under LC_ALL=C."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, encoding="ascii", errors="surrogateescape") as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        os.write(ours, "Zwei Männer\nstehen\n".encode() + b"\x04")
        assert main(["translate", "--model", str(model)]) == 0
    os.close(ours)
    out, err = capfd.readouterr()
    assert out == "ZWEI MÄNNER\nSTEHEN\n"
    assert err == "one sentence a line; Ctrl-D ends\n"
    assert echo == [["Zwei Männer"], ["stehen"]]  # each is answered before the next is asked for


def test_files_are_translated_one_after_the_other(model, echo, tmp_path, monkeypatch, capfd):
    feed(monkeypatch, b"from standard input\n")
    (tmp_path / "a").write_text("one\ntwo")  # the last line without its end
    (tmp_path / "b").write_text("\ufeffthree\n")
    (tmp_path / "empty").write_text("")
    asked = ["translate", "--model", str(model)]
    assert main([*asked, *(str(tmp_path / name) for name in ("a", "empty", "b")), "-"]) == 0
    assert capfd.readouterr().out == "ONE\nTWO\nTHREE\nFROM STANDARD INPUT\n"


def test_a_file_that_would_grow_as_it_is_read_is_refused(model, echo, tmp_path, monkeypatch, capfd):
    path = tmp_path / "text"
    path.write_text("one\n")
    asked = ["translate", "--model", str(model)]
    with path.open("a") as out, path.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", out)
        for given in ([str(path)], []):
            assert main([*asked, *given]) == 2
            assert "is the file that is written to" in capfd.readouterr().err
    assert path.read_text() == "one\n"
    with open(os.devnull, "r+") as device:  # as a terminal is both
        monkeypatch.setattr(sys, "stdin", device)
        monkeypatch.setattr(sys, "stdout", device)
        assert main(asked) == 0


def test_what_is_wrong_with_a_file_is_told_by_its_name(model, tmp_path, monkeypatch, capfd):
    feed(monkeypatch, b"")
    asked = ["translate", "--model", model, "--beam", "1"]
    complains([*asked, tmp_path / "none"], capfd, "No such file", str(tmp_path / "none"))
    complains([*asked, tmp_path], capfd, "Is a directory", str(tmp_path))
    (tmp_path / "bad").write_bytes(b"\xff\n")
    complains([*asked, tmp_path / "bad"], capfd, f"annotated: {tmp_path / 'bad'}, line 1: ")
    (tmp_path / "short").write_text("ein\n")
    (tmp_path / "long").write_text("ein\nein Hund\n")
    files = [str(tmp_path / "short"), str(tmp_path / "long")]
    complains([*asked, "--max-target", "0"], capfd, "max_target must be a whole number from 1")
    assert main([*map(str, asked), "--max-source", "2", *files]) == 0
    assert f"annotated: {files[1]}: line 2 has 3 tokens, but max_source is 2" in capfd.readouterr().err
    assert main([*map(str, asked), "--max-source", "2", "--too-long", "refuse", *files]) == 2
    assert f"annotated: {files[1]}: line 2 has 3 tokens" in capfd.readouterr().err


def test_the_best_translations_come_with_line_and_score(model, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(translate, "FIRST_GROUP", 1)
    (tmp_path / "a").write_text("ein Hund\n\n")
    (tmp_path / "b").write_text("zwei Hunde\n")
    files = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert main(["translate", "--model", str(model), "--threads", "1", "--n-best", "2", *files]) == 0
    rows = [line.split("\t") for line in capfd.readouterr().out.splitlines()]
    translator = Translator.load(model)
    for number, sentence in ((1, "ein Hund"), (3, "zwei Hunde")):  # nothing of the empty line
        [wanted] = translator.search([sentence], n_best=2)
        found = [(float(score), text) for line, score, text in rows if int(line) == number]
        decode = translator.tgt_tokenizer.decode
        assert [text for _, text in found] == [decode(each.tokens) for each in wanted]
        assert [score for score, _ in found] == pytest.approx([each.score for each in wanted], abs=1e-3)
    assert len(rows) == 4
    asked = ["translate", "--model", model, *files, "--n-best", "5"]
    complains(asked, capfd, "n_best")


def test_another_engine_finds_the_same(model, tmp_path, capfd):
    pytest.importorskip("ctranslate2")
    (tmp_path / "a").write_text("ein Hund\nzwei\n")
    found = []
    for engine in ("pytorch", "ctranslate2"):
        asked = ["--model", str(model), "--engine", engine, "--device", "cpu", str(tmp_path / "a")]
        assert main(["translate", *asked]) == 0
        found.append(capfd.readouterr().out)
    assert found[0] == found[1]
    complains(["translate", "--model", model, "--quantization", "int8"], capfd, "needs --engine ctranslate2")


def scored(model, files, *more):
    return main(["evaluate", "--model", str(model), *files, "--beam", "1", *map(str, more)])


def test_scores_are_printed_though_they_cannot_be_written(model, files, tmp_path, capfd):
    save = tmp_path / "found"
    assert scored(model, files, "--json", "/dev/full", "--save", save) == 2
    out, err = capfd.readouterr()
    assert "BLEU = " in out
    assert "No space left on device" in err.splitlines()[-1]
    assert save.read_bytes().count(b"\n") == 10
    assert scored(model, files, "--save", "/dev/full", "--json", tmp_path / "scores.json") == 2
    assert read_json(tmp_path / "scores.json")["sentences"] == 10


@pytest.mark.parametrize(
    ("output", "code", "says"),
    [("full", 2, "annotated: [Errno 28] No space left on device; make room"), ("unread", 141, "")],
)
def test_files_are_written_though_scores_cannot_be_printed(
    output, code, says, model, files, tmp_path, monkeypatch, capfd
):
    save, scores = tmp_path / "found", tmp_path / "scores.json"
    read, write = os.pipe()
    os.close(read)
    with contextlib.suppress(OSError), open("/dev/full" if output == "full" else write, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        found = scored(model, files, "--save", save, "--json", scores)
    told = capfd.readouterr().err.splitlines(True)
    told = [line for line in told if "were cut" not in line and "go by chrF" not in line]
    assert (found, bool(told)) == (code, bool(says))
    assert "".join(told).startswith(says)
    assert save.read_bytes().count(b"\n") == read_json(scores)["sentences"] == 10


def test_what_cannot_be_written_is_refused_before_the_work(model, files, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(evaluate, "score_split", None)
    asked = ["evaluate", "--model", model, *files]
    (tmp_path / "link").symlink_to(tmp_path / "a.de")
    (tmp_path / "hard").hardlink_to(tmp_path / "a.de")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    inputs = [*before, *filter(Path.is_file, model.iterdir())]
    for flag in ("--save", "--json"):
        for path in (tmp_path, tmp_path / "no" / "x"):
            complains([*asked, flag, path], capfd, str(path))
        for path in inputs:
            complains([*asked, flag, path], capfd, "would be replaced")
    both = tmp_path / "both"
    for spelled in (both, tmp_path / ".." / tmp_path.name / "both"):
        complains([*asked, "--save", both, "--json", spelled], capfd, "would be replaced")
    complains(["evaluate", "--model", model, "--src", tmp_path / "none", "--save", both], capfd, "--src")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("flags", [["--corpus", "multi30k"], ["--split", "val"]])
def test_evaluate_takes_files_or_a_corpus_not_both(flags, model, files, capfd):
    complains(["evaluate", "--model", model, *files, *flags], capfd, "not both", *flags)


@pytest.mark.parametrize("flags", [["-OO"], []])
def test_a_process_with_closed_streams_or_without_docstrings(flags, model):
    closed = "" if flags else "2>&-"
    command = [sys.executable, *flags, "-m", "annotated", "translate", "--model", str(model), "--beam", "1"]
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", *command]
    done = subprocess.run(shell, input=b"Hund\n", capture_output=True, check=False)
    told = [line for line in done.stderr.splitlines() if b"were cut" not in line]
    assert (done.returncode, told) == (0, [])
    assert done.stdout.count(b"\n") == 1


@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        ("t.csv", 'id,en\n07,"a, b"\n08,\n', 'id,en,translation\n07,"a, b","A, B"\n08,,\n'),
        ("t.csv", 'id;en\n07;"a; b"\n', 'id;en;translation\n07;"a; b";"A; B"\n'),
        ("t.tsv", "7\tein Hund\n8\tzwei\n", "7\tein Hund\tEIN HUND\n8\tzwei\tZWEI\n"),
        (
            "t.tsv",
            '7\tein "Hund"\n8\t"zwei ""a"""\n',
            '7\tein "Hund"\tEIN "HUND"\n8\t"zwei ""a"""\tZWEI "A"\n',
        ),
        ("t.tsv", '"a"\t"ein ""Hund"""\n"b"\t"x"\n', '"a"\t"ein ""Hund"""\t"EIN ""HUND"""\n"b"\t"x"\t"X"\n'),
        (
            "t.jsonl",
            '{"n": 1.50, "x": [1,2], "b": true, "o": {"a": null}, "en": "\\u00fc"}\n\n{"n": 3}\n{ }\n',
            '{"n": 1.50, "x": [1,2], "b": true, "o": {"a": null}, "en": "\\u00fc", "translation": "Ü"}\n'
            '{"n": 3, "translation": ""}\n{"translation": ""}\n',
        ),
        (
            "t.json",
            '[\n {"en": "a ], b",\n  "id": 7} ,{"en":null}]',
            '[\n{"en": "a ], b",   "id": 7, "translation": "A ], B"},\n{"en":null, "translation": ""}\n]\n',
        ),
    ],
)
def test_a_table_comes_back_with_its_translations(name, given, wanted, model, echo, tmp_path, capfd):
    path = tmp_path / name
    path.write_text(given, encoding="utf-8")
    column = "2" if name == "t.tsv" else "en"
    assert main(["translate", "--model", str(model), "--columns", column, str(path)]) == 0
    assert capfd.readouterr().out == wanted
    asked = ["translate", "--model", model]
    if name != "t.tsv":
        complains([*asked, path], capfd, "give --columns", "en")
    complains([*asked, path, path], capfd, "a table is translated alone")
    complains([*asked, "--n-best", "2", path], capfd, "for candidates, save its column as a file of lines")
    complains([*asked, "--columns", "1"], capfd, "--columns is for a table")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize(("name", "separator"), [("t.csv", ";"), ("t.tsv", "\t")])
def test_a_table_keeps_the_mark_by_which_spreadsheets_know_its_encoding(
    name, separator, encoding, model, echo, tmp_path, capfd
):
    (tmp_path / name).write_text(f"en{separator}id\nü{separator}7\n", encoding=encoding)
    assert main(["translate", "--model", str(model), "--columns", "en", str(tmp_path / name)]) == 0
    mark = "" if encoding == "utf-8" else "\ufeff"
    wanted = f"{mark}en|id|translation\nü|7|Ü\n".replace("|", separator)
    assert capfd.readouterr().out == wanted


def test_a_sheet_comes_back_with_its_dates_and_times(model, echo, tmp_path, capfd):
    book = openpyxl.Workbook()
    days = (date(2026, 1, 1), datetime(2026, 1, 1), datetime(2026, 1, 1, 7, 30))
    for row in (["en", "day", "from", "to"], ["a", *days]):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    assert main(["translate", "--model", str(model), "--columns", "en", str(tmp_path / "t.xlsx")]) == 0
    assert capfd.readouterr().out.splitlines()[1] == "a,2026-01-01,2026-01-01 00:00:00,2026-01-01 07:30:00,A"


def test_a_line_has_the_number_that_an_editor_shows(model, tmp_path, capfd):
    """Whatever stands before it: names, empty rows, cells of several lines."""
    long = "ein " * 5
    for name, given, number in (
        ("t.csv", f'en,de\n"ein\nHund",a\n\n,b\n{long},c\n', 6),
        ("t.tsv", f"en\tde\nein Hund\ta\n\tb\n{long}\tc\n", 4),
        ("t.jsonl", f'{{"en": "ein", "de": "a"}}\n\n{{"en": "{long}", "de": "c"}}\n', 3),
        ("t.json", f'\n[\n {{"en": "ein",\n  "de": "a"}},\n\n {{"en": "{long}", "de": "c"}}\n]\n', 6),
    ):
        (tmp_path / name).write_text(given)
        told = f"line {number} has 6 tokens, but max_source is 4"
        asked = ["--model", model, "--beam", "1", "--max-source", "4", "--columns"]
        for command in (["translate", *asked, "en", tmp_path / name], ["evaluate", *asked, "en,de", "--src"]):
            assert ends([*command, *[tmp_path / name][: command[0] == "evaluate"]]) == 0
            assert told in capfd.readouterr().err
