"""Exercises: solutions are folded and faults named; a test passes with the solution and fails without it."""

import json
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


def test_a_test_that_asks_for_nothing_and_a_wrong_solution_are_seen(tmp_path: Path) -> None:
    idle = '# %% tags=["exercise-test"]\nassert two == 2\n'
    wrong = SOLUTION.replace("a + b", "a - b")
    needy = TEST.replace("two", "three - 1")  # `three` is not of the head
    notebook = read(tmp_path, *GOOD, *GOOD[:3], idle, *GOOD[:2], wrong, TEST, *GOOD[:3], needy)
    fails, told = zip(*judged(notebook), strict=True)
    assert fails == (True, False, True, True)
    assert [message.partition("(")[0] for message in told] == ["", "", "AssertionError", "NameError"]


def test_a_solution_and_its_outputs_are_folded_and_nothing_else_is(tmp_path: Path) -> None:
    cells = read(tmp_path, *GOOD).cells
    [solution] = [cell for cell in cells if cell.metadata.get("jupyter")]
    assert solution.source.startswith("# @title Solution\ndef add")
    assert solution.metadata == {"tags": ["solution"], **folds.ALL_HIDDEN}


def test_a_check_is_folded_but_shows_why_it_fails(tmp_path: Path) -> None:
    check = read(tmp_path, '# %% tags=["check"]\nassert two == 2\n').cells[-1]
    assert check.source == "# @title Check\nassert two == 2"
    assert check.metadata.jupyter == {"source_hidden": True}


def test_an_exercise_may_use_every_import_of_its_notebook(tmp_path: Path) -> None:
    head = exercises.head(read(tmp_path, "# %%\nimport math\n\nx = math.pi\n"))
    assert "import math" in head
    assert "three" not in head
    assert "x =" not in head


def test_a_source_that_an_editor_wrote_back_is_folded_once(tmp_path: Path) -> None:
    written_back = SOLUTION.replace("def add", "# @title Solution\ndef add")
    again, once = (read(tmp_path, QUESTION, text).cells[-1] for text in (written_back, SOLUTION))
    assert again.source == once.source


@pytest.mark.parametrize(
    ("cells", "faults"),
    [
        (GOOD, []),
        ([QUESTION, SOLUTION, SOLUTION.replace("add", "more")], []),
        ([QUESTION], ["no exercise"]),
        ([SOLUTION], ["no question"]),
        (["# %%\nx = 1\n", SOLUTION], ["no question"]),
        ([QUESTION.replace(" (easy)", ""), *GOOD[1:]], ["unmarked"]),
        ([QUESTION.replace("easy", "simple"), *GOOD[1:]], ["unmarked"]),
        ([QUESTION.replace(" (easy)", ""), SOLUTION], []),
        ([QUESTION, SOLUTION, STUB, TEST], ["order"]),
        ([*GOOD, SOLUTION], ["order"]),
        ([QUESTION, STUB, TEST, QUESTION, SOLUTION], ["order"]),
        ([*GOOD, "# %%\nprint(add(1, 2))\n"], []),  # the stub defines it, and so does the student
        ([QUESTION, SOLUTION, "# %%\nprint(add(1, 2))\n"], ["needs a solution"]),
        ([QUESTION, SOLUTION, "# %%\nadd = sum\nprint(add([1]))\n"], []),
    ],
)
def test_faults_of_exercises_are_named(tmp_path: Path, cells: list[str], faults: list[str]) -> None:
    assert [name for _, name, _ in exercises.check_exercises(read(tmp_path, *cells))] == faults


def built(folder: Path, *cells: str) -> NotebookNode:
    """A notebook as after its run, with an output in every code cell."""
    notebook = read(folder, *cells)
    for count, cell in enumerate((c for c in notebook.cells if c.cell_type == "code"), start=1):
        cell.execution_count = count
        cell.outputs = [nbformat.v4.new_output("stream", text=f"output {count}\n")]
    return notebook


def test_the_student_edition_has_a_stub_or_an_empty_cell_in_place_of_each_solution(tmp_path: Path) -> None:
    whole = built(tmp_path, *GOOD, QUESTION, SOLUTION, SOLUTION, "# %%\nlast = 1\n")
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


def test_one_command_writes_the_whole_series_without_a_solution(tmp_path: Path) -> None:
    out = tmp_path / "student"
    for _ in range(2):  # made anew, too
        student.main(["--out", str(out)])
    names = {path.name for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")}
    assert {path.name for path in out.iterdir()} == names
    for path in out.iterdir():
        tags = [cell["metadata"].get("tags", []) for cell in json.loads(path.read_text())["cells"]]
        assert not any(folds.SOLUTION in each for each in tags)


def test_a_students_work_is_kept_and_the_rest_refreshed(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    student.main(["--out", str(tmp_path)])
    mine, executed, torn = sorted(tmp_path.iterdir())[:3]
    mine.write_text(mine.read_text().replace("Student edition", "My own edition"))
    torn.write_text("{")
    run = nbformat.read(executed, as_version=4)
    run.cells[-1].metadata["mark"] = 1
    nbformat.write(run, executed)
    before = mine.read_bytes(), torn.read_bytes()
    monkeypatch.setattr(student, "ABOUT", "A newer edition.")
    capsys.readouterr()
    student.main(["--out", str(tmp_path)])
    assert (mine.read_bytes(), torn.read_bytes()) == before
    assert "A newer edition." in executed.read_text()
    said = capsys.readouterr().err
    assert mine.name in said
    assert executed.name not in said
