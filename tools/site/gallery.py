"""The gallery: each figure that has a name, its caption, its files, and the lines that draw it."""

import re
import shutil
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from nbformat import NotebookNode

from notebook_pages import figure_name, picture
from sources import evidence, fill, notebooks, slug, title_of, with_sections

FIGURE = """<p class="figure">{picture}</p>

{caption}

<a href="{files}.svg" download>{name}.svg</a> · <a href="{files}.png" download>{name}.png</a> ·
[{title}, *{section}*]({notebook}#{anchor})

<details class="lines">
<summary>The lines that draw it</summary>

```python
{code}
```

</details>
"""

# In a notebook's text: a drawing that is made from numbers, its words, its name and its caption.
DRAWN = re.compile(r"!\[([^\]]*)\]\(attachment:(cat_\w+)\.png\)\s+\*Figure \d+\. ([^*]+)\*")
DRAWING = """![{words}](images/{name}.svg)

*{caption}* {{download}}`{name}.svg <images/{name}.svg>` · {{download}}`{name}.png <images/{name}.png>`
"""


def write_gallery(root: Path, folder: Path) -> None:
    """Fill the page, and put beside the pictures, which `write_notebooks` has put there, the SVG of each."""
    pictures = folder / "_static/figures"
    found = [
        figures(path.relative_to(root), each, pictures) for path, each in notebooks(root) + evidence(root)
    ]
    texts = {"DRAWN": "\n".join(drawings(root)), "FIGURES": "\n".join(chain.from_iterable(found))}
    fill(folder / "gallery.md", **texts)
    for svg in (root / "notebooks").rglob("figures/*.svg"):
        shutil.copy(svg, pictures)


def drawings(root: Path) -> Iterator[str]:
    """The drawings of a sentence with its numbers, in the order of the lessons."""
    for _, notebook in notebooks(root):
        for cell in notebook.cells:
            for found in DRAWN.findall(cell.source):
                words, name, caption = (" ".join(text.split()) for text in found)
                yield DRAWING.format(words=words, name=name, caption=caption)


def figures(path: Path, notebook: NotebookNode, pictures: Path) -> Iterator[str]:
    """A notebook's title, then each of its figures that have a name, as the page shows it."""
    title = title_of(notebook)
    head = f"## {title}\n\n"
    for (section, cell), below in zip(with_sections(notebook), [*notebook.cells[1:], None], strict=True):
        if name := figure_name(cell, path.stem):
            [output] = [output for output in cell.outputs if "image/png" in output.get("data", {})]
            yield head + FIGURE.format(
                picture=picture(output, section, pictures, name, "_static/figures"),
                caption=below.source.partition("\n\n")[0],  # with which the text below a figure begins
                files=f"_static/figures/{name}",
                name=name,
                title=title,
                section=section,
                notebook=path.as_posix(),
                anchor=slug(section),
                code=cell.source,
            )
            head = ""
