"""Two maps: the notebooks in the order of reading, and the package's modules in layers."""

import textwrap

from canvas import SOFT, Canvas

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
        ),
    ),
)
ROW_KINDS = ("attention", "embedding", "norm", "network", "output", "plain")  # the colours of the rows

# The package from the ground up: a module imports only from its own row and those before it.
PACKAGE = (
    (
        "The Transformer",
        (
            ("masks", "who sees whom"),
            ("cache", "decoding, faster"),
            ("attention", "equation 1, heads"),
            ("layers", "what is around it"),
            ("model", "encoder, decoder"),
            ("loss", "label smoothing"),
            ("schedule", "learning rate"),
        ),
    ),
    ("Text", (("files", "written whole"), ("tokenizers", "words, subwords"), ("data", "corpora, batches"))),
    (
        "Search, scores",
        (("modes", "evaluated, watched"), ("decoding", "greedy, beam"), ("evaluation", "BLEU, perplexity")),
    ),
    (
        "Training",
        (
            ("training", "epoch by hand"),
            ("consistency", "two passes agree"),
            ("settings", "of a run"),
            ("devices", "where, how exact"),
            ("tensors", "weights on disk"),
            ("checkpoints", "saved models"),
            ("runs", "kill and resume"),
            ("pace", "the time left"),
            ("trainer", "a whole run"),
        ),
    ),
    (
        "In use",
        (
            ("translator", "text in, text out"),
            ("plots", "every figure"),
            ("results", "scores of a split"),
            ("recipes", "how to reproduce"),
            ("release", "model and card"),
            ("names", "in older texts"),
            ("interop", "other libraries"),
            ("inside", "seen in a page"),
        ),
    ),
    ("Command line", (("commands", "train, translate"), ("__main__", "their options"))),
)


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


def draw_package() -> Canvas:
    """The modules in rows, the first at the bottom: each row stands on those below it."""
    widest = max(len(modules) for _, modules in PACKAGE)
    sheet = Canvas(202 + 134 * widest, 86 * len(PACKAGE) + 50, "The package, module by module")
    for row, ((name, modules), kind) in enumerate(zip(PACKAGE, ROW_KINDS, strict=True)):
        y = 24 + 86 * (len(PACKAGE) - 1 - row)
        sheet.text(24, y + 32, name, 16, "start", bold=True)
        for column, (module, what) in enumerate(modules):
            sheet.box(184 + 134 * column, y, 124, 64, kind, module, what, 13.5)
    foot = "A module imports only from its own row and from those below it."
    sheet.text(184, sheet.height - 24, foot, 14, "start", SOFT)
    return sheet
