"""A sentence through a model small enough to print: a page on which every number says where it comes from.

The page's script, `steps.js`, computes all of it in float64, made from tools/watch.
"""

import html
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from annotated.transformer.config import TransformerConfig
from annotated.transformer.model import EncoderDecoder

if TYPE_CHECKING:
    from IPython.display import HTML

__all__ = ["step_page", "step_through"]

# What the page can draw: the paper's model, with one layer on each side.
NEEDED = {
    "variant": "paper",
    "norm_first": False,
    "activation": "relu",
    "positions": "sinusoidal",
    "tied_embeddings": "all",
    "N": 1,
}
TIED = ("tgt_embed.0.lut.weight", "generator.proj.weight")

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>A small Transformer, number by number</title>
<body>
<div id="{name}"{language}>
<noscript><p>This page computes in your browser, which needs JavaScript.</p></noscript></div>
<script type="application/json" id="model">{model}</script>
<script>{script}</script>
</body>
</html>
"""


def step_page(
    model: EncoderDecoder,
    vocabulary: Sequence[str],
    sentences: Sequence[Sequence[str]],
    language: str | None = None,
) -> str:
    """Return the page as HTML, the model in it; arguments and errors as in `step_through`."""
    return page_of("steps", numbers_of(model, vocabulary, sentences), language)


def numbers_of(
    model: EncoderDecoder, vocabulary: Sequence[str], sentences: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """Return what a page computes with; a vector is a matrix of one row, and there is no -0.0."""
    config = model.config
    check_settings(config, NEEDED)
    if len(vocabulary) != config.src_vocab:
        raise ValueError(f"the model has {config.src_vocab} tokens, the vocabulary {len(vocabulary)}")
    if unknown := {word for sentence in sentences for word in sentence} - set(vocabulary):
        raise ValueError(f"words of the sentences that the vocabulary does not have: {sorted(unknown)}")
    tensors = {
        name: (tensor.reshape(-1, tensor.size(-1)) + 0.0).tolist()
        for name, tensor in model.state_dict().items()
        if name not in TIED
    }
    return {
        "h": config.h,
        "d_model": config.d_model,
        "eps": config.layer_norm_eps,
        "vocabulary": list(vocabulary),
        "sentences": [list(sentence) for sentence in sentences],
        "tensors": tensors,
    }


def check_settings(config: TransformerConfig, needed: Mapping[str, object]) -> None:
    """Raise ValueError naming a setting of a model that its page needs otherwise."""
    for name, value in needed.items():
        if getattr(config, name) != value:
            raise ValueError(f"the page's model needs {name}={value!r}, not {getattr(config, name)!r}")


def json_in_script(data: object) -> str:
    """Return JSON that no word or piece in it, such as a tag, can end the script element around it."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def page_of(name: str, data: dict[str, Any], language: str | None) -> str:
    """Return the page of that name as HTML, its data in it."""
    script = resources.files(__name__).joinpath("steps.js").read_text(encoding="utf-8")
    lang = f' data-language="{html.escape(language)}"' if language else ""
    return PAGE.format(name=name, language=lang, model=json_in_script(data), script=script)


def framed(page: str, title: str, words: str, height: int) -> "HTML":
    """Return a frame with the page in it, and the words that are left where a front end drops the frame."""
    from IPython.display import HTML

    place, style = "grid-area: 1 / 1", f"width: 100%; height: {height}px; border: 0"  # one upon the other
    return HTML(
        f'<div style="display: grid"><p style="{place}">{words}</p>'
        f'<iframe style="{place}; {style}" title="{title}" srcdoc="{html.escape(page)}"></iframe></div>'
    )


def step_through(
    model: EncoderDecoder,
    vocabulary: Sequence[str],
    sentences: Sequence[Sequence[str]],
    language: str | None = None,
    height: int = 900,
) -> "HTML":
    """Show the whole computation of a tiny model, step by step, in Jupyter or Colab; nothing is fetched.

    A reader goes forward and back, touches numbers to see where they come from, exchanges words, and takes
    parts of the model away.

    Args:
        model: one layer a side, the paper's parts; made for vectors of four numbers.
        vocabulary: the words by their IDs, the start symbol first, then the end symbol.
        sentences: those that can be chosen, each a list of words, all of one length; the first is shown.
        language: "en", "zh", or None for the browser's own.
        height: of the frame in pixels, at first; it grows with the page.

    Raises ValueError for a model that the page cannot draw, or words that are not in the vocabulary;
    ImportError without IPython.
    """
    page = step_page(model, vocabulary, sentences, language)
    return framed(page, "Every number", "Run this cell: it goes through every number.", height)
