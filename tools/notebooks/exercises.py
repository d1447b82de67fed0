"""Exercises: a question, at times a stub to fill in and a test of it, and last the folded solution.

The cells follow each other: markdown that says "Exercise", then code cells tagged `exercise` (the stub),
`exercise-test` and `solution` (one or more). A test is a function of what the stub defines. Its cell runs it
on that, and the solution's cell runs it on the solution, which has a name of its own: whatever the order,
a learner's test judges the learner's code. Each of the cells imports what it needs, and nothing else in the
notebook has to run before them.
"""

import ast
import builtins
import re
import symtable
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from nbformat import NotebookNode

from folds import INSTALL, SOLUTION, fold_of

STUB, TEST = "exercise", "exercise-test"
TAGS = {STUB, SOLUTION, TEST}
ORDER = re.compile(rf"({STUB} {TEST} )?({SOLUTION} )+")
MARKED = re.compile(r"\*\*Exercise \d+ \((easy|medium|hard)\)")
PLAIN = (
    ast.Constant | ast.Tuple | ast.List | ast.Set | ast.Dict | ast.UnaryOp | ast.unaryop | ast.expr_context
)
# How a test's cell ends.
JUDGE = """
try:
    {call}
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)"""


class Exercise(NamedTuple):
    """The cells of one exercise; `position` is the question's, counted from 1."""

    position: int
    question: str
    stub: str
    test: str
    solution: str


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
        code = dict.fromkeys((STUB, TEST, SOLUTION), "")
        for cell in notebook.cells[begin:end]:
            code[role(cell)] += cell.source + "\n"
        if code[TEST]:
            found.append(Exercise(begin, notebook.cells[begin - 1].source, *code.values()))
    return found


def definitions(notebook: NotebookNode) -> str:
    """Return what an answer may use of its notebook: imports, functions, classes and plain constants."""
    lesson = [cell for cell in notebook.cells if not role(cell) and fold_of(cell) != INSTALL]
    statements = [each for cell in lesson if cell.cell_type == "code" for each in body(cell.source)]
    return "\n".join(ast.unparse(each) for each in statements if defines(each))


def defines(statement: ast.stmt) -> bool:
    """Tell whether a statement names something without computing it."""
    if isinstance(statement, ast.Assign) and all(isinstance(each, ast.Name) for each in statement.targets):
        return all(isinstance(node, PLAIN) for node in ast.walk(statement.value))
    return isinstance(statement, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)


def check_exercises(source: NotebookNode) -> Iterator[tuple[int, str, str]]:
    """At least one exercise; its cells in order, right below the question; solutions touch no other cell."""
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
            yield begin + 1, "order", f"{STUB} and {TEST}, if any, then {SOLUTION}; not {roles}"
        elif TEST in roles:
            stub, test, *solutions = source.cells[begin:end]
            yield from check_test(begin + 2, test.source, stub.source, "\n".join(s.source for s in solutions))
    yield from rebound_names(source)
    yield from needed_solutions(source)


def check_test(position: int, test: str, stub: str, solution: str) -> Iterator[tuple[int, str, str]]:
    """A test is a function of what the stub defines; its cell and the solution's run it, each on its own."""
    name, wanted = tested(test)
    if not wanted or bound(test) - {"error"} != {name} or not set(wanted) <= bound(stub):
        detail = "define one function in it, test_..., whose arguments are named as what the stub defines"
        yield position, "no function", detail
    elif not test.endswith(ending := JUDGE.format(call=f"{name}({', '.join(wanted)})")):
        yield position, "no judgement", f"the cell of a test ends with\n{ending}"
    elif f"{name}(" not in solution:
        yield position + 1, "untested", f"the solution's cell calls {name} on the solution"
    above = set[str](), bound(stub), names(stub)[0] | names(test)[0]
    for place, (code, known) in enumerate(
        zip((stub, test, solution), above, strict=True), start=position - 1
    ):
        stored, loaded = names(code)
        if missing := sorted(loaded - stored - known - set(dir(builtins))):
            yield place, "not imported", f"{', '.join(missing)}: an exercise's cells import what they need"
    for node in nodes(test):
        if isinstance(node, ast.Assert) and node.msg is None:
            yield position, "no message", f"say what is wrong: assert {ast.unparse(node.test)}, ..."


def tested(test: str) -> tuple[str, list[str]]:
    """The name of a test, and of what it tests: its arguments."""
    functions = [node for node in nodes(test) if isinstance(node, ast.FunctionDef)]
    named = [(each.name, [arg.arg for arg in each.args.args]) for each in functions]
    return next((each for each in named if each[0].startswith("test_")), ("", []))


def rebound_names(source: NotebookNode) -> Iterator[tuple[int, str, str]]:
    """Names to which both a solution and another cell give a value: which it is would depend on the order."""
    code = [cell for cell in source.cells if cell.cell_type == "code"]
    others = {name for cell in code if role(cell) != SOLUTION for name in bound(cell.source)} - {"_"}
    for position, cell in enumerate(source.cells, start=1):
        if role(cell) == SOLUTION and (twice := sorted(bound(cell.source) & others)):
            yield position, "rebinds", f"{', '.join(twice)}: give it another name in the solution"


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
        if missing := sorted(loaded & solved - known):
            yield position, "needs a solution", f"{', '.join(missing)}: defined in a solution alone"


def bound(code: str) -> set[str]:
    """The names to which code gives a value for the cells that follow; imports left out."""
    try:
        symbols = symtable.symtable(code, "cell", "exec").get_symbols()
    except SyntaxError:
        return set()
    return {each.get_name() for each in symbols if each.is_assigned() and not each.is_imported()}


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
        elif isinstance(node, ast.ExceptHandler) and node.name:
            stored.add(node.name)
    return stored, loaded


def nodes(code: str) -> list[ast.AST]:
    """All that the code is made of; nothing where it is not Python."""
    return [node for statement in body(code) for node in ast.walk(statement)]


def body(code: str) -> list[ast.stmt]:
    """The statements of code, one after the other; none where it is not Python."""
    try:
        return ast.parse(code).body
    except SyntaxError:
        return []
