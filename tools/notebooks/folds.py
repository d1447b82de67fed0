"""Folded cells: the installation, scaffolding, solutions, and the checks of what the text claims.

A source says only the tag, `install`, `scaffold`, `solution` or `check`. `fold` adds what hides the code in
JupyterLab and in Colab, and the site folds by the same tags. A solution's outputs are hidden with it; the
others show theirs.
"""

import re

from nbformat import NotebookNode, from_dict

INSTALL, SCAFFOLD, SOLUTION, CHECK = "install", "scaffold", "solution", "check"
# Colab shows the first line in place of the code, JupyterLab puts it on the bar that stands for the cell.
TITLES = {
    INSTALL: "# @title Install the package where it is missing\n",
    SCAFFOLD: "# @title Scaffolding\n",
    SOLUTION: "# @title Solution\n",
    CHECK: "# @title Check\n",
}
TITLE = re.compile(r"\A# @title .*\n")
SOURCE_HIDDEN = {"jupyter": {"source_hidden": True}, "cellView": "form"}
ALL_HIDDEN = {
    "jupyter": {"source_hidden": True, "outputs_hidden": True},
    "collapsed": True,
    "cellView": "form",
}


def fold_of(cell: NotebookNode) -> str:
    """Return why a cell is folded, one of TITLES, or an empty string if it is not."""
    return next((tag for tag in cell.metadata.get("tags", []) if tag in TITLES), "")


def hidden(cell: NotebookNode) -> dict[str, object]:
    """Return the metadata that folds the cell; empty for a cell that stays open."""
    kind = fold_of(cell)
    return (ALL_HIDDEN if kind == SOLUTION else SOURCE_HIDDEN) if kind else {}


def fold(cell: NotebookNode) -> None:
    """Fold a cell that has the tag for it; leave any other as it is."""
    if kind := fold_of(cell):
        cell.source = TITLES[kind] + TITLE.sub("", cell.source)
        cell.metadata.update(from_dict(hidden(cell)))
