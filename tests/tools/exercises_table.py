"""Print what the tests of all exercises say of the stub, of wrong answers and of the right one.

    PYTHONPATH=tools/notebooks python tests/tools/exercises_table.py > table.md

Each answer is tested in a kernel, once more there behind the solution, and as `grade.py` does it, but in one
process for all. Exit code 1: a row is not as it should be.
"""

import json
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from wrong_answers import WRONG, right_answer, wrong_answer

import judging
from exercises import Exercise, definitions, exercises
from pairs import find_sources, read_source

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
WANTED = {
    "stub": re.compile(judging.UNWRITTEN),
    "right": re.compile(f"(A cat .* )?{judging.RIGHT}"),
    "wrong": re.compile(r"(.* )?(AssertionError|wrong): .+"),
}


def answers(name: str, exercise: Exercise) -> Iterator[tuple[str, str, str]]:
    """Yield the kind, a description and the code of each answer that is tried."""
    number = int(re.search(r"Exercise (\d+)", exercise.question)[1])
    yield "stub", "as it is", exercise.stub
    for wrong in WRONG[name, number]:
        yield "wrong", wrong.fault, wrong_answer(exercise, wrong)
    yield "right", "the solution's code", right_answer(exercise)


def run(exercise: Exercise, codes: list[str]) -> Iterator[tuple[str, str]]:
    """Yield what the test's cell says of each code in a kernel: behind it, and behind the solution."""
    roles = [(exercise.stub, code, exercise.test, exercise.solution, exercise.test) for code in codes]
    notebook = new_notebook(cells=[new_code_cell(source) for sources in roles for source in sources])
    NotebookClient(notebook, kernel_name="python3", allow_errors=True).execute()
    for at in range(0, len(notebook.cells), 5):
        yield said(notebook.cells[at + 2].outputs), said(notebook.cells[at + 4].outputs)


def said(outputs: list) -> str:
    """Return the text and the error of a cell as one line."""
    texts = [f"{o.ename}: {o.evalue}" if o.output_type == "error" else o.get("text", "") for o in outputs]
    return " ".join(" ".join(texts).split())


def graded(job: str) -> str:
    """Return as one line what grading says of an answer, which may print."""
    with redirect_stdout(StringIO()):
        return " ".join(judging.judge_answer(job).split())


def main() -> int:
    print("| exercise | answer | in a kernel | once more, behind the solution | graded |")
    print("| --- | --- | --- | --- | --- |")
    failed = count = 0
    for name, path in find_sources(NOTEBOOKS).items():
        notebook = read_source(path)
        for exercise in exercises(notebook):
            kinds, told, codes = zip(*answers(name, exercise), strict=True)
            jobs = [json.dumps([definitions(notebook), exercise, code]) for code in codes]
            with ProcessPoolExecutor(1) as pool:
                grades = pool.map(graded, jobs)
                rows = list(zip(kinds, told, run(exercise, list(codes)), grades, strict=True))
            number = re.search(r"Exercise (\d+)", exercise.question)[1]
            for kind, what, (first, again), grade in rows:
                good = all(WANTED[kind].fullmatch(text) for text in (first, again, grade))
                failed, count = failed + (not good), count + 1
                once_more = "the same" if again == first else again
                cells = [f"{name} {number}", f"{kind}: {what}", first, once_more, grade]
                short = [each[:160].replace("|", "\\|") for each in cells]
                print("|", " | ".join(short), "|" if good else "| NOT AS IT SHOULD BE |", flush=True)
    print(f"\n{count} rows; not as they should be: {failed}.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
