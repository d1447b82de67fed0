"""Grade notebooks: each exercise that has a test, by the test of the original.

    python tools/notebooks/grade.py submissions/ --csv grades.csv

Every .ipynb below the folder whose name contains a notebook's name, such as `ada/02_attention.ipynb` or
`02_attention_ada.ipynb`, is a submission. What stands below an exercise's text is the answer; a test or a
solution in it does not count. An answer may use the original's imports, functions, classes and plain
constants, but nothing that it computes. It has passed when the original's test ran on it to its end.

This is no sandbox. An answer is code that runs on this machine, as you, in a process of its own with a time
limit: it may read and write your files. Use a machine, or a container, where strangers' code may run.
"""

import argparse
import csv
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from os import cpu_count
from pathlib import Path

import nbformat

import judging
from annotated.check.report import printable
from apart import call_apart
from exercises import MARKED, STUB, TAGS, Exercise, definitions, exercises, role
from pairs import find_sources, read_source

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
NUMBER = re.compile(r"^\*\*\w+ (\d+) ?[(（]", re.MULTILINE)  # of an exercise, in any language
CELL_MAGIC = re.compile(r"\A%%.*")  # such as %%time
LONGEST = 1000  # characters of a verdict
Grade = tuple[str, str, str, str]  # submission, notebook, exercise, verdict


def answer(cells: Sequence[nbformat.NotebookNode], exercise: Exercise) -> str:
    """Return the code that stands below an exercise's text, without its test and its solution."""
    code: list[str] = []
    below = False
    for cell in cells:
        number = NUMBER.search(cell.source)
        if cell.cell_type == "markdown" and (number or cell.source.startswith("#")):
            below = bool(number) and number[1] == NUMBER.search(exercise.question)[1]
        elif cell.cell_type == "code" and below and role(cell) not in TAGS - {STUB}:
            code.append(CELL_MAGIC.sub("", cell.source))
    return "\n".join(code)


def verdict(known: str, exercise: Exercise, code: str, seconds: float) -> str:
    """Judge an answer in a process of its own: "passed", or why it has not."""
    try:
        said = call_apart(judging.judge_answer, json.dumps([known, exercise, code]), seconds)
    except (TimeoutError, ChildProcessError) as error:
        said = str(error)
    return "passed" if said == judging.RIGHT else printable(" ".join(said.split()))[:LONGEST]


def grade(folder: Path, seconds: float) -> Iterator[Grade]:
    """Grade every submission below a folder, as many answers at a time as there are processors."""
    sources = find_sources(NOTEBOOKS)
    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        waiting = []
        for submission in sorted(folder.rglob("*.ipynb")):
            name = next((name for name in sources if name in submission.name), None)
            if name is None or ".ipynb_checkpoints" in submission.parts:
                continue
            of = printable(str(submission.relative_to(folder))), name
            try:
                cells = nbformat.read(submission, as_version=4).cells
            except Exception as error:  # whatever a file may hold, the others are graded
                waiting.append((*of, "all", pool.submit(str, f"not a notebook: {type(error).__name__}")))
                continue
            original = read_source(sources[name])
            for exercise in exercises(original):
                title = MARKED.search(exercise.question)
                number = title[0].strip("*") if title else exercise.question[:20]
                job = pool.submit(verdict, definitions(original), exercise, answer(cells, exercise), seconds)
                waiting.append((*of, number, job))
        for *of, job in waiting:
            yield (*of, job.result())


def as_text(cell: str) -> str:
    """Mark what a spreadsheet would take for a formula as text."""
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def positive(text: str) -> float:
    """Read a number of seconds."""
    if not 0 < (seconds := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds above 0")
    return seconds


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="submissions; folders in it are searched too")
    parser.add_argument("--csv", type=Path, help="write the grades to this file")
    parser.add_argument("--timeout", type=positive, default=120, help="seconds for an exercise; default: 120")
    args = parser.parse_args(arguments)
    grades = []
    with args.csv.open("w", encoding="utf-8", newline="") if args.csv else StringIO() as file:
        table = csv.writer(file)
        table.writerow(("submission", "notebook", "exercise", "verdict"))
        for one in grade(args.folder, args.timeout):
            print(": ".join(one), flush=True)
            table.writerow(map(as_text, one))
            grades.append(one)
    if not grades:
        parser.error(f"{args.folder}: no .ipynb has the name of a notebook in {NOTEBOOKS}")
    return 0 if all(said == "passed" for *_, said in grades) else 1


if __name__ == "__main__":
    sys.exit(main())
