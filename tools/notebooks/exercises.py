"""Exercises: a question, at times a stub to fill in, the folded solution, at times a test.

The cells follow each other: markdown that says "Exercise", then code cells tagged `exercise` (the stub),
`solution` (one or more) and `exercise-test`.
"""

import ast
import re
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from nbformat import NotebookNode

from folds import SOLUTION

STUB, TEST = "exercise", "exercise-test"
TAGS = {STUB, SOLUTION, TEST}
ORDER = re.compile(rf"({STUB} )?({SOLUTION} )+({TEST} )?")
MARKED = re.compile(r"\*\*Exercise \d+ \((easy|medium|hard)\)")


class Exercise(NamedTuple):
    """The cells of one exercise; `position` is the question's, counted from 1."""

    position: int
    question: str
    stub: str
    solution: str
    test: str


def role(cell: NotebookNode) -> str:
    """What a cell is in an exercise: one of TAGS, or nothing."""
    return next((tag for tag in cell.metadata.get("tags", []) if tag in TAGS), "")


def groups(notebook: NotebookNode) -> Iterator[tuple[int, int]]:
    """Where each run of an exercise's cells begins and ends, as a slice of the notebook's cells."""
    for inside, run in groupby(enumerate(notebook.cells), key=lambda each: bool(role(each[1]))):
        indices = [index for index, _ in run]
        if inside:
            yield indices[0], indices[-1] + 1


def exercises(notebook: NotebookNode) -> list[Exercise]:
    """The exercises that have a test, so that a reader can tell whether her own code is right."""
    found = []
    for begin, end in groups(notebook):
        code = dict.fromkeys((STUB, SOLUTION, TEST), "")
        for cell in notebook.cells[begin:end]:
            code[role(cell)] += cell.source + "\n"
        if code[TEST]:
            found.append(Exercise(begin, notebook.cells[begin - 1].source, *code.values()))
    return found


def head(notebook: NotebookNode) -> str:
    """Return what an exercise with a test may use: the code above the first section, and all imports."""
    code, imports, above = [], [], True
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and re.search(r"^## ", cell.source, re.MULTILINE):
            above = False
        elif cell.cell_type == "code" and above:
            code.append(cell.source)
        elif cell.cell_type == "code" and not role(cell):
            found = nodes(cell.source)
            imports += [ast.unparse(n) for n in found if isinstance(n, ast.Import | ast.ImportFrom)]
    return "\n".join([*code, *imports])


def check_exercises(source: NotebookNode) -> Iterator[tuple[int, str, str]]:
    """At least one exercise; its cells in order, right below the question; no later cell needs a solution."""
    if not any(role(cell) == SOLUTION for cell in source.cells):
        yield 0, "no exercise", f'none has a solution: a code cell with tags=["{SOLUTION}"]'
    for begin, end in groups(source):
        roles = [role(cell) for cell in source.cells[begin:end]]
        question = source.cells[begin - 1] if begin else None
        if question is None or question.cell_type != "markdown" or "exercise" not in question.source.lower():
            yield begin + 1, "no question", 'the cells of an exercise stand below a text that says "Exercise"'
        elif TEST in roles and not MARKED.search(question.source):
            yield begin, "unmarked", "an exercise with a test begins **Exercise n (easy|medium|hard).**"
        if not ORDER.fullmatch("".join(f"{name} " for name in roles)):
            detail = f"first {STUB}, if any, then {SOLUTION}, then {TEST}, if any; not {roles}"
            yield begin + 1, "order", detail
    yield from needed_solutions(source)


def needed_solutions(source: NotebookNode) -> Iterator[tuple[int, str, str]]:
    """Later cells that use a name which only a solution defines; the student edition has no solutions."""
    known: set[str] = set()
    solved: set[str] = set()
    for position, cell in enumerate(source.cells, start=1):
        if cell.cell_type != "code":
            continue
        stored, loaded = names(cell.source)
        if role(cell) == SOLUTION:
            solved |= stored
            continue
        known |= stored
        if role(cell) != TEST and (missing := sorted(loaded & solved - known)):
            yield position, "needs a solution", f"{', '.join(missing)}: defined in a solution alone"


def names(code: str) -> tuple[set[str], set[str]]:
    """The names that code binds anywhere in it, and those that it reads."""
    stored, loaded = set(), set()
    for node in nodes(code):
        if isinstance(node, ast.Name):
            (loaded if isinstance(node.ctx, ast.Load) else stored).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            stored.add(node.name)
        elif isinstance(node, ast.alias):
            stored.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.arg):
            stored.add(node.arg)
    return stored, loaded


def nodes(code: str) -> list[ast.AST]:
    """All that the code is made of; nothing where it is not Python."""
    try:
        return list(ast.walk(ast.parse(code)))
    except SyntaxError:
        return []
