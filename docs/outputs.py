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


def as_html(output: NotebookNode, section: str, figures: Path) -> NotebookNode:
    """An output as the page shows it; one without a picture stays as it is. `figures` is where pictures go.

    `section`, the heading above, describes a picture that has no words of its own.
    """
    data = output.get("data", {})
    if "image/png" not in data:
        return output
    size = output.metadata.get("image/png", {}) | {
        k: v for k, v in output.metadata.items() if k in ("width", "height")
    }
    words = size.get("alt") or described(data, section)
    still = image(write_png(data["image/png"], figures), words, size)
    live = chart(data[VEGA], still, words) if VEGA in data else f'<p class="figure">{still}</p>'
    return nbformat.v4.new_output("display_data", {"text/html": live})


def described(data: dict[str, Any], section: str) -> str:
    """The words of a chart, `<Chart: words; ...>`, or else the section that a figure stands in."""
    text = data.get("text/plain", "")
    if text.startswith("<Chart: "):
        return text.removeprefix("<Chart: ").rstrip(">").partition(";")[0]
    return f"Figure: {section}"


def write_png(encoded: str, figures: Path) -> str:
    """Write a picture under a name made from its content; returns its address for a notebook's page."""
    content = base64.b64decode(encoded)
    name = f"{hashlib.sha256(content).hexdigest()[:16]}.png"
    figures.mkdir(parents=True, exist_ok=True)
    (figures / name).write_bytes(content)
    return f"../_static/figures/{name}"


def image(address: str, words: str, size: dict[str, Any]) -> str:
    """An `<img>` that keeps its place while it loads, and on a phone shrinks to half its size, no further."""
    sides = "".join(f' {side}="{round(size[side])}"' for side in ("width", "height") if side in size)
    least = f' style="min-width: {round(size["width"]) // 2}px"' if "width" in size else ""
    return f'<img src="{address}" alt="{html.escape(words)}"{sides} loading="lazy"{least}>'


def chart(spec: dict[str, Any], still: str, words: str) -> str:
    """A chart's specification beside its still: `charts.js` draws the one in the place of the other."""
    text = json.dumps({"description": words, **spec}, ensure_ascii=False).replace("</", "<\\/")
    data = f'<script type="application/json">{text}</script>'
    return f'<div class="chart"><div class="drawing">{still}</div>{data}</div>{SCRIPTS}'
