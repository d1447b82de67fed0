"""What the pages are made of: the notebooks, the tables beside this file, and pages with places to fill."""

import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

import nbformat
from nbformat import NotebookNode


def fill(page: Path, **texts: str) -> None:
    """Put each text into a page, in the place of its name."""
    content = page.read_text(encoding="utf-8")
    for name, text in texts.items():
        content = content.replace(name, text)
    page.write_text(content, encoding="utf-8")


# ---- the notebooks


def notebooks(root: Path) -> list[tuple[Path, NotebookNode]]:
    """Read the executed notebooks, in order, each with its path."""
    paths = sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    return [(path, nbformat.read(path, as_version=4)) for path in paths]


def evidence(root: Path) -> list[tuple[Path, NotebookNode]]:
    """Read the executed notebooks that answer a question each, with their paths."""
    paths = sorted((root / "notebooks/evidence").glob("*.ipynb"))
    return [(path, nbformat.read(path, as_version=4)) for path in paths]


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


# ---- the tables


@cache
def read_table(name: str) -> list[Any]:
    """The entries of `glossary.toml`, `questions.toml` or `names.toml`."""
    text = (Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8")
    [entries] = tomllib.loads(text).values()
    return entries


def terms_in(notebook: str) -> list[str]:
    """The glossary's terms that this notebook shows."""
    return [entry["term"] for entry in read_table("glossary") if entry["notebook"] == notebook]


def terms_for(code: str) -> list[str]:
    """The glossary's terms that this name in code stands for."""
    return [entry["term"] for entry in read_table("glossary") if code in entry["code"]]


class Name(NamedTuple):
    """A public name of that post, the years that have it, our name without its `annotated.`, a remark."""

    theirs: str
    years: list[int]
    ours: str
    remark: str


def classic_names() -> list[Name]:
    """Every public name of "The Annotated Transformer" (2018 and 2022), and where it is here.

    A reader of that post finds most of its names in `annotated`, with the same arguments in the same order.
    Others have been superseded; the table says by what.
    """
    return [Name(*entry) for entry in read_table("names")]


def find(ours: str) -> object:
    """Get what a path such as `data.Batch.make_std_mask` names. Raises ImportError or AttributeError."""
    return resolve_name(f"annotated.{ours}")
