"""The paper's figures, drawn anew: the model, attention as matrices, attention in several heads."""

from collections.abc import Sequence

import torch
from torch import Tensor

from canvas import COLOURS, PAPER, SOFT, Canvas

SUBLAYER = 122  # pixels from one sub-layer to the next
WIDTH = 205  # of a sub-layer's box
CELL = 26  # pixels: one entry of a matrix
ATTENTION_NOTES = (
    "T queries, S keys and values. The stronger",
    "a cell's colour, the larger its number. The",
    "last key is padding: its weight is 0. Each",
    "row of weights adds up to 1 and mixes the",
    "values into one row of the output.",
)
HEAD_NOTES = (
    "Four linear maps, each d~model~ × d~model~: three make queries, keys and values for all heads at once,",
    "the fourth mixes what the heads found. Together the heads cost what one head of width d~model~ would.",
)


def draw_architecture() -> Canvas:
    """Encoder and decoder (section 3): what flows down, and what each sub-layer adds to it."""
    sheet = Canvas(980, 770, "The Transformer: an encoder and a decoder, post-norm")
    draw_stack(
        sheet, 60, "Encoder", "source tokens", [("attention", "self-attention"), ("network", "feed-forward")]
    )
    draw_stack(
        sheet,
        540,
        "Decoder",
        "target tokens so far",
        [
            ("attention", "masked self-attention"),
            ("attention", "cross-attention"),
            ("network", "feed-forward"),
        ],
    )
    sheet.arrow((330, 455), (330, 540), (488, 540), (488, 385), (540, 385))
    sheet.text(409, 524, "memory", 15, bold=True)
    sheet.text(409, 558, "(src_len, d~model~)", 13, colour=SOFT)
    sheet.text(495, 371, "K", 13, colour=COLOURS["key"][1], bold=True)
    sheet.text(515, 371, "V", 13, colour=COLOURS["value"][1], bold=True)
    sheet.box(710, 620, 200, 44, "output", "linear, softmax")
    sheet.text(700, 634, "the embedding's matrix,", 13, "end", SOFT)
    sheet.text(700, 652, "shared", 13, "end", SOFT)
    sheet.arrow((810, 664), (810, 700))
    sheet.text(810, 718, "probabilities of the next token", 15, bold=True)
    sheet.text(810, 738, "(tgt_len, vocabulary)", 13, colour=SOFT)
    sheet.text(60, 660, "Post-norm, as in the paper:", 15, "start", bold=True)
    sheet.text(60, 684, "x becomes LayerNorm(x + Dropout(sublayer(x)))", 15, "start")
    sheet.text(60, 714, "Every state between layers is d~model~ wide.", 15, "start")
    sheet.text(60, 738, "Base model: N = 6, d~model~ = 512, 8 heads, d~ff~ = 2048.", 15, "start")
    return sheet


def draw_stack(sheet: Canvas, x: float, name: str, tokens: str, sublayers: Sequence[tuple[str, str]]) -> None:
    """One of the two stacks, its left edge at x: embedding, positions, and one layer of the N."""
    stream, top = x + 270, 205
    bottom = top + SUBLAYER * len(sublayers)
    sheet.text(x, 36, name, 22, "start", bold=True)
    sheet.text(stream, 36, tokens, 15, bold=True)
    sheet.rectangle(x - 20, top - 12, 370, bottom - top + 10, PAPER, SOFT, dashed=True)
    sheet.text(x + 342, top + 8, "N times", 14, "end", SOFT)
    sheet.arrow(
        (stream, 52), (stream, bottom + 45 if name == "Decoder" else bottom + 6), head=name == "Decoder"
    )
    sheet.box(stream - 85, 66, 170, 44, "embedding", "embedding", "times √d~model~")
    sheet.box(x, 128, 160, 44, "embedding", "positions", "sine and cosine")
    sheet.arrow((x + 160, 150), (stream - 11, 150))
    sheet.plus(stream, 150)
    for i, (kind, title) in enumerate(sublayers):
        draw_sublayer(sheet, x, stream, top + i * SUBLAYER, kind, title)


def draw_sublayer(sheet: Canvas, x: float, stream: float, top: float, kind: str, title: str) -> None:
    """One sub-layer: it reads the stream, its output is added to it, the sum is normalised."""
    inside = "max(0, x W~1~ + b~1~) W~2~ + b~2~" if kind == "network" else "h heads side by side"
    sheet.arrow((stream, top + 22), (x + WIDTH, top + 22))
    sheet.arrow((x + WIDTH, top + 58), (stream - 11, top + 58))
    sheet.box(x, top + 8, WIDTH, 64, kind, title, inside, 14.5)
    sheet.plus(stream, top + 58)
    sheet.box(stream - 55, top + 78, 110, 26, "norm", "LayerNorm", size=13)


def draw_norm_orders() -> Canvas:
    """Post-norm beside pre-norm (section 3.1): on the stream, or on the way into each sub-layer."""
    sheet = Canvas(980, 440, "Post-norm and pre-norm: where the layer norm stands")
    for left, title, formula in (
        (40, "Post-norm (the paper)", "LayerNorm(x + Sublayer(x))"),
        (530, "Pre-norm", "x + Sublayer(LayerNorm(x))"),
    ):
        pre, stream = title == "Pre-norm", left + 330
        sheet.text(left, 28, title, 20, "start", bold=True)
        sheet.text(left, 54, formula, 15, "start")
        sheet.text(stream, 54, "x", 17, bold=True)
        sheet.arrow((stream, 68), (stream, 410))
        for top, name in ((95, "attention"), (250, "feed-forward")):
            kind = "attention" if name == "attention" else "network"
            sheet.arrow((stream, top), (left + 190, top), head=not pre)
            if pre:
                sheet.box(left + 205, top - 13, 100, 26, "norm", "LayerNorm", size=13)
                sheet.arrow((left + 205, top), (left + 190, top))
            sheet.box(left, top - 20, 190, 84, kind, name)
            sheet.arrow((left + 190, top + 44), (stream - 11, top + 44))
            sheet.plus(stream, top + 44)
            if not pre:
                sheet.box(stream - 55, top + 74, 110, 26, "norm", "LayerNorm", size=13)
    sheet.text(530, 428, "The stream itself meets sums only.", 14, "start", SOFT)
    sheet.text(40, 428, "Every sum is normalised on the stream.", 14, "start", SOFT)
    return sheet


def draw_attention() -> Canvas:
    """Scaled dot-product attention (section 3.2.1, equation 1): three queries, three keys and padding."""
    sheet = Canvas(
        980, 470, "Scaled dot-product attention, step by step; the last key is padding, which a mask hides"
    )
    query = torch.tensor([[2.6, 0.2], [0.4, 2.4], [1.5, 1.3]])
    key = torch.tensor([[2.0, 0.3], [0.2, 2.2], [1.2, 1.0], [1.0, 1.4]])
    value = torch.tensor([[1.0, 0.1, 0.5], [0.1, 0.9, 0.2], [0.4, 0.3, 1.0], [0.7, 0.7, 0.7]])
    padding = torch.tensor([False, False, False, True])
    scores = query @ key.T
    scaled = scores / query.size(1) ** 0.5
    weights = scaled.masked_fill(padding, -torch.inf).softmax(dim=-1)
    largest = scores.max()
    draw_matrix(sheet, 76, query / 3, "query", "Q", "(T, d~k~)", 100)
    draw_matrix(sheet, 216, key.T / 3, "key", "K^T^", "(d~k~, S)", 100)
    draw_matrix(sheet, 412, scores / largest, "plain", "scores", "(T, S)", 100)
    draw_matrix(sheet, 652, scaled / largest, "plain", "scaled", "(T, S)", 100)
    draw_matrix(sheet, 892, (scaled / largest).masked_fill(padding, -1), "plain", "masked", "(T, S)", 100)
    draw_matrix(sheet, 462, weights, "plain", "weights", "(T, S)", 350)
    draw_matrix(sheet, 662, value, "value", "V", "(S, d~v~)", 350)
    draw_matrix(sheet, 892, weights @ value, "value", "output", "(T, d~v~)", 350)
    sheet.text(134, 100, "×", 24)
    sheet.text(568, 350, "×", 24)
    for start, end, label in ((276, 350, ""), (474, 590, "÷ √d~k~"), (714, 830, "hide padding")):
        sheet.arrow((start, 100), (end, 100))
        sheet.text((start + end) / 2, 82, label)
    sheet.arrow((892, 176), (892, 222), (462, 222), (462, 276))
    sheet.text(677, 206, "softmax of each row")
    sheet.arrow((716, 350), (842, 350))
    sheet.text(40, 296, "attention(Q, K, V)", 17, "start", bold=True)
    sheet.text(40, 324, "= softmax(Q K^T^ / √d~k~) V", 17, "start")
    for i, line in enumerate(ATTENTION_NOTES):
        sheet.text(40, 360 + 22 * i, line, 14, "start", SOFT)
    return sheet


def draw_matrix(
    sheet: Canvas,
    middle: float,
    cells: Tensor,
    kind: str,
    name: str,
    shape: str,
    height: float,
) -> None:
    """A matrix around (middle, height), its name above and its shape below."""
    half_height, half_width = (CELL * size / 2 for size in cells.shape)
    sheet.matrix(middle - half_width, height - half_height, cells.tolist(), kind, CELL)
    sheet.text(middle, height - half_height - 20, name, 17, bold=True)
    sheet.text(middle, height + half_height + 18, shape, 13, colour=SOFT)


def draw_heads() -> Canvas:
    """Multi-head attention (section 3.2.2): three linear maps in, h attentions, one linear map out."""
    sheet = Canvas(980, 400, "Multi-head attention and its four linear maps")
    for i in range(4):
        x, y = 480 + 16 * (3 - i), 70 + 16 * (3 - i)
        sheet.box(x, y, 150, 190, "attention", "attention" if i == 3 else "")
    for row, (name, shape) in enumerate((("query", "T"), ("key", "S"), ("value", "S"))):
        y = 100 + 65 * row
        sheet.text(32, y - 8, name, 16, "start", COLOURS[name][1], bold=True)
        sheet.text(32, y + 12, f"({shape}, d~model~)", 13, "start", SOFT)
        sheet.arrow((124, y), (170, y))
        sheet.box(170, y - 23, 110, 46, name, f"linear W^{name[0].upper()}^")
        sheet.arrow((280, y), (480, y))
        sheet.text(380, y - 13, "cut into h heads", 13)
        sheet.text(380, y + 14, f"(h, {shape}, d~k~)", 13, colour=SOFT)
    sheet.text(594, 38, "h heads, each on its own d~k~ = d~model~ / h", 15)
    sheet.arrow((678, 165), (740, 165))
    sheet.text(709, 151, "join", 13)
    sheet.box(740, 142, 110, 46, "network", "linear W^O^")
    sheet.arrow((850, 165), (884, 165))
    sheet.text(890, 157, "output", 16, "start", bold=True)
    sheet.text(890, 177, "(T, d~model~)", 13, "start", SOFT)
    for i, line in enumerate(HEAD_NOTES):
        sheet.text(32, 336 + 26 * i, line, 15, "start")
    return sheet
