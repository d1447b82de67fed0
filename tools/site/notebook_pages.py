"""Each executed notebook as a page: its figures as files with alternative texts, charts live with a still
beneath, what a notebook folds folded."""

import base64
import hashlib
import html
import json
import re
import shutil
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from figures import figure_name as tagged_name, prefix
from folds import CHECK, INSTALL, SCAFFOLD, SOLUTION, TITLE, fold_of
from sources import evidence, notebooks, translations, with_sections

VEGA = "application/vnd.vegalite.v5+json"
SCRIPTS = "".join(f'<script defer src="{{up}}_static/{name}.js"></script>' for name in ("vega", "charts"))
PROMPTS = {
    INSTALL: "Installation, where it is missing",
    SCAFFOLD: "Show the scaffolding",
    SOLUTION: "Show a solution",
    CHECK: "Show what checks this",
}
ATTACHED = re.compile(r"\(attachment:(\w+)\.png\)")


def write_notebooks(root: Path, folder: Path) -> None:
    """Write the page of every notebook that there is, and beside the built page what is to be downloaded."""
    for path, notebook in [*notebooks(root), *evidence(root), *translations(root)]:
        place = path.parent.relative_to(root)
        for parent in (folder, folder / "_extra"):
            (parent / place).mkdir(parents=True, exist_ok=True)
        to_page(notebook, path.stem, folder / "_static/figures", "../" * len(place.parts))
        nbformat.write(notebook, folder / place / path.name)
        for file in (path, path.with_suffix(".py")):
            shutil.copyfile(file, folder / "_extra" / place / file.name)


def to_page(notebook: NotebookNode, name: str, figures: Path, up: str = "../") -> None:
    """Change a notebook into what its page shows, pictures in `figures`; `up` leads to the site's root."""
    title = notebook.cells[0]
    heading, _, rest = title.source.partition("\n")
    # The link to Colab is in the notebook's own title.
    bar = (
        f'<p class="downloads"><a href="{name}.ipynb" download>Notebook (.ipynb)</a> '
        f'<a href="{name}.py" download>Script (.py)</a></p>\n'
    )
    title.source = f"{heading}\n\n{bar}\n{rest}"
    fold(notebook)
    for section, cell in with_sections(notebook):
        if cell.cell_type == "code":
            picture = figure_name(cell, name)
            cell.outputs = [as_html(output, section, figures, picture, up) for output in cell.outputs]
        elif cell.pop("attachments", None):  # as SVG, with a twin in dark colors
            cell.source = ATTACHED.sub(rf"({up}images/\1.svg)", cell.source)


def figure_name(cell: NotebookNode, notebook: str) -> str:
    """The name of a figure's files, `02-masks`, where the cell that draws it has the tag `figure-masks`."""
    tag = tagged_name(cell)
    return f"{prefix(notebook)}-{tag}" if tag else ""


def fold(notebook: NotebookNode) -> None:
    """Fold what the notebook folds: all but scaffolding with their outputs."""
    for cell in notebook.cells:
        if kind := fold_of(cell):
            tags = ["hide-input" if kind == SCAFFOLD else "hide-cell", kind]
            cell.metadata = nbformat.from_dict({"tags": tags, "mystnb": {"code_prompt_show": PROMPTS[kind]}})
            cell.source = TITLE.sub("", cell.source)


# ---- pictures


def as_html(
    output: NotebookNode, section: str, figures: Path, name: str = "", up: str = "../"
) -> NotebookNode:
    """An output as a notebook's page shows it; one without a picture stays as it is.

    `section`, the heading above, describes a picture that has no words of its own. The picture goes into the
    folder `figures`, under `name` or one made from its content. A chart has its specification beside its
    still: `charts.js` draws the one in the place of the other.
    """
    data = output.get("data", {})
    if "image/png" not in data:
        return output
    shown = picture(output, section, figures, name, f"{up}_static/figures")
    if VEGA in data:
        spec = {"description": words_of(output, section), **data[VEGA]}
        text = json.dumps(spec, ensure_ascii=False).replace("</", "<\\/")
        still = f'<div class="drawing">{shown}</div><script type="application/json">{text}</script>'
        shown = f'<div class="chart">{still}</div>{SCRIPTS.format(up=up)}'
    else:
        shown = f'<p class="figure">{shown}</p>'
    return nbformat.v4.new_output("display_data", {"text/html": shown})


def picture(output: NotebookNode, section: str, figures: Path, name: str, address: str) -> str:
    """Write an output's picture; an `<img>` of it, for a page from which `figures` is at `address`.

    It keeps its place while it loads.
    """
    content = base64.b64decode(output.data["image/png"])
    file = f"{name or hashlib.sha256(content).hexdigest()[:16]}.png"
    figures.mkdir(parents=True, exist_ok=True)
    (figures / file).write_bytes(content)
    size = {**output.metadata.get("image/png", {}), **output.metadata}
    sides = "".join(f' {side}="{round(size[side])}"' for side in ("width", "height") if side in size)
    words = html.escape(words_of(output, section))
    return f'<img src="{address}/{file}" alt="{words}"{sides} loading="lazy">'


def words_of(output: NotebookNode, section: str) -> str:
    """A picture's own words, or those of a chart, `<Chart: words; ...>`, or else the section above it."""
    if words := output.metadata.get("image/png", {}).get("alt"):
        return words
    text = output.data.get("text/plain", "")
    if text.startswith("<Chart: "):
        return text.removeprefix("<Chart: ").rstrip(">").partition(";")[0]
    return f"Figure: {section}"
