"""Slides and poll sheet: what of a lesson goes on them, and that each question gets its own answer."""

import base64
from pathlib import Path

import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from slides import slides_of
from sources import notebooks
from teaching import POLLED, answer_of, question_of

ROOT = Path(__file__).parents[2]
PNG = base64.b64encode(b"picture").decode()


@pytest.fixture
def lesson(tmp_path: Path) -> NotebookNode:
    (tmp_path / "images").mkdir()
    (tmp_path / "images/split.svg").write_text("<svg/>")
    drawn = new_output("display_data", {"image/png": PNG})
    return new_notebook(
        cells=[
            new_markdown_cell("# 03 · Heads\n\n**You cut.**\n\n*34 minutes to read, half a minute to run.*"),
            new_markdown_cell("## Cutting\n\n![Two halves](attachment:split.png)\n\n*Figure 1. Cut & join.*"),
            new_markdown_cell(
                "$$y = x^2 \\qquad (1)$$\n\n$$z = 3$$\n\n**Before you run this:** what is $y$?"
            ),
            new_code_cell("print(4)", outputs=[new_output("stream", text="4\n")]),
            new_code_cell("assert True", metadata={"tags": ["check"]}),
            new_markdown_cell(
                "It is [four](02_attention.ipynb). This is why:\n\n**Remember:** squares *grow*."
            ),
            new_code_cell("plot()", outputs=[drawn], metadata={"tags": ["figure-plot"]}),
            new_markdown_cell("*Figure 2. A curve.*\n\nMore."),
            new_markdown_cell("## Exercises\n\n**Remember:** nothing of this is shown."),
        ]
    )


def test_a_lesson_gives_title_figures_equation_question_and_what_to_remember(
    lesson: NotebookNode, tmp_path: Path
) -> None:
    title, drawing, equation, question, kept, plot = slides_of(lesson, tmp_path)
    assert "<h1>03 · Heads</h1>" in title
    assert "34 minutes to read" in title
    assert 'alt="Two halves"' in drawing
    assert "Figure 1. Cut &amp; join." in drawing
    assert base64.b64encode(b"<svg/>").decode() in drawing
    assert "\\[y = x^2 \\qquad (1)\\]" in equation
    assert 'What is <span class="math inline">\\(y\\)</span>?' in question
    assert "<p>It is four.</p>" in question
    assert "Squares <em>grow</em>." in kept
    assert PNG in plot
    assert "Figure 2. A curve." in plot
    assert all("<h2>Cutting</h2>" in each for each in (drawing, equation, question, kept, plot))
    assert all("Minutes to read this section: about 1." in each for each in (drawing, kept))


def test_an_answer_is_what_was_printed_and_what_the_text_says(lesson: NotebookNode) -> None:
    assert question_of(lesson.cells[2]) == "What is $y$?"
    assert answer_of(lesson, 2) == "```text\n4\n```\n\nIt is [four](02_attention.ipynb)."


def test_every_question_of_the_poll_has_an_answer() -> None:
    asked = [
        answer_of(notebook, index)
        for _, notebook in notebooks(ROOT)[:POLLED]
        for index, cell in enumerate(notebook.cells)
        if question_of(cell)
    ]
    assert asked
    assert all(asked)
