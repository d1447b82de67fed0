"""Write the student edition: the executed notebooks without the solutions, into student/.

    python tools/notebooks/student.py              into student/
    python tools/notebooks/student.py --out DIR    elsewhere

An exercise keeps its stub and its test; one without them gets an empty cell. A notebook in the folder in
which a student has written stays as it is, and is named; others are written anew.
"""

import argparse
import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from address import find_repository
from exercises import groups, role
from folds import SOLUTION
from pairs import read_source, with_outputs

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "notebooks"
ABOUT = """**Student edition.** The exercises' solutions are taken out. Write into the cells below each
exercise. Where a test follows, run its cell: it says `right`, or what is wrong. An answer may use what the
notebook imports, its functions, classes and plain constants, but nothing that it computes, such as a trained
model; define what else you need below the exercise. The solutions are in the notebook of the same name under
`notebooks/`."""


def student_edition(notebook: NotebookNode) -> NotebookNode:
    """Take the solutions out of a notebook."""
    cells, done = [], 0
    for begin, end in groups(notebook):
        cells += notebook.cells[done:begin]
        kept = [cell for cell in notebook.cells[begin:end] if role(cell) != SOLUTION]
        cells += kept or [nbformat.v4.new_code_cell(id=f"{notebook.cells[begin].id}-empty")]
        done = end
    about = nbformat.v4.new_markdown_cell(ABOUT, id="student-edition")
    notebook.cells = [*cells[:1], about, *cells[1:], *notebook.cells[done:]]
    notebook.metadata["student_edition"] = fingerprint(notebook)
    return notebook


def fingerprint(notebook: NotebookNode) -> str:
    """Return a checksum of what the cells say, whatever their outputs."""
    return hashlib.sha256("\0".join(cell.source for cell in notebook.cells).encode()).hexdigest()


def is_untouched(path: Path) -> bool:
    """Return whether a notebook of the edition says what it said when it was written."""
    try:
        notebook = nbformat.read(path, as_version=4)
    except (nbformat.reader.NotJSONError, ValueError):
        return False
    return notebook.metadata.get("student_edition") == fingerprint(notebook)


def write_editions(built: Path, out: Path) -> tuple[list[Path], list[Path]]:
    """Write the student edition of each notebook into `out`; returns what was written, and what stays."""
    out.mkdir(parents=True, exist_ok=True)
    written, kept = [], []
    home = find_repository(ROOT / "pyproject.toml")
    home = f"{home}/blob/main/notebooks" if home else os.path.relpath(built, out)
    for path in sorted(built.glob("[0-9][0-9]_*.ipynb")):
        try:
            notebook = with_outputs(path.with_suffix(".py"), path)
        except ValueError:  # somebody has solved an exercise in it
            notebook = read_source(path.with_suffix(".py"))
            print(f"{path.name} was edited: its source is taken, without outputs", file=sys.stderr)
        for cell in notebook.cells:  # evidence has no edition for students
            cell.source = cell.source.replace("](evidence/", f"]({home}/evidence/")
        text = nbformat.writes(student_edition(notebook)) + "\n"
        target = out / path.name
        if target.exists() and target.read_text(encoding="utf-8") != text and not is_untouched(target):
            kept.append(target)
        else:
            target.write_text(text, encoding="utf-8", newline="\n")
            written.append(target)
    return written, kept


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the notebooks without their solutions.")
    parser.add_argument("--out", type=Path, default=ROOT / "student", help="default: student/")
    out = parser.parse_args(arguments).out
    written, kept = write_editions(NOTEBOOKS, out)
    print(f"{len(written)} notebooks in {out}", file=sys.stderr)
    if kept:
        names = ", ".join(path.name for path in kept)
        print(f"kept, because somebody wrote in them: {names}; rename one to get it anew", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
