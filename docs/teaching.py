"""The page for teachers: its table is read from the notebooks, from their heads and their exercises."""

import re
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from exercises import MARKED, exercises

TABLE = """```{{list-table}}
:header-rows: 1
:class: teaching

{rows}
```"""
HEAD = ("notebook", "minutes", "before it", "after it", "exercises")
MINUTES = re.compile(r"^\*(\d+) minutes to read, ([^,.]*)", re.MULTILINE)
BEFORE, AFTER = (
    re.compile(rf"^- \*\*{word}:\*\* (.*(?:\n  .*)*)", re.MULTILINE) for word in ("Before", "After")
)


def write_teaching(root: Path, folder: Path) -> None:
    """Put the table into the page."""
    page = folder / "teaching.md"
    rows = [HEAD, *(row(path) for path in sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb")))]
    table = TABLE.format(rows="\n".join("* - " + "\n  - ".join(cells) for cells in rows))
    page.write_text(page.read_text(encoding="utf-8").replace("TABLE", table), encoding="utf-8")


def row(path: Path) -> tuple[str, ...]:
    """One notebook's cells. Raises ValueError where its head lacks a line that the table needs."""
    notebook = nbformat.read(path, as_version=4)
    opening = notebook.cells[0].source
    found = [pattern.search(opening) for pattern in (MINUTES, BEFORE, AFTER)]
    if None in found:
        raise ValueError(
            f"{path.name}: its head needs '*n minutes to read, ...', '- **Before:**', '- **After:**'"
        )
    minutes, before, after = found
    title = opening.partition("\n")[0].lstrip("# ")
    times = f"{minutes[1]} to read; {minutes[2]}"
    return (
        f"[{title}](notebooks/{path.name})",
        times,
        *map(one_line, (before[1], after[1])),
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
