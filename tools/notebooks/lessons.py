"""The form of a lesson: the code that a reader sees is clean, and folded cells check what the text claims."""

import re
from collections.abc import Iterator
from pathlib import Path

from nbformat import NotebookNode

from exercises import TEST, groups, role
from folds import fold_of

PROOF = re.compile(r"^\s*assert\b|#\s*(?:fmt:|noqa)|\bassert_\w+\(", re.MULTILINE)
PREDICTION = "**Before you run this:**"
CLOSING = "## What you can now say"
MINUTES = re.compile(r"^\*(\d+) minutes to read,", re.MULTILINE)
# A reader's pace, as readers took it: words of prose and lines of code in a minute.
WORDS, LINES = 150, 12
TOLERANCE = 0.1  # of the minutes

Findings = Iterator[tuple[int, str, str]]


def is_evidence(path: Path) -> bool:
    """Return whether a notebook answers one question with runs, instead of teaching a part of the paper."""
    return path.parent.name == "evidence"


def check_lesson(source: NotebookNode) -> Findings:
    """Yield each way in which a lesson differs from the form."""
    for position, cell in enumerate(source.cells, start=1):
        visible = cell.cell_type == "code" and not fold_of(cell) and role(cell) != TEST
        if visible and (found := PROOF.search(cell.source)):
            yield position, "proof in the open", f"{found.group().strip()!r} belongs into a check cell"
    text = [cell.source for cell in source.cells if cell.cell_type == "markdown"]
    if not any(paragraph.startswith(PREDICTION) for cell in text for paragraph in cell.split("\n\n")):
        yield 0, "no prediction", f"before an experiment, a paragraph begins {PREDICTION}"
    if not any(CLOSING in cell.splitlines() for cell in text):
        yield 0, "no closing", f"a lesson ends with {CLOSING!r}"
    stated, took = MINUTES.search(source.cells[0].source), reading_minutes(source)
    if stated is None or abs(int(stated[1]) - took) > max(2, TOLERANCE * took):
        yield 1, "minutes", f"by the formula it is '*{took:.0f} minutes to read, ...'"


def reading_minutes(source: NotebookNode) -> float:
    """Return how long a lesson takes to read without its exercises: words / 150 + visible lines / 12."""
    exercise = {index for begin, end in groups(source) for index in range(begin - 1, end)}
    words = lines = 0
    for index, cell in enumerate(source.cells):
        if index in exercise or fold_of(cell):
            continue
        if cell.cell_type == "markdown":
            text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", cell.source)
            words += sum(any(c.isalnum() for c in word) for word in text.split())
        else:
            lines += sum(bool(line.strip()) for line in cell.source.splitlines())
    return words / WORDS + lines / LINES
