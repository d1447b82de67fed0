"""Pages of a model small enough to print: a sentence through it, number by number, and its training.

The pages' script, `steps.js`, computes all of it in float64, made from tools/watch.
"""

import base64
import html
import json
import zlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

import torch

from annotated.transformer.attention import subsequent_mask
from annotated.transformer.config import END, START, TransformerConfig
from annotated.transformer.model import EncoderDecoder

if TYPE_CHECKING:
    from IPython.display import HTML

__all__ = ["step_through", "watch_learning"]

# What a page can compute: the paper's model.
NEEDED = {"variant": "paper", "norm_first": False, "activation": "relu", "positions": "sinusoidal"}
NEEDED["tied_embeddings"] = "all"
TIED = ("tgt_embed.0.lut.weight", "generator.proj.weight")


def numbers_of(
    model: EncoderDecoder, vocabulary: Sequence[str], sentences: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """Return what a page computes with; a vector is a matrix of one row, and there is no -0.0."""
    config = model.config
    check_settings(config, N=1)  # layers on each side
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


def check_settings(config: TransformerConfig, **more: object) -> None:
    """Raise ValueError naming a setting of a model that its page needs otherwise."""
    for name, value in {**NEEDED, **more}.items():
        if getattr(config, name) != value:
            raise ValueError(f"the page's model needs {name}={value!r}, not {getattr(config, name)!r}")


def json_in_script(data: object) -> str:
    """Return JSON that no word or piece in it, such as a tag, can end the script element around it."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def page_of(name: str, data: dict[str, Any], language: str | None) -> str:
    """Return the page of that name as HTML, its data in it."""
    script = resources.files(__name__).joinpath("steps.js").read_text(encoding="utf-8")
    model = f'<script type="application/json" id="model">{json_in_script(data)}</script>'
    settings = {"language": language} if language else {}
    scripts = f"{model}\n<script>{script}</script>"
    return document("A small Transformer, number by number", name, settings, scripts)


def document(
    title: str, name: str, settings: Mapping[str, str], scripts: str, head: str = "", top: str = ""
) -> str:
    """Return HTML in which scripts fill the element of this name, whose attributes are their settings."""
    attributes = "".join(f' data-{key}="{html.escape(value)}"' for key, value in settings.items())
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>{head}
<body>{top}
<div id="{name}"{attributes}>
<noscript><p>This page computes in your browser, which needs JavaScript.</p></noscript></div>
{scripts}
</body>
</html>
"""


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
    page = page_of("steps", numbers_of(model, vocabulary, sentences), language)
    return framed(page, "Every number", "Run this cell: it goes through every number.", height)


# ---- the same model in training

Pairs = Sequence[tuple[Sequence[str], Sequence[str]]]
DECIMALS = 4  # of the weights in the page
MOST = 2**15 - 1  # of the last decimal, by which an update can change a weight: the page has 16 bits for it


def watch_learning(
    models: Sequence[EncoderDecoder],
    vocabulary: Sequence[str],
    pairs: Pairs,
    language: str | None = None,
    height: int = 900,
) -> "HTML":
    """Show the training of a tiny model, update by update, in Jupyter or Colab; nothing is fetched.

    A reader plays it or moves a slider. She sees the loss, where a word looks, its vector, what the model
    writes, and from which update on it writes what it should.

    Args:
        models: the same model before its training and after each update; the kind that `step_through` shows.
        vocabulary: the words by their IDs, the start symbol first, then the end symbol.
        pairs: the sentences and their translations, each a list of words; all of one length on each side.
        language: "en", "zh", or None for the browser's own.
        height: of the frame in pixels, at first; it grows with the page.

    Raises what `step_through` raises, and ValueError for an update that changes a weight by over 3.2767.
    """
    sentences = [source for source, _ in pairs]
    numbers = [numbers_of(model, vocabulary, sentences) for model in models]
    rows = [[x for matrix in each["tensors"].values() for row in matrix for x in row] for each in numbers]
    weights = torch.tensor(rows, dtype=torch.float64)
    steps = (weights * 10**DECIMALS).round().diff(dim=0)  # (updates, weights)
    if len(steps) and (largest := steps.abs().amax(dim=1)).max() > MOST:
        update, most = int(largest.argmax()) + 1, MOST / 10**DECIMALS
        raise ValueError(f"update {update} changes a weight by more than the {most} that the page can hold")
    packed = zlib.compress(steps.T.contiguous().numpy().astype("<i2").tobytes())
    learning = {"decimals": DECIMALS, "steps": base64.b64encode(packed).decode("ascii")}
    data = numbers[0] | learning | curves(models, vocabulary, pairs)
    page = page_of("learning", data, language)
    return framed(page, "Learning", "Run this cell: it shows the training, update by update.", height)


@torch.no_grad()
def curves(models: Sequence[EncoderDecoder], vocabulary: Sequence[str], pairs: Pairs) -> dict[str, Any]:
    """What is drawn of all models: losses, chances of each first word, and which sentences are right."""
    number = {word: place for place, word in enumerate(vocabulary)}
    source = torch.tensor([[number[word] for word in words] for words, _ in pairs])
    target = torch.tensor([[START, *(number[word] for word in words), END] for _, words in pairs])
    firsts = target[:, 1].unique()
    losses, chances, right = [], [], []
    for model in models:
        states = model(source, target[:, :-1], None, subsequent_mask(target.size(1) - 1))
        log_probs = model.generator(states)  # (pairs, tokens, vocabulary)
        losses.append(-log_probs.gather(-1, target[:, 1:, None]).mean().item())
        chances.append(log_probs[:, 0, firsts].exp().double().round(decimals=DECIMALS).tolist())
        right.append((log_probs.argmax(-1) == target[:, 1:]).all(dim=1).tolist())
    return {
        "targets": [list(words) for _, words in pairs],
        "firsts": [vocabulary[place] for place in firsts.tolist()],
        "losses": losses,
        "chances": chances,
        "right": right,
    }
