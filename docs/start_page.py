"""The start page: translations that the shipped model makes at build time, and the series at a glance."""

import html
import json
from pathlib import Path

import nbformat
import torch

from annotated.checkpoints import shipped_models
from annotated.translator import Translator, load_pretrained
from model_export import write_model

MODEL = "multi30k-en-de"
SENTENCES = (
    "A dog runs through the snow.",
    "Two men in hats are sitting on a bench near the river.",
    "A woman in a red dress is playing the guitar.",
    "The little girl is holding her father's hand.",
    "A man is cutting an onion with a sharp knife.",
    "Three children are building a castle on the beach.",
    "A young man jumps over a wall with his bicycle.",
    "People are waiting for the train in the rain.",
    "An old woman sells fruit at the market.",
    "The goalkeeper catches the ball.",
    "A cat is sleeping on the roof of a car.",
    "Several people are standing in front of a building, and one of them is waving.",
)


def write_start_page(root: Path, folder: Path) -> None:
    """Put the series into the start page, and the translations, if the model is shipped with the package."""
    page = folder / "index.md"
    text = page.read_text(encoding="utf-8")
    text = text.replace("SERIES", series(root / "notebooks"))
    page.write_text(text.replace("TRANSLATIONS", translations(folder / "_static")), encoding="utf-8")


def series(folder: Path) -> str:
    """A table of the notebooks: each one's title, a link, and the sentence that it opens with."""
    rows = ["| | |", "| --- | --- |"]
    for path in sorted(folder.glob("[0-9][0-9]_*.ipynb")):
        lines = nbformat.read(path, as_version=4).cells[0].source.splitlines()
        opening = " ".join(" ".join(lines[1:]).split("**")[1:2])
        rows.append(f"| [{lines[0].lstrip('# ')}](notebooks/{path.name}) | {opening} |")
    return "\n".join(rows)


def translations(static: Path) -> str:
    """The sentences with their translations, a row each to choose, and the data that `looking.js` draws.

    The model itself is written to `static`, for sentences of the reader's own.
    """
    if MODEL not in shipped_models():
        return ""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the same last bits on every machine, so the same page
    translator = load_pretrained(MODEL)
    write_model(translator, static / "model.js")
    found = translator.translate(SENTENCES)
    data = [looks(translator, *pair) for pair in zip(SENTENCES, found, strict=True)]
    torch.set_num_threads(threads)
    rows = "\n".join(row(i, *pair) for i, pair in enumerate(zip(SENTENCES, found, strict=True)))
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    return f"""## Where a translator looks

A small model, trained on 29,000 captions of photographs, has translated these sentences. Choose one, then a
word of its translation: the bars are the weights of the attention with which the decoder looked at the
English while it wrote. Or type one: the model then runs in this page, and nothing leaves it.

<form class="own" data-from="_static/" hidden>
<label for="own">Your own sentence, in English: people, animals and what they do suit it best</label>
<span><input id="own" type="text" maxlength="200" autocomplete="off" placeholder="A boy feeds the ducks.">
<button type="submit">Translate</button></span>
<output lang="de" aria-live="polite"></output>
</form>
<div class="looking" hidden></div>
<script type="application/json" id="looks">{text}</script>
<script defer src="_static/looking.js"></script>
<table class="table sentences">
<thead><tr><th scope="col">English</th><th scope="col">German, by the model</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
"""


def looks(translator: Translator, sentence: str, translation: str) -> dict[str, list]:
    """Tokens read and written, and cross-attention in percent: `maps[layer][head][written][read]`.

    The row of a written token is that of the token before it: there the decoder stood when it chose.
    """
    seen = translator.attention(sentence, translation)
    layers = sorted(layer for kind, layer in seen.maps if kind == "cross")
    maps = [(seen.maps["cross", layer] * 100).round().int().tolist() for layer in layers]
    return {"read": seen.src_tokens, "written": [*seen.tgt_tokens[1:], "</s>"], "maps": maps}


def row(number: int, sentence: str, translation: str) -> str:
    """A line of the table: the sentence is a button that chooses it, once there is a script."""
    button = f'<button type="button" data-sentence="{number}" disabled>{html.escape(sentence)}</button>'
    return f'<tr><td>{button}</td><td lang="de">{html.escape(translation)}</td></tr>'
