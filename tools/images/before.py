"""What came before the Transformer, and what it left out: three ways from a source sentence to vectors."""

from canvas import INK, SOFT, Canvas

SOURCE, TARGET = ("a", "cat", "runs"), ("eine", "Katze", "rennt")
STEP, WIDTH, HEIGHT = 92, 58, 34  # pixels from one state to the next; a state's box
LOW, HIGH = 258, 108  # heights of the two rows of states
WEIGHTS = (0.06, 0.86, 0.08)  # as drawn, for the decoder's second step


def draw_before() -> Canvas:
    """An RNN encoder-decoder, the same with attention, and self-attention (sections 1 and 2)."""
    sheet = Canvas(1040, 380, "An RNN encoder-decoder; the same with attention; self-attention alone")
    for x, title in ((40, "RNN encoder-decoder"), (390, "with attention"), (740, "Transformer encoder")):
        sheet.text(x, 26, title, 18, "start", bold=True)
    draw_rnns(sheet, 40)
    sheet.arrow((mid(40, 2), LOW), (mid(40, 2), 190), (mid(40, 0), 190), (mid(40, 0), HIGH + HEIGHT))
    sheet.text(mid(40, 1), 174, "one vector", 14, bold=True)
    draw_rnns(sheet, 390)
    for j, weight in enumerate(WEIGHTS):
        sheet.arrow((mid(390, j), LOW), (mid(390, 1), HIGH + HEIGHT), width=1 + 5 * weight, head=False)
    sheet.text(mid(390, 2) + 6, 190, "weights α", 14, bold=True)
    draw_self_attention(sheet, 740)
    for x, note in (
        (40, "Each state waits for the one before."),
        (390, "Each step looks back at all states."),
        (740, "Each position looks at all; none waits."),
    ):
        sheet.text(x, 356, note, 14, "start", SOFT)
    return sheet


def mid(x: float, i: int) -> float:
    """The middle of the i-th state of the panel at x."""
    return x + i * STEP + WIDTH / 2


def draw_states(sheet: Canvas, x: float, y: float, kind: str, name: str) -> None:
    """A row of three states."""
    for i in range(3):
        sheet.box(x + i * STEP, y, WIDTH, HEIGHT, kind, f"{name}~{i + 1}~")


def draw_words(sheet: Canvas, x: float, y: float, words: tuple[str, ...]) -> None:
    """The tokens under or over a row of states."""
    for i, word in enumerate(words):
        sheet.text(mid(x, i), y, word, 15)


def draw_rnns(sheet: Canvas, x: float) -> None:
    """Two rows of states, each state made from the one on its left and a token."""
    for y, kind, name in ((LOW, "embedding", "h"), (HIGH, "output", "s")):
        draw_states(sheet, x, y, kind, name)
        for i in (0, 1):
            sheet.arrow((x + i * STEP + WIDTH, y + HEIGHT / 2), (x + (i + 1) * STEP, y + HEIGHT / 2))
    draw_words(sheet, x, 328, SOURCE)
    draw_words(sheet, x, 62, TARGET)
    for i in range(3):
        sheet.arrow((mid(x, i), 316), (mid(x, i), LOW + HEIGHT))
        sheet.arrow((mid(x, i), HIGH), (mid(x, i), 74))


def draw_self_attention(sheet: Canvas, x: float) -> None:
    """Every vector of the upper row is made from all of the lower row at once."""
    for i in range(3):
        for j in range(3):
            sheet.arrow((mid(x, j), LOW), (mid(x, i), HIGH + HEIGHT), width=1.2, colour=INK)
    draw_states(sheet, x, LOW, "embedding", "x")
    draw_states(sheet, x, HIGH, "attention", "z")
    draw_words(sheet, x, 328, SOURCE)
    for i in range(3):
        sheet.arrow((mid(x, i), 316), (mid(x, i), LOW + HEIGHT))
        sheet.arrow((mid(x, i), HIGH), (mid(x, i), 74))
    sheet.text(mid(x, 1), 60, "to the next layer", 13, colour=SOFT)
