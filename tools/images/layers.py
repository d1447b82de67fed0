"""Four ways to relate the positions of one sequence, and the path from its first word to its last output."""

from canvas import COLOURS, INK, SOFT, Canvas

WORDS = 4
STEP, WIDTH, HEIGHT = 58, 44, 30  # pixels from one word to the next; a box
TOP, MIDDLE, BOTTOM = 96, 178, 260  # heights of the rows
PATH = COLOURS["output"][1]  # the colour of the path


def draw_layers() -> Canvas:
    """A recurrent layer, one with self-attention beside it, two convolutions, self-attention (section 4)."""
    sheet = Canvas(1060, 384, "Recurrent; recurrent with self-attention; convolution; self-attention alone")
    panels = (
        (draw_recurrent, "Recurrent", "4 steps, one after the other"),
        (draw_intra_attention, "Both (2016)", "2 steps, but states still wait"),
        (draw_convolutions, "Convolution, k = 3", "2 layers; grows with n"),
        (draw_self_attention, "Self-attention", "1 layer, at any distance"),
    )
    for i, (draw, title, note) in enumerate(panels):
        x = 24 + i * 264
        sheet.text(x, 26, title, 17, "start", bold=True)
        draw(sheet, x)
        sheet.text(x, 358, note, 14, "start", PATH)
    return sheet


def mid(x: float, i: int) -> float:
    """The middle of the i-th box of the panel at x."""
    return x + i * STEP + WIDTH / 2


def link(sheet: Canvas, start: tuple[float, float], end: tuple[float, float], path: bool) -> None:
    """A line from one box to another, thick where it is on the path."""
    sheet.arrow(start, end, head=False, width=3.5 if path else 1.1, colour=PATH if path else SOFT)


def row(sheet: Canvas, x: float, y: float, kind: str, name: str) -> None:
    for i in range(WORDS):
        sheet.box(x + i * STEP, y, WIDTH, HEIGHT, kind, f"{name}~{i + 1}~", size=14)


def ends(sheet: Canvas, x: float, kind: str) -> None:
    """The input words, and the outputs."""
    row(sheet, x, BOTTOM + 40, "plain", "x")
    row(sheet, x, TOP - 40, kind, "z")


def draw_recurrent(sheet: Canvas, x: float) -> None:
    """Each state is made of a word and the state before."""
    for i in range(WORDS):
        link(sheet, (mid(x, i), BOTTOM + 40), (mid(x, i), MIDDLE + HEIGHT), i == 0)
        link(sheet, (mid(x, i), MIDDLE), (mid(x, i), TOP - 10), i == WORDS - 1)
    for i in range(WORDS - 1):
        middle = MIDDLE + HEIGHT / 2
        link(sheet, (x + i * STEP + WIDTH, middle), (x + (i + 1) * STEP, middle), True)
    row(sheet, x, MIDDLE, "embedding", "h")
    ends(sheet, x, "plain")


def draw_intra_attention(sheet: Canvas, x: float) -> None:
    """States in a row, over which each output looks back."""
    for i in range(WORDS):
        link(sheet, (mid(x, i), BOTTOM + 40), (mid(x, i), MIDDLE + HEIGHT), i == 0)
        for j in range(i + 1):
            link(sheet, (mid(x, j), MIDDLE), (mid(x, i), TOP - 10), (j, i) == (0, WORDS - 1))
    for i in range(WORDS - 1):
        middle = MIDDLE + HEIGHT / 2
        sheet.arrow((x + i * STEP + WIDTH, middle), (x + (i + 1) * STEP, middle), width=1.5, colour=INK)
    row(sheet, x, MIDDLE, "embedding", "h")
    ends(sheet, x, "attention")


def draw_convolutions(sheet: Canvas, x: float) -> None:
    """Two layers; each box is made of the one below it and the two before."""
    for low, high, route in ((BOTTOM + 40, MIDDLE + HEIGHT, (0, 2)), (MIDDLE, TOP - 10, (2, 3))):
        for i in range(WORDS):
            for j in range(max(0, i - 2), i + 1):
                link(sheet, (mid(x, j), low), (mid(x, i), high), (j, i) == route)
    row(sheet, x, MIDDLE, "network", "c")
    ends(sheet, x, "network")


def draw_self_attention(sheet: Canvas, x: float) -> None:
    """Every output is made of all words."""
    for i in range(WORDS):
        for j in range(WORDS):
            link(sheet, (mid(x, j), BOTTOM + 40), (mid(x, i), TOP - 10), (j, i) == (0, WORDS - 1))
    ends(sheet, x, "attention")
