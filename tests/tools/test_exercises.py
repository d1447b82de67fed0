"""Exercises: solutions are folded and faults named; a test passes with the solution and fails without it."""

import re
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode
from tiny_runs import FORKED

import exercises
import folds
import pairs
import student

ROOT = Path(__file__).parents[2]
QUESTION = "# %% [markdown]\n# **Exercise 1 (easy).** Add.\n"
STUB = '# %% tags=["exercise"]\ndef add(a, b):\n    raise NotImplementedError\n'
SOLUTION = '# %% tags=["solution"]\ndef add(a, b):\n    return a + b\n'
TEST = '# %% tags=["exercise-test"]\nassert add(1, 1) == two\n'
GOOD = [QUESTION, STUB, SOLUTION, TEST]
HEAD = "# %% [markdown]\n# # Tiny\n\n# %%\ntwo = 2\n\n# %% [markdown]\n# ## Further\n\n# %%\nthree = 3\n"


def read(folder: Path, *cells: str, head: str = HEAD) -> NotebookNode:
    source = folder / "00_tiny.py"
    source.write_text("\n".join([head, *cells]), encoding="utf-8")
    return pairs.read_source(source)


def verdicts(head: str, found: Sequence[exercises.Exercise]) -> list[tuple[bool, str]]:
    """For each exercise: whether its test fails at the stub, and what goes wrong with the solution."""
    start: dict[str, object] = {"__name__": "__main__"}
    exec(head, start)
    told = []
    for exercise in found:
        empty, solved = dict(start), dict(start)
        wrong = ""
        try:
            exec(exercise.stub + exercise.test, empty)
            fails = False
        except Exception:
            fails = True
        try:
            exec(exercise.stub + exercise.solution + exercise.test, solved)
        except Exception as error:
            wrong = repr(error)
        told.append((fails, wrong))
    return told


def judged(notebook: NotebookNode) -> list[tuple[bool, str]]:
    """`verdicts` of a notebook, in a process of its own: a notebook sets up torch and matplotlib."""
    with ProcessPoolExecutor(1, mp_context=FORKED) as pool:
        return pool.submit(verdicts, exercises.head(notebook), exercises.exercises(notebook)).result()


SOURCES = pairs.find_sources(ROOT / "notebooks")
WITH_TESTS = [name for name, path in SOURCES.items() if exercises.TEST in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("name", WITH_TESTS)
def test_every_test_passes_with_the_solution_and_fails_without(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT / "notebooks")
    notebook = pairs.read_source(SOURCES[name])
    for exercise, verdict in zip(exercises.exercises(notebook), judged(notebook), strict=True):
        assert verdict == (True, ""), exercise.question


def test_solutions_and_checks_are_folded_once(tmp_path: Path) -> None:
    written_back = SOLUTION.replace("def add", "# @title Solution\ndef add")  # by an editor
    check = '# %% tags=["check"]\nassert two == 2\n'
    *_, again, once, folded = read(tmp_path, *GOOD, written_back, SOLUTION, check).cells
    assert again.source == once.source == "# @title Solution\ndef add(a, b):\n    return a + b"
    assert once.metadata == {"tags": ["solution"], **folds.ALL_HIDDEN}
    assert folded.metadata.jupyter == {"source_hidden": True}  # its output is not: it says why it fails


@pytest.mark.parametrize(
    ("cells", "faults"),
    [
        (GOOD, []),
        ([QUESTION, SOLUTION, SOLUTION.replace("add", "more")], []),
        ([QUESTION], ["no exercise"]),
        (["# %%\nx = 1\n", SOLUTION], ["no question"]),
        ([QUESTION.replace("easy", "simple"), *GOOD[1:]], ["unmarked"]),
        ([QUESTION, SOLUTION, STUB, TEST], ["order"]),
        ([QUESTION, STUB, TEST, QUESTION, SOLUTION], ["order"]),
        ([*GOOD, "# %%\nprint(add(1, 2))\n"], []),  # the stub defines it, and so does the student
        ([QUESTION, SOLUTION, "# %%\nprint(add(1, 2))\n"], ["needs a solution"]),
    ],
)
def test_faults_of_exercises_are_named(tmp_path: Path, cells: list[str], faults: list[str]) -> None:
    assert [name for _, name, _ in exercises.check_exercises(read(tmp_path, *cells))] == faults


def test_the_student_edition_has_a_stub_or_an_empty_cell_in_place_of_each_solution(tmp_path: Path) -> None:
    whole = read(tmp_path, *GOOD, QUESTION, SOLUTION, SOLUTION, "# %%\nlast = 1\n")
    for cell in (cell for cell in whole.cells if cell.cell_type == "code"):
        cell.outputs = [nbformat.v4.new_output("stream", text="output\n")]
    edition = student.student_edition(whole)
    nbformat.validate(edition)
    assert edition.cells[1].source == student.ABOUT
    code = [cell for cell in edition.cells if cell.cell_type == "code"]
    sources = [cell.source.partition("\n")[0] for cell in code]
    assert sources == ["two = 2", "three = 3", "def add(a, b):", "assert add(1, 1) == two", "", "last = 1"]
    assert [bool(cell.outputs) for cell in code] == [True, True, False, False, False, True]
    assert code[2].source.endswith('raise NotImplementedError("your code here")')
    assert "return a + b" not in nbformat.writes(edition)
    # An exercise that is not done yet does not stop "Run all".
    NotebookClient(edition, kernel_name="python3").execute()
    assert [cell for cell in edition.cells if cell.cell_type == "code"][-1].execution_count


def test_the_whole_series_is_written_without_a_solution_and_a_students_work_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    student.main(["--out", str(tmp_path)])
    names = {path.name for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert not any('"solution"' in path.read_text(encoding="utf-8") for path in tmp_path.iterdir())
    texts = "".join(path.read_text(encoding="utf-8") for path in tmp_path.iterdir())
    links = {
        link for link in re.findall(r"\]\(([^)#]+)", texts) if link.endswith(".ipynb") and "://" not in link
    }
    assert any("/evidence/" in link for link in links)
    assert [link for link in links if not tmp_path.joinpath(link).exists()] == []
    mine, executed, torn = sorted(tmp_path.iterdir())[:3]
    mine.write_text(mine.read_text().replace("Student edition", "My own edition"))
    torn.write_text("{")
    run = nbformat.read(executed, as_version=4)
    run.cells[-1].metadata["mark"] = 1
    nbformat.write(run, executed)
    before = mine.read_bytes(), torn.read_bytes()
    monkeypatch.setattr(student, "ABOUT", "A newer edition.")
    student.main(["--out", str(tmp_path)])
    assert (mine.read_bytes(), torn.read_bytes()) == before
    assert "A newer edition." in executed.read_text()
