"""The start page: the way into the model, translations made at build time, and the series at a glance."""

import html
import json
import re
from pathlib import Path
from urllib.parse import quote_plus

import nbformat
import torch

from annotated.translation import watch as inside
from annotated.translation.translator import Translator, load_pretrained
from sources import Notebooks, evidence, fill, notebooks, title_of

MODEL = "multi30k-en-de"
SENTENCES = (
    "A man sits on the bank of a river.",
    "An old man is reading a newspaper on a bench.",
    "Two men in hats are sitting on a bench near the river.",
    "A girl in a yellow dress is dancing.",
    "A dog runs through the snow.",
    "A woman in a red dress is singing on a stage.",
    "The old man feeds the birds.",
    "A man sells fruit at a market.",
    "A boy jumps into the water.",
)
# What it gives a caption's pieces on average: nine in ten captions get more than the first, half the second.
SURE = (0.50, 0.71)
# What its page offers to try: two sentences of the same pieces; one that greedy search translates worse; one
# whose translation the length penalty decides; one with words of several pieces; and sentences, each with
# parts of the model without which its translation is another.
TRIES = {
    "positions": ["A white cat chases a black dog.", "A black dog chases a white cat."],
    "beam": "A man wearing a hat is leaning against a wall.",
    "alpha": "A brown dog is dancing at a wedding party.",
    "pieces": "An old grandmother is sitting on a bench.",
    "parts": {
        "An old grandmother is sitting on a bench.": [
            "encoder.layers.1.self_attn 2",
            "encoder.layers.3.feed_forward",
            "decoder.layers.1.feed_forward",
            "decoder.layers.3.src_attn 0",
            "decoder.layers.3.src_attn 2",
        ],
        "Two men in hats are sitting on a bench near the river.": [
            "scale",
            "mask",
            "decoder.layers.0.feed_forward",
            "decoder.layers.2.src_attn 1",
        ],
        "A crane is standing next to a building.": ["encoder.layers.2.feed_forward"],
        "Two children are building a snowman.": ["decoder.layers.2.feed_forward"],
        "A grandmother is holding a baby.": ["decoder.layers.1.src_attn 0"],
        "A man wearing a hat is leaning against a wall.": [
            "decoder.layers.1.src_attn 1",
            "decoder.layers.2.src_attn 0",
            "decoder.layers.3.src_attn 1",
        ],
    },
}
WATCH_HEAD = """
<link rel="icon" href="_static/mark.svg">
<meta property="og:title" content="See inside a Transformer">
<meta property="og:image" content="_static/card.png">"""
BEYOND = ("A man cuts an onion.", "How are you today?")  # what it does not know


def write_start_page(root: Path, folder: Path) -> None:
    """Put the series and translations into the start page; write beside it the page that shows them made."""
    translator = load_pretrained(MODEL)
    write_watch(translator, folder)
    write_steps(root, folder)
    texts = {
        "FIRST": SENTENCES[0],
        "ROWS": translations(translator),
        "SERIES": listed(root, notebooks(root)),
        "ANSWERS": listed(root, evidence(root)),
        "EVIDENCE": "\n".join(f"notebooks/evidence/{path.stem}" for path, _ in evidence(root)),
    }
    fill(folder / "index.md", **texts)


def write_watch(translator: Translator, folder: Path) -> None:
    """Write the page in which a sentence goes through the model, with the script and the model beside it."""
    static = folder / "_static"
    (static / "model.js").write_text(inside.model_script(translator), encoding="utf-8")
    (static / "watch.js").write_text(inside.script(), encoding="utf-8")
    page = inside.page(
        '<script defer src="_static/watch.js"></script>',
        '<a href="index.html">annotated</a>',
        WATCH_HEAD,
        model="_static/model.js",
        series="notebooks/",
        sure=json.dumps(SURE),
        examples=json.dumps(SENTENCES[:3]),
        tries=json.dumps(TRIES),
    )
    (folder / "_extra/watch.html").write_text(page, encoding="utf-8")


def write_steps(root: Path, folder: Path) -> None:
    """Write the pages of every number and of the training as lesson 00 frames them, with a way back."""
    shown = (root / "notebooks/00_start_here.ipynb").read_text(encoding="utf-8")
    cells = nbformat.reads(shown, as_version=4).cells
    outputs = [output.get("data", {}) for cell in cells for output in cell.get("outputs", [])]
    for name in ("steps", "learning"):
        frames = (output.get("text/html", "") for output in outputs)
        frame = next(frame for frame in frames if f"id=&quot;{name}&quot;" in frame)
        page = html.unescape(re.search('srcdoc="([^"]*)"', frame)[1])
        home = '<p class="home"><a href="index.html">annotated</a></p>'
        page = page.replace("<title>", '<link rel="icon" href="_static/mark.svg">\n<title>', 1)
        page = page.replace("<body>", f"<body>\n{home}", 1)
        (folder / f"_extra/{name}.html").write_text(page, encoding="utf-8")


def listed(root: Path, found: Notebooks) -> str:
    """A table of notebooks: each one's title, a link, and the answer or the sentence that it opens with."""
    rows = ["| | |", "| --- | --- |"]
    for path, notebook in found:
        opening = notebook.cells[0].source.split("\n\n")[1]
        words = " ".join((opening.split("**")[1:2] or [opening])[0].split())
        rows.append(f"| [{title_of(notebook)}]({path.relative_to(root).as_posix()}) | {words} |")
    return "\n".join(rows)


def translations(translator: Translator) -> str:
    """Sentences with their translations, each a link, as lines of a table."""
    torch.set_num_threads(1)  # the same last bits on every machine, so the same page
    found = translator.translate([*SENTENCES, *BEYOND])
    return "\n".join(row(*pair) for pair in zip([*SENTENCES, *BEYOND], found, strict=True))


def row(sentence: str, translation: str) -> str:
    """A line of the table: the sentence is a link to the page that shows it."""
    link = f'<a href="watch.html?s={quote_plus(sentence)}">{html.escape(sentence)}</a>'
    return f'<tr><td>{link}</td><td lang="de">{html.escape(translation)}</td></tr>'
