"""What stands in the page's place where no script runs, as on GitHub: what one word gets from one head."""

import html
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from annotated.transformer.model import EncoderDecoder

# The colors of tools/watch/src/base.css: of ink, of kinds, of signs, of weights.
INK, QUERY, KEY, VALUE = "#1d2329", "#0067b1", "#b3480a", "#00795a"
POSITIVE, NEGATIVE, WEIGHT = "#6a4fb3", "#94803a", "#de8f05"
FULL = 3  # where the colors of signs end
CELL, HIGH, COLUMN, LEFT = 50, 28, 150, 110  # pixels


@torch.no_grad()
def still(model: EncoderDecoder, sentence: Sequence[str], vocabulary: Sequence[str]) -> tuple[str, str]:
    """Return an SVG of what the second word gets from the last head, and the same in words."""
    attention: Any = model.encoder.layers[0].self_attn
    x = model.src_embed(torch.tensor([[vocabulary.index(word) for word in sentence]]))[0]
    width = x.size(-1) // model.config.h
    query, keys, values = (linear(x)[:, -width:] for linear in attention.linears[:3])
    weights = (query[1] @ keys.T / width**0.5).softmax(dim=-1)
    wide, word = LEFT + COLUMN * len(sentence) + 20, sentence[1]
    centers = [LEFT + COLUMN * (j + 0.5) for j in range(len(sentence))]
    middle = [LEFT + COLUMN * len(sentence) / 2] * len(sentence)
    rows = {"query": 40, "keys": 178, "weights": 216, "values": 254, "output": 354}
    parts = [f'<text x="56" y="{y}" fill-opacity="0.7">{name}</text>' for name, y in rows.items()]
    parts += lines(weights, middle, centers, 62)
    parts += lines(weights, centers, middle, 276)
    for y, numbers, kind in ((rows["query"], query[1], QUERY), (rows["output"], weights @ values, VALUE)):
        parts += [chip(word, middle[0] - 70, y), *strip(numbers, middle[0] + 10, y, kind)]
    for j, (one, at) in enumerate(zip(sentence, centers, strict=True)):
        parts += [chip(one, at, 140), *strip(keys[j], at, rows["keys"], KEY)]
        parts += strip(weights[j : j + 1], at, rows["weights"], WEIGHT)
        parts += strip(values[j], at, rows["values"], VALUE)
    shares = ", ".join(f"{one} {weight:.2f}" for one, weight in zip(sentence, weights, strict=True))
    got = ", ".join(f"{number:.2f}" for number in weights @ values)
    style = f"font: 14px system-ui, sans-serif; fill: {INK}; text-anchor: middle; dominant-baseline: central"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} 384" width="{wide}" height="384">'
    ground = f'<style>text {{ {style} }}</style><rect width="{wide}" height="384" rx="10" fill="#fff"/>'
    words = f"{word} looks at {shares}; the mean of the values with these weights is {got}"
    return f"{head}{ground}{''.join(parts)}</svg>", words


def chip(word: str, x: float, y: float) -> str:
    wide = 20 + 8 * len(word)
    box = f'x="{x - wide / 2}" y="{y - HIGH / 2}" width="{wide}" height="{HIGH}" rx="{HIGH / 2}"'
    return f'<rect {box} fill="#fff" stroke="{INK}"/><text x="{x}" y="{y}">{html.escape(word)}</text>'


def strip(numbers: Tensor, x: float, y: float, kind: str) -> Iterator[str]:
    """Cells around x, each with its number, after a line in the color of their kind."""
    begin, size = x - CELL * len(numbers) / 2, f'y="{y - HIGH / 2}" height="{HIGH}" rx="3"'
    yield f'<rect x="{begin - 6}" width="4" {size} fill="{kind}"/>'
    for j, number in enumerate(numbers.tolist()):
        color = WEIGHT if kind == WEIGHT else POSITIVE if number > 0 else NEGATIVE
        share = min(1.0, abs(number) / (1 if kind == WEIGHT else FULL))
        tint = f'fill="{color}" fill-opacity="{0.06 + 0.54 * share:.2f}"'
        yield f'<rect x="{begin + CELL * j}" width="{CELL - 2}" {size} {tint}/>'
        text = f"{number:.2f}".replace("-", "\u2212")
        yield f'<text x="{begin + CELL * (j + 0.5) - 1}" y="{y}">{text}</text>'


def lines(weights: Tensor, begins: Sequence[float], ends: Sequence[float], y: float) -> Iterator[str]:
    """Curves downwards, each as wide as its weight."""
    for weight, begin, end in zip(weights.tolist(), begins, ends, strict=True):
        curve = f"M{begin} {y} C {begin} {y + 34}, {end} {y + 26}, {end} {y + 58}"
        yield f'<path d="{curve}" fill="none" stroke="{WEIGHT}" stroke-width="{0.75 + 15 * weight:.2f}"/>'
