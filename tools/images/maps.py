"""The map of the series: the notebooks in the order of reading."""

import textwrap

from canvas import Canvas

# What each row of the series is about, and its notebooks: number, name, what the reader meets there.
SERIES = (
    ("The question", ((0, "start here", "translate first"), (1, "why attention", "paths and costs"))),
    (
        "The model",
        (
            (2, "attention", "equation 1, masks"),
            (3, "multi-head attention", "four linears"),
            (4, "feed-forward and embeddings", "one matrix, three uses"),
            (5, "positional encoding", "waves that turn"),
            (6, "the full model", "norms, parameters"),
        ),
    ),
    (
        "Training it",
        (
            (7, "batches and masks", "shifted targets"),
            (8, "training recipe", "rate and smoothing"),
            (9, "first example", "the copy task"),
            (10, "translation", "end to end"),
        ),
    ),
    (
        "Using it",
        (
            (11, "search and averaging", "beams and caches"),
            (12, "results", "BLEU, Tables 2 and 3"),
            (13, "reading attention", "the explorer"),
        ),
    ),
    (
        "Beyond",
        (
            (14, "under the hood of nn.Transformer", "PyTorch's own"),
            (15, "going fast", "measured steps"),
            (16, "another task", "sentence to tree"),
            (17, "since 2017", "what pays here"),
        ),
    ),
)
ROW_KINDS = ("attention", "embedding", "norm", "network", "output", "plain")  # the colours of the rows


def draw_series() -> Canvas:
    """The notebooks, row by row, an arrow from each to the next."""
    sheet = Canvas(1140, 560, "The series, notebook by notebook")
    for row, ((theme, notebooks), kind) in enumerate(zip(SERIES, ROW_KINDS, strict=False)):
        y = 24 + 106 * row
        sheet.text(24, y + 38, theme, 17, "start", bold=True)
        for column, (number, name, what) in enumerate(notebooks):
            x = 160 + 196 * column
            sheet.box(x, y, 172, 76, kind, in_lines(f"{number:02d} {name}"), what, 14.5)
            if column:
                sheet.arrow((x - 24, y + 38), (x, y + 38))
        if row:
            last = 160 + 196 * (len(SERIES[row - 1][1]) - 1) + 86
            sheet.arrow((last, y - 30), (last, y - 15), (246, y - 15), (246, y))
    return sheet


def in_lines(text: str, width: int = 18) -> str:
    """The text broken into lines of at most `width` characters."""
    return textwrap.fill(text, width)
