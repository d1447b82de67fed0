"""The form of a lesson, and how long one takes to read.

    python tools/notebooks/lessons.py    each lesson's minutes by the formula, beside those that it states

A reader's pace, as readers took it: 150 words of prose or 12 lines of code and output in a minute.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from exercises import TEST, groups, role
from folds import fold_of

PROOF = re.compile(r"^\s*assert\b|#\s*(?:fmt:|noqa)|\bassert_\w+\(", re.MULTILINE)
MINUTES = re.compile(r"^\*(\d+) minutes to read, ([^,.]*)", re.MULTILINE)
WORDS, LINES = 150, 12

Findings = Iterator[tuple[int, str, str]]


def is_evidence(path: Path) -> bool:
    """Return whether a notebook answers one question with runs, instead of teaching a part of the paper."""
    return path.parent.name == "evidence"


def clean_code(source: NotebookNode) -> Findings:
    """Yield each proof in the code that a lesson's reader sees; folded cells check what the text claims."""
    for position, cell in enumerate(source.cells, start=1):
        visible = cell.cell_type == "code" and not fold_of(cell) and role(cell) != TEST
        if visible and (found := PROOF.search(cell.source)):
            yield position, "proof in the open", f"{found.group().strip()!r} belongs into a check cell"


def reading_minutes(built: NotebookNode) -> float:
    """Return how long an executed lesson takes to read without its exercises and folded code."""
    exercise = {index for begin, end in groups(built) for index in range(begin - 1, end)}
    words = lines = 0
    for index, cell in enumerate(built.cells):
        if index in exercise:
            continue
        if cell.cell_type == "markdown":
            text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", cell.source)
            words += sum(any(c.isalnum() for c in word) for word in text.split())
        else:
            code = "" if fold_of(cell) else cell.source
            texts = [code, *(printed(output) for output in cell.outputs)]
            lines += sum(bool(line.strip()) for text in texts for line in text.splitlines())
    return words / WORDS + lines / LINES


def printed(output: NotebookNode) -> str:
    """Return an output's text; nothing for a picture."""
    if output.output_type == "stream":
        return output.text
    data = output.get("data", {})
    return "" if "image/png" in data else data.get("text/plain", "")


def main() -> None:
    """Print a line for each lesson."""
    for path in sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        built = nbformat.read(path, as_version=4)
        stated = MINUTES.search(built.cells[0].source)
        print(f"{path.stem:32}{reading_minutes(built):4.0f}   states {stated[1] if stated else 'nothing'}")


if __name__ == "__main__":
    main()
