"""Strict nbval, as `make test` runs it, finds what changed and overlooks only what machines differ in."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook, new_output

ROOT = Path(__file__).parents[2]
CHART = "application/vnd.vegalite.v5+json"
FIGURE = "import matplotlib.pyplot as plt\nfor _ in range({}):\n    plt.plot([1, 2])\n    plt.show()\n"
ONE_FIGURE = {"image/png": "AAAA", "text/plain": "<Figure size 640x480 with 1 Axes>"}
SHOW = "from IPython.display import display\ndisplay({}, raw=True)"


def stored(source: str, *outputs: NotebookNode, count: int | None = 1) -> NotebookNode:
    return new_code_cell(source, outputs=list(outputs), execution_count=count)


def shown(**data: object) -> NotebookNode:
    return new_output("display_data", data)


def printed(text: str) -> NotebookNode:
    return new_output("stream", name="stdout", text=text)


def drawn(rows: list[int], text: str = "<Chart: Rows>") -> dict[str, object]:
    return {CHART: {"data": {"values": rows}}, "image/png": "AAAA", "text/plain": text}


# What a cell does, what is stored as its output, and whether that is to pass.
CASES = {
    "same": (stored("print('one')", printed("one\n")), True),
    "other_text": (stored("print('one')", printed("two\n")), False),
    "other_chart_data": (stored(SHOW.format(drawn([1, 2])), shown(**drawn([1, 3]))), True),
    "missing_chart": (stored("x = 1", shown(**drawn([1]))), False),
    "other_address": (stored("print('<object at 0xabc1>')", printed("<object at 0xdef2>\n")), True),
    "same_figure": (stored(FIGURE.format(1), shown(**ONE_FIGURE)), True),
    "about_text": (stored("print('≈68.9 BLEU')", printed("≈41.2 BLEU\n")), True),
    "about_unit": (stored("print('≈3 s')", printed("≈3 ms\n")), False),
    "exact_beside": (stored("print('≈3 of 4')", printed("≈3 of 5\n")), False),
    "other_figure_count": (stored(FIGURE.format(2), shown(**ONE_FIGURE)), False),
    "never_run": (stored("print('one')", count=None), True),  # which is why the pair check refuses it
}


@pytest.fixture(scope="module")
def nbval_report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `make test`'s nbval says of a notebook with a cell for each case."""
    folder = tmp_path_factory.mktemp("nbval") / "notebooks"
    folder.mkdir()
    for name in ("conftest.py", "nbval_sanitize.cfg"):
        shutil.copy(ROOT / "notebooks" / name, folder)
    nbformat.write(new_notebook(cells=[cell for cell, _ in CASES.values()]), folder / "cases.ipynb")
    flags = re.search(r"^NBVAL := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE).group(1).split()
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", *flags, "notebooks"]
    # Tests draw without windows, which they say in the environment; a kernel told so draws nothing inline.
    kernel = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    return subprocess.run(command, cwd=folder.parent, env=kernel, capture_output=True, text=True).stdout


@pytest.mark.parametrize("name", CASES)
def test_nbval_is_strict_but_for_what_machines_differ_in(nbval_report: str, name: str) -> None:
    verdict = "PASSED" if CASES[name][1] else "FAILED"
    cell = rf"^{verdict} notebooks/cases\.ipynb::Cell {list(CASES).index(name)}\b"
    assert re.search(cell, nbval_report, re.MULTILINE), nbval_report
