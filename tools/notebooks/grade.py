"""Grade notebooks of the student edition: each exercise against the test of the original.

    python tools/notebooks/grade.py submissions/ --csv grades.csv

Every .ipynb below the folder whose name contains a notebook's name, such as `ada/02_attention.ipynb` or
`02_attention_ada.ipynb`, is a submission. What stands below an exercise's text is the answer; a test that a
student has changed does not count. An answer is code that runs on this machine, in a process of its own with
a time limit.
"""

import argparse
import csv
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from pathlib import Path

import nbformat

from exercises import MARKED, Exercise, exercises, head
from pairs import find_sources, read_source

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
Grade = tuple[str, str, str, str]  # submission, notebook, exercise, verdict


def answer(submission: Path, exercise: Exercise) -> str:
    """Return the code that stands below an exercise's text, without its test."""
    title = MARKED.search(exercise.question)
    code: list[str] = []
    below = False
    for cell in nbformat.read(submission, as_version=4).cells:
        if cell.cell_type == "markdown":
            below = title is not None and title[0] in cell.source
        elif cell.cell_type == "code" and below and "exercise-test" not in cell.metadata.get("tags", []):
            code.append(cell.source)
    return "\n".join(code)


def verdict(code: str, seconds: float) -> str:
    """Run code in a process of its own: "passed", "not written yet", or the last line of its error."""
    try:
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=NOTEBOOKS, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"still running after {seconds:g} seconds"
    if done.returncode == 0:
        return "passed"
    error = (done.stderr.strip().splitlines() or [f"ended with exit code {done.returncode}"])[-1]
    return "not written yet" if error.startswith("NotImplementedError") else error


def grade(folder: Path, seconds: float) -> Iterator[Grade]:
    """Grade every submission below a folder, as many at a time as there are processors."""
    jobs: list[tuple[str, str, str, str]] = []
    sources = find_sources(NOTEBOOKS)
    for submission in sorted(folder.rglob("*.ipynb")):
        name = next((name for name in sources if name in submission.name), None)
        if name is None or ".ipynb_checkpoints" in submission.parts:
            continue
        original = read_source(sources[name])
        for exercise in exercises(original):
            parts = [head(original), exercise.stub, answer(submission, exercise), exercise.test]
            title = MARKED.search(exercise.question)
            number = title[0].strip("*") if title else exercise.question[:20]
            jobs.append((str(submission.relative_to(folder)), name, number, "\n".join(parts)))
    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        for job, said in zip(jobs, pool.map(lambda job: verdict(job[-1], seconds), jobs), strict=True):
            yield (*job[:-1], said)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Grade notebooks of the student edition.")
    parser.add_argument("folder", type=Path, help="submissions; folders in it are searched too")
    parser.add_argument("--csv", type=Path, help="write the grades to this file")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for an exercise; default: 120")
    args = parser.parse_args(arguments)
    grades = []
    for one in grade(args.folder, args.timeout):
        print(": ".join(one))
        grades.append(one)
    if not grades:
        parser.error(f"{args.folder}: no .ipynb has the name of a notebook in {NOTEBOOKS}")
    if args.csv is not None:
        with args.csv.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("submission", "notebook", "exercise", "verdict"), *grades])
    return 0 if all(said == "passed" for *_, said in grades) else 1


if __name__ == "__main__":
    sys.exit(main())
