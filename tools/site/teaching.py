"""The pages for teachers, read from the notebooks: what each lesson needs and gives, and what it asks.

A lesson asks for predictions: "**Before you run this:** which of the three outputs will differ?"
"""

import re
from collections.abc import Iterator
from pathlib import Path

from nbformat import NotebookNode

from exercises import MARKED, exercises
from folds import CHECK, fold_of
from lessons import MINUTES, printed
from sources import fill, notebooks, title_of

BEFORE, AFTER = (re.compile(rf"^- \*\*{w}:\*\* (.*(?:\n  .*)*)", re.MULTILINE) for w in ("Before", "After"))
QUESTION = re.compile(r"^\*\*Before you run this:\*\* ((?:.+\n?)+)", re.MULTILINE)
LEADS_ON = re.compile(r"(?<=[.?!])\s[^.?!]*:$")  # to what stands below it
LONGEST = 12  # lines of output in an answer
POLLED = 9  # lessons 00 to 08, which teach the paper's model


def write_teaching(root: Path, folder: Path) -> None:
    """Put the table and the questions into their pages."""
    rows = ["* - " + "\n  - ".join(row(*each)) for each in notebooks(root)]
    fill(folder / "teaching.md", ROWS="\n".join(rows))
    fill(folder / "poll.md", QUESTIONS="\n".join(poll(root)))


def row(path: Path, notebook: NotebookNode) -> tuple[str, ...]:
    """One notebook's cells; one is empty where the head of the notebook does not say what belongs there."""
    minutes, before, after = (
        pattern.search(notebook.cells[0].source) for pattern in (MINUTES, BEFORE, AFTER)
    )
    return (
        f"[{title_of(notebook)}](notebooks/{path.name})",
        f"{minutes[1]} to read; {minutes[2]}" if minutes else "",
        one_line(before[1]) if before else "",
        one_line(after[1]) if after else "",
        task_list(notebook),
    )


def one_line(text: str) -> str:
    """A text of several lines in one, for a page one folder above the notebooks."""
    return above(" ".join(text.split()))


def above(text: str) -> str:
    """A notebook's text for a page one folder above: its links lead down."""
    return re.sub(r"\]\((\d\d_|evidence/)", r"](notebooks/\1", text)


def task_list(notebook: NotebookNode) -> str:
    """The exercises, by how hard they are, and how many of them have a test."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    levels = sorted(MARKED.findall(text), key=("easy", "medium", "hard").index)
    return f"{', '.join(levels)}; {len(exercises(notebook))} with a test"


def poll(root: Path) -> Iterator[str]:
    """Yield the questions of the first lessons, each with its answer folded."""
    number = 0
    for _, notebook in notebooks(root)[:POLLED]:
        yield f"## {title_of(notebook)}\n"
        for index, cell in enumerate(notebook.cells):
            if question := question_of(cell):
                number += 1
                yield f"**{number}.** {one_line(question)}\n"
                answer = above(answer_of(notebook, index))
                yield f"<details><summary>Answer</summary>\n\n{answer}\n\n</details>\n"


def question_of(cell: NotebookNode) -> str:
    """What a text asks the reader to predict; nothing where it asks nothing."""
    found = QUESTION.search(cell.source) if cell.cell_type == "markdown" else None
    question = found[1].strip() if found else ""
    return question[:1].upper() + question[1:]


def answer_of(notebook: NotebookNode, asked: int) -> str:
    """What follows the question in cell `asked`: what is printed, a figure's caption, the first paragraph."""
    answer, text = list[str](), list[str]()
    for cell in notebook.cells[asked + 1 :]:
        if cell.cell_type == "code":
            text += ["" if fold_of(cell) == CHECK else printed(output) for output in cell.outputs]
            continue
        for paragraph in cell.source.split("\n\n"):
            if paragraph.startswith("*Figure"):
                answer.append(f"*{paragraph.partition('. ')[2]}")  # without its number
            elif not paragraph.startswith(("#", "!", ">", "|", "$$")):
                shown = "".join(text).rstrip()
                block = [f"```text\n{shown}\n```"] if shown and len(shown.splitlines()) <= LONGEST else []
                return "\n\n".join([*block, *answer, LEADS_ON.sub("", paragraph)])
    return ""
