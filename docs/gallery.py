"""The gallery: each figure that has a name, its caption, its files, and the lines that draw it."""

from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from notebook_pages import figure_name, with_sections
from outputs import picture
from reference_pages import slug

PAGE = """# Gallery

Figures of the series, to use in a lecture, a paper or a post. They are under the
[Creative Commons Attribution 4.0 licence](https://creativecommons.org/licenses/by/4.0/): name the figure, the
project and the licence ([how to cite the project](citation.md)), such as:

> "02-masks", from annotated: "Attention Is All You Need", explained in notebooks that run (2026), CC BY 4.0

{figures}
"""
FIGURE = """{picture}

{caption}

<a href="{files}.svg" download>{name}.svg</a> · <a href="{files}.png" download>{name}.png</a> ·
[{title}, *{section}*](notebooks/{notebook}{anchor})

<details class="lines">
<summary>The lines that draw it</summary>

```python
{code}
```

</details>
"""


def write_gallery(root: Path, folder: Path) -> None:
    """Write the page, and beside the pictures, which `write_notebooks` has put there, the SVG of each."""
    paths = sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    found = [text for path in paths for text in figures(path, folder / "_static/figures")]
    for svg in (root / "notebooks/figures").glob("*.svg"):
        (folder / "_static/figures" / svg.name).write_bytes(svg.read_bytes())
    (folder / "gallery.md").write_text(PAGE.format(figures="\n".join(found)), encoding="utf-8")


def figures(path: Path, pictures: Path) -> Iterator[str]:
    """A notebook's title, then each of its figures that have a name."""
    notebook = nbformat.read(path, as_version=4)
    title = notebook.cells[0].source.partition("\n")[0].lstrip("# ")
    cells = list(with_sections(notebook))
    named = [i for i, (_, cell) in enumerate(cells) if figure_name(cell, path.stem)]
    if named:
        yield f"## {title}\n"
    for i in named:
        section, cell = cells[i]
        yield entry(cell, caption(cells[i + 1][1]), path, title, section, pictures)


def entry(cell: NotebookNode, words: str, path: Path, title: str, section: str, pictures: Path) -> str:
    """One figure, as the page shows it."""
    name = figure_name(cell, path.stem)
    [output] = [output for output in cell.outputs if "image/png" in output.get("data", {})]
    return FIGURE.format(
        picture=f'<p class="figure">{picture(output, section, pictures, name, "_static/figures")}</p>',
        caption=words,
        files=f"_static/figures/{name}",
        name=name,
        title=title,
        section=section,
        notebook=path.name,
        anchor=f"#{slug(section)}",
        code=cell.source,
    )


def caption(below: NotebookNode) -> str:
    """The caption, with which the text below a figure begins."""
    return below.source.partition("\n\n")[0]
