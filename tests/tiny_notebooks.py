"""A notebook pair that passes the pair check, for the tests of the tools."""

from collections.abc import Callable
from pathlib import Path

import nbformat
from nbformat import NotebookNode

import address
import pairs

START = address.first_cell("")
EXERCISE = '# %% [markdown]\n# **Exercise.** Add.\n\n# %% tags=["solution"]\nassert 1 + 1 == 2\n'
HEAD = "# %% [markdown]\n# # Tiny\n"


def notebook_text(*cells: str, start: str = START, end: str = EXERCISE) -> str:
    return "\n".join([HEAD, f'# %% tags=["install"]\n{start}\n', *cells, end])


def write_pair(
    folder: Path, text: str, change: Callable[[NotebookNode], object] = lambda built: None
) -> None:
    """A source, and what its run would have given, had no cell an output; then a change to the latter."""
    source = folder / "00_tiny.py"
    source.write_text(text, encoding="utf-8")
    built = pairs.read_source(source)
    for count, cell in enumerate((c for c in built.cells if c.cell_type == "code"), start=1):
        cell.execution_count = count
    change(built)
    # Not nbformat.write, which would mend some of the faults.
    (folder / "00_tiny.ipynb").write_text(nbformat.v4.writes(built) + "\n", encoding="utf-8")
