"""Pages of a model small enough to print: a sentence through it, number by number, and its training.

The pages' script, `steps.js`, computes all of it in float64, made from tools/watch.
"""

import base64
import zlib
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

import torch

from annotated.plots.web_page import document, framed, json_in_script
from annotated.transformer.attention import subsequent_mask
from annotated.transformer.config import END, START, TransformerConfig
from annotated.transformer.model import EncoderDecoder

if TYPE_CHECKING:
    from IPython.display import HTML

__all__ = ["step_through", "watch_learning"]

# The settings of the only models that a page can compute.
REQUIRED = {"variant": "paper", "norm_first": False, "activation": "relu"}
REQUIRED |= {"positions": "sinusoidal", "tied_embeddings": "all"}
TIED = ("tgt_embed.0.lut.weight", "generator.proj.weight")


def numbers_of(
    model: EncoderDecoder, vocabulary: Sequence[str], sentences: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """Return what a page computes with. A vector becomes a matrix of one row, and -0.0 becomes 0.0."""
    config = model.config
    check_settings(config, N=1)  # layers on each side
    if len(vocabulary) != config.src_vocab:
        raise ValueError(f"the model has {config.src_vocab} tokens, the vocabulary {len(vocabulary)}")
    if unknown := {word for sentence in sentences for word in sentence}.difference(vocabulary):
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
    """Raise ValueError for a model with another setting than its page requires."""
    for name, value in {**REQUIRED, **more}.items():
        if getattr(config, name) != value:
            raise ValueError(f"the page's model needs {name}={value!r}, not {getattr(config, name)!r}")


def page_of(name: str, data: dict[str, Any], language: str | None) -> str:
    """Return the page of that name as HTML, its data in it."""
    script = resources.files(__name__).joinpath("steps.js").read_text(encoding="utf-8")
    model = f'<script type="application/json" id="model">{json_in_script(data)}</script>'
    settings = {"language": language} if language else {}
    scripts = f"{model}\n<script>{script}</script>"
    return document("A small Transformer, number by number", name, settings, scripts)


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
MAX_CHANGE = 2**15 - 1  # of a weight by an update, in units of the last decimal: the page has 16 bits for it


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
        pairs: the sentences and their translations, each a list of words; all of one length on each side.
        vocabulary, language, height: as `step_through` takes them.

    Raises what `step_through` raises, and ValueError for an update that changes a weight by over 3.2767.
    """
    sentences = [source for source, _ in pairs]
    numbers = [numbers_of(model, vocabulary, sentences) for model in models]
    flat = [[x for matrix in n["tensors"].values() for row in matrix for x in row] for n in numbers]
    weights = torch.tensor(flat, dtype=torch.float64)  # (models, weights)
    changes = (weights * 10**DECIMALS).round().diff(dim=0)  # (updates, weights)
    if len(changes) and (largest := changes.abs().amax(dim=1)).max() > MAX_CHANGE:
        update = int(largest.argmax()) + 1
        limit = MAX_CHANGE / 10**DECIMALS
        raise ValueError(f"update {update} changes a weight by more than the {limit} that the page can hold")
    packed = zlib.compress(changes.T.contiguous().numpy().astype("<i2").tobytes())
    learning = {"decimals": DECIMALS, "steps": base64.b64encode(packed).decode("ascii")}
    data = numbers[0] | learning | curves(models, vocabulary, pairs)
    page = page_of("learning", data, language)
    return framed(page, "Learning", "Run this cell: it shows the training, update by update.", height)


@torch.no_grad()
def curves(models: Sequence[EncoderDecoder], vocabulary: Sequence[str], pairs: Pairs) -> dict[str, Any]:
    """Compute each model's loss, its probability of each first word, and which sentences it gets right."""
    ids = {word: i for i, word in enumerate(vocabulary)}
    source = torch.tensor([[ids[word] for word in words] for words, _ in pairs])
    target = torch.tensor([[START, *(ids[word] for word in words), END] for _, words in pairs])
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
        "firsts": [vocabulary[i] for i in firsts.tolist()],
        "losses": losses,
        "chances": chances,
        "right": right,
    }
