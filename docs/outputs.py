"""A cell's pictures as HTML: figures as files with alternative texts, charts live with a still beneath."""

import base64
import hashlib
import html
import json
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

VEGA = "application/vnd.vegalite.v5+json"
SCRIPTS = '<script defer src="../_static/vega.js"></script><script defer src="../_static/charts.js"></script>'


def as_html(output: NotebookNode, section: str, figures: Path, name: str = "") -> NotebookNode:
    """An output as a notebook's page shows it; one without a picture stays as it is.

    `section`, the heading above, describes a picture that has no words of its own. The picture goes into the
    folder `figures`, under `name` or one made from its content.
    """
    data = output.get("data", {})
    if "image/png" not in data:
        return output
    still = picture(output, section, figures, name, "../_static/figures")
    live = (
        chart(data[VEGA], still, words_of(output, section))
        if VEGA in data
        else f'<p class="figure">{still}</p>'
    )
    return nbformat.v4.new_output("display_data", {"text/html": live})


def picture(output: NotebookNode, section: str, figures: Path, name: str, address: str) -> str:
    """Write an output's picture; an `<img>` of it, for a page from which `figures` is at `address`."""
    file = write_png(output.data["image/png"], figures, name)
    return image(f"{address}/{file}", words_of(output, section), size_of(output))


def size_of(output: NotebookNode) -> dict[str, Any]:
    """What a picture's metadata tell: its size, and the words for it."""
    return output.metadata.get("image/png", {}) | {
        k: v for k, v in output.metadata.items() if k in ("width", "height")
    }


def words_of(output: NotebookNode, section: str) -> str:
    """A picture's own words, or those of a chart, `<Chart: words; ...>`, or else the section above it."""
    if words := size_of(output).get("alt"):
        return words
    text = output.data.get("text/plain", "")
    if text.startswith("<Chart: "):
        return text.removeprefix("<Chart: ").rstrip(">").partition(";")[0]
    return f"Figure: {section}"


def write_png(encoded: str, figures: Path, name: str) -> str:
    """Write a picture as `name`.png, or under a name made from its content; returns the file's name."""
    content = base64.b64decode(encoded)
    file = f"{name or hashlib.sha256(content).hexdigest()[:16]}.png"
    figures.mkdir(parents=True, exist_ok=True)
    (figures / file).write_bytes(content)
    return file


def image(address: str, words: str, size: dict[str, Any]) -> str:
    """An `<img>` that keeps its place while it loads, and on a phone shrinks until 12 points are 7 pixels."""
    sides = "".join(f' {side}="{round(size[side])}"' for side in ("width", "height") if side in size)
    least = f' style="min-width: {round(0.42 * size["width"])}px"' if "width" in size else ""
    return f'<img src="{address}" alt="{html.escape(words)}"{sides} loading="lazy"{least}>'


def chart(spec: dict[str, Any], still: str, words: str) -> str:
    """A chart's specification beside its still: `charts.js` draws the one in the place of the other."""
    text = json.dumps({"description": words, **spec}, ensure_ascii=False).replace("</", "<\\/")
    data = f'<script type="application/json">{text}</script>'
    return f'<div class="chart"><div class="drawing">{still}</div>{data}</div>{SCRIPTS}'
