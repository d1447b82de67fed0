"""A tiny model in training: a page with the model after each update, number by number."""

import base64
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from annotated.plots.steps import framed, numbers_of, page_of
from annotated.transformer.attention import subsequent_mask
from annotated.transformer.config import END, START
from annotated.transformer.model import EncoderDecoder

if TYPE_CHECKING:
    from IPython.display import HTML

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
    page = learning_page(models, vocabulary, pairs, language)
    return framed(page, "Learning", "Run this cell: it shows the training, update by update.", height)


def learning_page(
    models: Sequence[EncoderDecoder], vocabulary: Sequence[str], pairs: Pairs, language: str | None = None
) -> str:
    """Return the page as HTML, the models in it; arguments and errors as in `watch_learning`."""
    sentences = [source for source, _ in pairs]
    numbers = [numbers_of(model, vocabulary, sentences) for model in models]
    weights = torch.tensor([_flat(each["tensors"].values()) for each in numbers], dtype=torch.float64)
    steps = (weights * 10**DECIMALS).round().diff(dim=0)  # (updates, weights)
    if len(steps) and (largest := steps.abs().amax(dim=1)).max() > MOST:
        update, most = int(largest.argmax()) + 1, MOST / 10**DECIMALS
        raise ValueError(f"update {update} changes a weight by more than the {most} that the page can hold")
    packed = zlib.compress(steps.T.contiguous().numpy().astype("<i2").tobytes())
    learning = {"decimals": DECIMALS, "steps": base64.b64encode(packed).decode("ascii")}
    return page_of("learning", numbers[0] | learning | _curves(models, vocabulary, pairs), language)


def _flat(matrices: Iterable[list[list[float]]]) -> list[float]:
    return [number for matrix in matrices for row in matrix for number in row]


@torch.no_grad()
def _curves(models: Sequence[EncoderDecoder], vocabulary: Sequence[str], pairs: Pairs) -> dict[str, Any]:
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
