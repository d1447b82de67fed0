"""Notebooks are graded by the original's tests, whatever stands in them; nothing talks a grade out of it."""

import csv
import fcntl
import json
import re
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import nbformat
import pytest
from tiny_runs import FORKED
from wrong_answers import right_answer

import exercises
import grade
import judging
import pairs

ROOT = Path(__file__).parents[2]
LEAD = exercises.exercises(pairs.read_source(ROOT / "notebooks/02_attention.py"))[1]
HEAD = "import math\nimport torch"
WRONG = "\n\ndef lead_needed(n):\n    return 12345.0\n"
ENDING = {
    "ends": "import sys\nsys.exit(0)",
    "ends in the test": "import os\ndef lead_needed(n):\n    os._exit(0)",
    "says so and ends": """
print("passed")
for file in range(3, 64):
    try:
        os.write(file, b'["right", "right"]')
    except OSError:
        pass
for name in os.listdir():
    open(name, "w").write('["right", "right"]')
os._exit(0)""",
    "writes JSON of its own": "import json\njson.dumps = lambda *said, **options: 'right'" + WRONG,
}
CHANGING = {
    "its own test": "def test_lead_needed(lead_needed):\n    pass" + WRONG,
    "its own abs": "def abs(x):\n    return 0" + WRONG,
    "its own AssertionError": "AssertionError = ValueError" + WRONG,
    "Python's abs": "import builtins\nbuiltins.abs = lambda x: 0" + WRONG,
    "PyTorch's softmax": "torch.Tensor.softmax = lambda self, dim: torch.ones(9) / 2" + WRONG,
    "the test's abs": """
import sys
def lead_needed(n):
    sys._getframe(1).f_globals["abs"] = lambda x: 0
    return 12345.0""",
}


def test_only_an_answer_whose_test_ran_to_its_end_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")  # a test without asserts would let all pass
    answers = {"right": right_answer(LEAD), "wrong": WRONG, **ENDING}
    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(lambda code: grade.verdict(HEAD, LEAD, code, 100), answers.values()))
    verdicts = dict(zip(answers, said, strict=True))
    assert [who for who, verdict in verdicts.items() if verdict == "passed"] == ["right"], verdicts
    assert verdicts["ends in the test"] == "the process ended by itself, with exit code 0"


def test_an_answer_may_use_what_its_lesson_defines_and_hears_what_else_it_needs() -> None:
    lesson = """
import math
from nowhere import nothing

ONE = 1
logs = [math.log(n) for n in range(1, 2000)]

def others(n):
    return n - ONE

def looked_up(n, table=logs):
    return table[n]
"""
    known = exercises.definitions(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(lesson)]))
    notebooks_way = "%timeit 1 + 1\n!ls\nothers?\n"
    answer = "def lead_needed(n):\n    return "
    assert grade.verdict(known, LEAD, f"{notebooks_way}{answer}math.log(others(n))", 100) == "passed"
    said = grade.verdict(known, LEAD, f"{answer}logs[others(n) - 1]", 100)
    assert said.startswith("NameError: name 'logs' is not defined; if the notebook defines it elsewhere")


@pytest.mark.parametrize("what", CHANGING)
def test_an_answer_that_changes_what_the_test_calls_is_not_right(what: str) -> None:
    with ProcessPoolExecutor(1, mp_context=FORKED) as pool:
        said = pool.submit(judging.judge_answer, json.dumps([HEAD, LEAD, CHANGING[what]])).result()
    assert said.startswith("wrong: " if "its own" in what else "changes what the test calls"), said


def test_a_law_that_an_answer_puts_in_the_place_of_ours_is_seen() -> None:
    attention = exercises.exercises(pairs.read_source(ROOT / "notebooks/02_attention.py"))[0]
    answer = """
from annotated import check
check.attention = lambda mine: type("Yes", (), {"passed": True})()
def my_attention(query, key, value, mask=None):
    return 0 * (query.sum() + key.sum() + value.sum()) + torch.zeros(2, 3, 5, 8)"""
    with ProcessPoolExecutor(1, mp_context=FORKED) as pool:
        said = pool.submit(judging.judge_answer, json.dumps([HEAD, attention, answer])).result()
    assert said == "changes what the test calls: annotated.check.attention"


def test_nothing_of_an_answer_goes_on_running(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    code = f"""
import fcntl, os, time
file = open({str(lock)!r}, "w")
fcntl.flock(file, fcntl.LOCK_EX)
os.fork()
time.sleep(1000)"""
    assert grade.verdict("", LEAD, code, 20) == "still running after 20 seconds"
    with lock.open() as file:
        for _ in range(100):
            with suppress(BlockingIOError):  # one of the two still holds it
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.1)
        else:
            pytest.fail("a process of the answer goes on")


def test_a_folder_of_notebooks_is_graded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    original = nbformat.read(ROOT / "notebooks/02_attention.ipynb", as_version=4)
    first, _ = exercises.exercises(original)
    stubs = [cell for cell in original.cells if exercises.role(cell) == exercises.STUB]
    note = nbformat.v4.new_markdown_cell("My answer:")
    stubs[0].source, stubs[1].source = right_answer(first), WRONG
    original.cells.insert(original.cells.index(stubs[0]), note)
    nbformat.write(original, tmp_path / "=ada 02_attention.ipynb")
    (tmp_path / "02_attention_eve.ipynb").write_text("{")
    table = tmp_path / "grades.csv"
    assert grade.main([str(tmp_path), "--csv", str(table)]) == 1
    with table.open(encoding="utf-8", newline="") as file:
        eve, *ada = csv.DictReader(file)
    assert eve["verdict"].startswith("not a notebook")
    assert [row["verdict"] for row in ada][:1] == ["passed"]
    assert "not one half" in ada[1]["verdict"]
    assert {row["submission"] for row in ada} == {"'=ada 02_attention.ipynb"}  # no formula
    for wrong in (
        [str(ROOT / "images")],
        [str(tmp_path), "--timeout", "0"],
        [str(tmp_path), "--timeout", "nan"],
    ):
        with pytest.raises(SystemExit):
            grade.main(wrong)
    assert re.search(r"no \.ipynb.*no number of seconds", capsys.readouterr().err, re.DOTALL)
