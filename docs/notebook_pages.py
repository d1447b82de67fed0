"""Each executed notebook as a page: alternative texts, live charts, solutions folded with their outputs."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from outputs import as_html
from tables import terms_in

INSTALLS = {"tags": ["hide-input"], "mystnb": {"code_prompt_show": "Installation, where it is missing"}}
SOLUTION = {"tags": ["hide-cell"], "mystnb": {"code_prompt_show": "Show a solution"}}
# What Colab shows in place of a folded cell; a page has words of its own there.
TITLE = re.compile(r"\A# @title .*\n")


def write_notebooks(root: Path, folder: Path) -> None:
    """Write the page of every notebook that there is, and beside the built page what is to be downloaded."""
    downloads = folder / "_extra/notebooks"
    downloads.mkdir(parents=True)
    (folder / "notebooks").mkdir()
    for path in sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        to_page(notebook, path.stem, folder / "_static/figures")
        (folder / "notebooks" / path.name).write_text(nbformat.writes(notebook), encoding="utf-8")
        for file in (path, path.with_suffix(".py")):
            shutil.copyfile(file, downloads / file.name)


def to_page(notebook: NotebookNode, name: str, figures: Path) -> None:
    """Change a notebook into what its page shows. Figures are written to the folder `figures`."""
    title = notebook.cells[0]
    heading, _, rest = title.source.partition("\n")
    title.source = f"{heading}\n\n{download_bar(name)}\n{rest}"
    if terms := terms_in(name):
        words = f"*In the glossary:* {' · '.join(f'{{term}}`{term}`' for term in terms)}"
        notebook.cells.append(nbformat.v4.new_markdown_cell(words))
    fold(notebook)
    for section, cell in with_sections(notebook):
        if cell.cell_type == "code":
            picture = figure_name(cell, name)
            cell.outputs = [as_html(output, section, figures, picture) for output in cell.outputs]


def figure_name(cell: NotebookNode, notebook: str) -> str:
    """The name of a figure's files, `02-masks`, where the cell that draws it has the tag `figure-masks`."""
    names = [
        tag.removeprefix("figure-") for tag in cell.metadata.get("tags", []) if tag.startswith("figure-")
    ]
    return f"{notebook[:2]}-{names[0]}" if names else ""


def download_bar(name: str) -> str:
    """Links to the notebook and its script; the one to Colab is in the notebook's own title."""
    return (
        f'<p class="downloads"><a href="{name}.ipynb" download>Notebook (.ipynb)</a> '
        f'<a href="{name}.py" download>Script (.py)</a></p>\n'
    )


def fold(notebook: NotebookNode) -> None:
    """Fold what a reader of the page need not see at once: the installation; solutions with their outputs."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in code:
        if cell.metadata.get("jupyter", {}).get("source_hidden"):
            cell.metadata = nbformat.from_dict(SOLUTION)
            cell.source = TITLE.sub("", cell.source)
    if code and "ANNOTATED_SPEC" in code[0].source:
        code[0].metadata = nbformat.from_dict(INSTALLS)


def with_sections(notebook: NotebookNode) -> Iterator[tuple[str, NotebookNode]]:
    """Each cell with the heading that it stands under."""
    section = ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            headings = [line for line in cell.source.splitlines() if line.startswith("#")]
            section = headings[-1].lstrip("# ") if headings else section
        yield section, cell


def sections(path: Path) -> list[str]:
    """The headings of a notebook, in order."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    lines = [line for cell in cells if cell["cell_type"] == "markdown" for line in cell["source"]]
    return [line.lstrip("# ").rstrip() for line in lines if line.startswith("#")]
