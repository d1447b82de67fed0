"""Notebooks of students are graded against the original's tests, whatever stands in them."""

import csv
from pathlib import Path

import nbformat
import pytest

import exercises
import grade
import student

ROOT = Path(__file__).parents[2]


def test_a_folder_of_notebooks_is_graded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def submit(who: str, code: str) -> None:
        edition = student.student_edition(nbformat.read(ROOT / "notebooks/02_attention.ipynb", as_version=4))
        stub, test = (
            next(c for c in edition.cells if exercises.role(c) == r) for r in (exercises.STUB, exercises.TEST)
        )
        stub.source, test.source = code, "pass"
        (tmp_path / who).mkdir()
        nbformat.write(edition, tmp_path / who / "02_attention.ipynb")

    original = nbformat.read(ROOT / "notebooks/02_attention.ipynb", as_version=4)
    first = exercises.exercises(original)[0]
    submit("ada", first.solution)
    submit("bob", first.stub)
    submit("eve", "while True:\n    pass")
    assert grade.main([str(tmp_path), "--csv", str(tmp_path / "grades.csv"), "--timeout", "25"]) == 1
    with (tmp_path / "grades.csv").open(encoding="utf-8", newline="") as file:
        of = {
            row["submission"].split("/")[0]: row["verdict"]
            for row in csv.DictReader(file)
            if "2" in row["exercise"]
        }
    assert of == {"ada": "passed", "bob": "not written yet", "eve": "still running after 25 seconds"}
    with pytest.raises(SystemExit):
        grade.main([str(ROOT / "images")])
    assert "no .ipynb" in capsys.readouterr().err
