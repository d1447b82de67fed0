"""Write the student edition: the executed notebooks without the solutions, into student/.

    python notebooks/student.py              into student/, made anew
    python notebooks/student.py --out DIR    elsewhere; DIR must not be there, or be an earlier edition

In the place of a solution stands the exercise's stub, or an empty cell; its test follows, ready to run.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from exercises import SOLUTION, STUB, groups, role

HERE = Path(__file__).resolve().parent


def student_edition(notebook: NotebookNode) -> NotebookNode:
    """Take the solutions out of a notebook, and the outputs of their exercises' other cells."""
    cells, done = [], 0
    for begin, end in groups(notebook):
        cells += notebook.cells[done:begin]
        kept = [cell for cell in notebook.cells[begin:end] if role(cell) != SOLUTION]
        if not any(role(cell) == STUB for cell in kept):
            kept.insert(0, nbformat.v4.new_code_cell(id=f"{notebook.cells[begin].id}-empty"))
        for cell in kept:
            cell.outputs, cell.execution_count = [], None
        cells += kept
        done = end
    notebook.cells = cells + notebook.cells[done:]
    return notebook


def write_editions(built: Path, out: Path) -> list[Path]:
    """Write the student edition of every notebook of the folder `built` into `out`, which is made anew."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    written = []
    for path in sorted(built.glob("[0-9][0-9]_*.ipynb")):
        edition = student_edition(nbformat.read(path, as_version=4))
        written.append(out / path.name)
        written[-1].write_text(nbformat.writes(edition) + "\n", encoding="utf-8", newline="\n")
    return written


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the notebooks without their solutions.")
    parser.add_argument("--out", type=Path, default=HERE.parent / "student", help="default: student/")
    out = parser.parse_args(arguments).out
    if strangers := [path.name for path in out.glob("*") if not path.match("[0-9][0-9]_*.ipynb")]:
        parser.error(f"{out} holds {strangers[0]}, and would be made anew: name an empty folder")
    print(f"{len(write_editions(HERE, out))} notebooks in {out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
