"""The numbers of the drawings: those that notebook 00 computes, by running its own cells."""

import contextlib
import io
from pathlib import Path
from types import SimpleNamespace

import jupytext

LESSON = Path(__file__).resolve().parents[2] / "notebooks/00_start_here.py"
FIRST, LAST = "### ▸ A model small enough to print", "### The model is complete"


def read_numbers(lesson: Path = LESSON) -> SimpleNamespace:
    """Run the lesson from its tiny model to its loss, checks left out, and return all that it names."""
    cells = jupytext.read(lesson, fmt="py:percent").cells
    begin, end = (
        next(place for place, cell in enumerate(cells) if title in cell.source) for title in (FIRST, LAST)
    )
    names: dict[str, object] = {}
    for cell in cells[begin:end]:
        if cell.cell_type == "code" and "check" not in cell.metadata.get("tags", []):
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(cell.source, lesson.name, "exec"), names)
    return SimpleNamespace(**names)
