"""Where the shipped model looks while it writes a translation: word by word, and all at once on a card."""

from collections.abc import Sequence

from torch import Tensor

from annotated import load_pretrained
from annotated.translation.translator import TranslationAttention
from canvas import COLOURS, INK, SOFT, Canvas

SENTENCE = "A man in a red jacket is riding a bike down the street."
SECONDS, HOLD = 0.9, 3  # a step takes so long; at the end the picture stays for so many steps
LETTER, GAP, HEIGHT, SIZE = 9.6, 12, 34, 16  # widths of a letter and between boxes, a box's height, its type
TOP, BOTTOM, MARGIN = 62, 232, 24
FAINT, STRONG = 0.06, 0.3  # weights below are not drawn while a word is written; when all are


def draw_translation() -> Canvas:
    """English above, German below; lines from the word that is being written to those looked at."""
    layer, weights, source, written = translated(SENTENCE)
    width = max(row_width(source), row_width(written)) + 2 * MARGIN
    canvas = Canvas(round(width), 300, f"The translation of “{SENTENCE}” being written, word by word")
    above, below = (places(tokens, width) for tokens in (source, written))
    canvas.text(MARGIN, 26, "English, read all at once", anchor="start", colour=SOFT)
    canvas.text(
        MARGIN,
        284,
        f"German, a word at a time. Lines: where layer {layer + 1} looks",
        anchor="start",
        colour=SOFT,
    )
    for x, token in zip(above, source, strict=True):
        word(canvas, x, TOP, token, "key")
    steps = len(written)
    for step, (x, token) in enumerate(zip(below, written, strict=True)):
        with canvas.shown(step, steps + HOLD, steps + HOLD, SECONDS):
            word(canvas, x, BOTTOM, token, "query")
        with canvas.shown(step, step + 1, steps + HOLD, SECONDS):
            draw_lines(canvas, above, x, weights[step], FAINT)
    with canvas.shown(steps, steps + HOLD, steps + HOLD, SECONDS):
        for x, row in zip(below, weights, strict=True):
            draw_lines(canvas, above, x, row, STRONG)
    return canvas


def draw_card() -> Canvas:
    """What a link to the site shows where it is shared: 1200 by 630 pixels as a PNG."""
    _, weights, source, written = translated("A dog runs through the snow.")
    canvas = Canvas(600, 315, "Attention Is All You Need, in notebooks that run")
    canvas.text(canvas.width / 2, 26, "annotated", 17, colour=SOFT)
    above, below = (places(tokens, canvas.width) for tokens in (source, written))
    for x, row in zip(below, weights, strict=True):
        draw_lines(canvas, above, x, row, FAINT)
    for row, y, tokens, kind in ((above, TOP, source, "key"), (below, BOTTOM, written, "query")):
        for x, token in zip(row, tokens, strict=True):
            word(canvas, x, y, token, kind)
    canvas.text(canvas.width / 2, 284, canvas.title, 21, bold=True)
    return canvas


def translated(sentence: str) -> tuple[int, Tensor, list[str], list[str]]:
    """The layer that is surest where to look, its weights (target, source), and the tokens of both sides."""
    seen = load_pretrained("multi30k-en-de").attention(sentence)
    layer = sharpest(seen)
    source, written = (
        list(map(plain, tokens)) for tokens in (seen.src_tokens, [*seen.tgt_tokens[1:], "</s>"])
    )
    return layer, seen.maps["cross", layer].mean(dim=0), source, written


def sharpest(seen: TranslationAttention) -> int:
    """The layer whose cross-attention, the mean of its heads, is most sure where to look."""
    layers = [layer for kind, layer in seen.maps if kind == "cross"]
    return max(layers, key=lambda layer: seen.maps["cross", layer].mean(dim=0).amax(dim=-1).mean().item())


def plain(piece: str) -> str:
    """A piece without the sign for the space before it."""
    return piece.replace("▁", "")


def row_width(tokens: Sequence[str]) -> float:
    """How wide a row of words is."""
    return sum(box_width(token) for token in tokens) + GAP * (len(tokens) - 1)


def box_width(token: str) -> float:
    return LETTER * len(token) + 18


def places(tokens: Sequence[str], width: float) -> list[float]:
    """The middle of each word's box, the row in the middle of the sheet."""
    left, middles = (width - row_width(tokens)) / 2, []
    for token in tokens:
        middles.append(left + box_width(token) / 2)
        left += box_width(token) + GAP
    return middles


def word(canvas: Canvas, x: float, y: float, token: str, kind: str) -> None:
    fill, edge = COLOURS[kind]
    canvas.rectangle(x - box_width(token) / 2, y - HEIGHT / 2, box_width(token), HEIGHT, fill, edge)
    canvas.text(x, y, token, SIZE)


def draw_lines(canvas: Canvas, above: Sequence[float], end: float, weights: Tensor, least: float) -> None:
    """From the source words down to a target word, each as thick as its weight, those above `least`."""
    for start, weight in zip(above, weights.tolist(), strict=True):
        if weight > least:
            ends = (start, TOP + HEIGHT / 2 + 2), (end, BOTTOM - HEIGHT / 2 - 2)
            thickness, colour = round(1 + 6 * weight, 1), INK if weight > 0.5 else SOFT
            canvas.arrow(*ends, head=False, width=thickness, colour=colour)
