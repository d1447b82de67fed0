"""What the pages are made of: the notebooks, and pages with places to fill."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import nbformat
from nbformat import NotebookNode


def fill(page: Path, **texts: str) -> None:
    """Put each text into a page, in the place of its name."""
    content = page.read_text(encoding="utf-8")
    for name, text in texts.items():
        content = content.replace(name, text)
    page.write_text(content, encoding="utf-8")


Notebooks = list[tuple[Path, NotebookNode]]


def read(root: Path, pattern: str) -> Notebooks:
    """Read executed notebooks, in order, each with its path."""
    paths = sorted((root / "notebooks").glob(pattern))
    return [(path, nbformat.read(path, as_version=4)) for path in paths]


notebooks = partial(read, pattern="[0-9][0-9]_*.ipynb")  # the lessons
evidence = partial(read, pattern="evidence/*.ipynb")
translations = partial(read, pattern="[a-z][a-z]/[0-9][0-9]_*.ipynb")


def title_of(notebook: NotebookNode) -> str:
    """The heading of a notebook."""
    return headings(notebook.cells[0])[0]


def headings(cell: NotebookNode) -> list[str]:
    """The headings in a cell, in order."""
    lines = cell.source.splitlines() if cell.cell_type == "markdown" else []
    return [line.lstrip("# ").rstrip() for line in lines if line.startswith("#")]


def with_sections(notebook: NotebookNode) -> Iterator[tuple[str, NotebookNode]]:
    """Each cell with the heading that it stands under."""
    section = ""
    for cell in notebook.cells:
        section = [section, *headings(cell)][-1]
        yield section, cell


def slug(heading: str) -> str:
    """The name that a heading gets on its page, as GitHub makes it; formulas leave no trace."""
    text = "".join(heading.split("$")[::2])
    return "".join(c for c in text.lower().replace(" ", "-") if c.isalnum() or c in "-_")
