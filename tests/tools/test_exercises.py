"""Exercises: a test judges the learner's code, whatever ran before it; faults of their form are named."""

import re
import shutil
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from copy import deepcopy
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from tiny_runs import FORKED
from wrong_answers import WRONG, right_answer, wrong_answer

import exercises
import folds
import judging
import pairs
import student

ROOT = Path(__file__).parents[2]
QUESTION = "# %% [markdown]\n# **Exercise 1 (easy).** Add.\n"
STUB = '# %% tags=["exercise"]\ndef add(a, b):\n    raise NotImplementedError\n'
TEST = f"""# %% tags=["exercise-test"]
def test_add(add):
    assert add(1, 1) == 2, f"1 + 1 is 2, not {{add(1, 1)}}"

{exercises.JUDGE.format(call="test_add(add)")}
"""
SOLUTION = '# %% tags=["solution"]\ndef solution(a, b):\n    return a + b\n\n\ntest_add(solution)\n'
GOOD = [QUESTION, STUB, TEST, SOLUTION]
ALONE = '# %% tags=["solution"]\nanswer = 1 + 1\n'
HEAD = "# %% [markdown]\n# # Tiny\n\n# %%\ntwo = 2\n\n# %% [markdown]\n# ## Further\n\n# %%\nthree = 3\n"


def read(folder: Path, *cells: str, head: str = HEAD) -> NotebookNode:
    source = folder / "00_tiny.py"
    source.write_text("\n".join([head, *cells]), encoding="utf-8")
    return pairs.read_source(source)


# ---- what a test says of an answer

SOURCES = pairs.find_sources(ROOT / "notebooks")
WITH_TESTS = [name for name, path in SOURCES.items() if exercises.TEST in path.read_text(encoding="utf-8")]


def judge_all(found: Sequence[tuple[exercises.Exercise, list[str]]]) -> list[list[str]]:
    """What each exercise's test says of each answer, where nothing of the lesson has run."""
    return [[judging.judge({}, exercise, answer) for answer in answers] for exercise, answers in found]


@pytest.mark.parametrize("name", WITH_TESTS)
def test_the_stub_is_not_written_the_solution_right_and_a_wrong_answer_told_what_is_wrong(name: str) -> None:
    notebook = pairs.read_source(SOURCES[name])
    found = exercises.exercises(notebook)
    numbers = [int(re.search(r"Exercise (\d+)", exercise.question)[1]) for exercise in found]
    wrong = [WRONG[name, number] for number in numbers]
    answers = [
        ["", right_answer(exercise), *(wrong_answer(exercise, each) for each in of_it)]
        for exercise, of_it in zip(found, wrong, strict=True)
    ]
    with ProcessPoolExecutor(1, mp_context=FORKED) as pool:  # an answer may leave its traces
        judged = pool.submit(judge_all, list(zip(found, answers, strict=True))).result()
    for (stub, right, *others), of_it in zip(judged, wrong, strict=True):
        assert (stub, right) == (judging.UNWRITTEN, judging.RIGHT)
        assert len(others) >= 3
        for said, each in zip(others, of_it, strict=True):
            assert said.startswith("wrong: "), each.fault
            assert each.says in said, each.fault


def test_wrong_answers_are_those_of_exercises() -> None:
    assert {name for name, _ in WRONG} == set(WITH_TESTS)


# ---- a whole notebook, run


def run_all(notebook: NotebookNode) -> list[NotebookNode]:
    """Run a notebook as Run All does, until a cell fails; returns the cells of tests, with their outputs."""
    with suppress(CellExecutionError):
        NotebookClient(
            notebook, kernel_name="python3", resources={"metadata": {"path": str(ROOT / "notebooks")}}
        ).execute()
    return [cell for cell in notebook.cells if exercises.role(cell) == exercises.TEST]


def printed(cell: NotebookNode) -> str:
    """What a cell printed: the kernel may send one line in several outputs."""
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def test_run_all_goes_on_at_a_stub() -> None:
    notebook = pairs.read_source(SOURCES["02_attention"])
    assert [printed(test) for test in run_all(notebook)] == ["not yet written\n"] * 2
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")


def test_run_all_judges_the_learners_answer_and_not_the_solution_before_it() -> None:
    """A right answer to the first exercise, a wrong one to the second, each behind the solution."""
    notebook = pairs.read_source(SOURCES["02_attention"])
    first, second = exercises.exercises(notebook)
    wrong = WRONG["02_attention", 3][0]
    answers = {second.position: wrong_answer(second, wrong), first.position: right_answer(first)}
    for stub, answer in answers.items():  # from the last, so that the positions stay
        again = [nbformat.v4.new_code_cell(answer), deepcopy(notebook.cells[stub + 1])]
        notebook.cells[stub + 3 : stub + 3] = [*again, nbformat.v4.new_code_cell("after = 1")]
    stub, right, second_stub, refused = run_all(notebook)
    assert [printed(test) for test in (stub, right)] == ["not yet written\n", "right\n"]
    assert printed(second_stub) == "not yet written\n"
    (error,) = refused.outputs
    assert error.ename == "AssertionError"
    assert wrong.says in error.evalue
    assert [cell.execution_count for cell in notebook.cells if cell.source == "after = 1"][1:] == [None]


# ---- the form


def test_solutions_and_checks_are_folded_once(tmp_path: Path) -> None:
    written_back = SOLUTION.replace("def solution", "# @title Solution\ndef solution")  # by an editor
    check = '# %% tags=["check"]\nassert two == 2\n'
    *_, again, once, folded = read(tmp_path, *GOOD, written_back, SOLUTION, check).cells
    assert again.source == once.source
    assert once.source.startswith("# @title Solution\ndef solution(a, b):\n")
    assert once.metadata == {"tags": ["solution"], **folds.ALL_HIDDEN}
    assert folded.metadata.jupyter == {"source_hidden": True}  # its output is not: it says why it fails


@pytest.mark.parametrize(
    ("cells", "faults"),
    [
        (GOOD, []),
        ([QUESTION, ALONE, ALONE.replace("answer", "more")], []),
        ([QUESTION], ["no exercise"]),
        (["# %%\nx = 1\n", ALONE], ["no question"]),
        ([QUESTION.replace("easy", "simple"), *GOOD[1:]], ["unmarked"]),
        ([QUESTION, STUB, SOLUTION, TEST], ["order"]),
        ([QUESTION, STUB, TEST, QUESTION, SOLUTION], ["order"]),
        ([QUESTION, STUB, SOLUTION], ["order"]),
        ([QUESTION, STUB, TEST.replace("def test_add(add)", "def test_add(sum)"), SOLUTION], ["no function"]),
        ([QUESTION, STUB, TEST.replace("def test", "one = 1\n\n\ndef test"), SOLUTION], ["no function"]),
        ([QUESTION, STUB, TEST.replace('print("right")', "pass"), SOLUTION], ["no judgement"]),
        ([QUESTION, STUB, re.sub(", f.*", "", TEST), SOLUTION], ["no message"]),
        ([QUESTION, STUB, TEST, SOLUTION.replace("test_add(solution)", "")], ["untested"]),
        ([QUESTION, STUB, TEST, re.sub(r"solution(?=[(\)])", "add", SOLUTION)], ["rebinds"]),
        ([QUESTION, STUB, TEST.replace("== 2", "== two"), SOLUTION], ["not imported"]),
        ([QUESTION, STUB, TEST.replace("== 2", "== math.pi"), SOLUTION], ["not imported"]),
        ([QUESTION, ALONE.replace("answer", "three")], ["rebinds"]),
        ([*GOOD, "# %%\nprint(add)\n"], []),  # the stub defines it, and so does the learner
        ([QUESTION, ALONE, "# %%\nprint(answer)\n"], ["needs a solution"]),
    ],
)
def test_faults_of_exercises_are_named(tmp_path: Path, cells: list[str], faults: list[str]) -> None:
    assert [name for _, name, _ in exercises.check_exercises(read(tmp_path, *cells))] == faults


# ---- the student edition


def test_the_student_edition_has_a_stub_or_an_empty_cell_in_place_of_each_solution(tmp_path: Path) -> None:
    whole = read(tmp_path, *GOOD, QUESTION, ALONE, ALONE, "# %%\nlast = 1\n")
    edition = student.student_edition(whole)
    nbformat.validate(edition)
    assert edition.cells[1].source == student.ABOUT
    code = [cell for cell in edition.cells if cell.cell_type == "code"]
    sources = [cell.source.partition("\n")[0] for cell in code]
    assert sources == ["two = 2", "three = 3", "def add(a, b):", "def test_add(add):", "", "last = 1"]
    assert "return a + b" not in nbformat.writes(edition)
    (test,) = run_all(edition)
    assert printed(test) == "not yet written\n"
    assert code[-1].execution_count


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


def test_what_somebody_wrote_into_a_lesson_is_not_handed_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for suffix in (".py", ".ipynb"):
        shutil.copy(ROOT / f"notebooks/02_attention{suffix}", tmp_path)
    lesson = tmp_path / "02_attention.ipynb"
    solved = nbformat.read(lesson, as_version=4)
    stub = next(cell for cell in solved.cells if exercises.role(cell) == exercises.STUB)
    stub.source = "my_secret_answer = 1"
    nbformat.write(solved, lesson)
    student.write_editions(tmp_path, tmp_path / "student")
    assert "my_secret_answer" not in (tmp_path / "student" / lesson.name).read_text(encoding="utf-8")
    assert "02_attention.ipynb was edited" in capsys.readouterr().err
