"""The page for teachers: its table is read from the notebooks, from their heads and their exercises."""

import re
from pathlib import Path

from nbformat import NotebookNode

from exercises import MARKED, exercises
from lessons import MINUTES
from sources import fill, notebooks, title_of

BEFORE, AFTER = (re.compile(rf"^- \*\*{w}:\*\* (.*(?:\n  .*)*)", re.MULTILINE) for w in ("Before", "After"))


def write_teaching(root: Path, folder: Path) -> None:
    """Put the table into the page."""
    rows = ["* - " + "\n  - ".join(row(*each)) for each in notebooks(root)]
    fill(folder / "teaching.md", ROWS="\n".join(rows))


def row(path: Path, notebook: NotebookNode) -> tuple[str, ...]:
    """One notebook's cells; one is empty where the head of the notebook does not say what belongs there."""
    minutes, before, after = (
        pattern.search(notebook.cells[0].source) for pattern in (MINUTES, BEFORE, AFTER)
    )
    return (
        f"[{title_of(notebook)}](notebooks/{path.name})",
        f"{minutes[1]} to read; {minutes[2]}" if minutes else "",
        one_line(before[1]) if before else "",
        one_line(after[1]) if after else "",
        task_list(notebook),
    )


def one_line(text: str) -> str:
    """A text of several lines in one, its links as they stand on a page one folder above the notebooks."""
    return re.sub(r"\]\((\d\d_)", r"](notebooks/\1", " ".join(text.split()))


def task_list(notebook: NotebookNode) -> str:
    """The exercises, by how hard they are, and how many of them have a test."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    levels = sorted(MARKED.findall(text), key=("easy", "medium", "hard").index)
    return f"{', '.join(levels)}; {len(exercises(notebook))} with a test"
