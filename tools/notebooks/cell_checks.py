"""What the cells of a notebook must be: SOURCE_CHECKS look at them before the run, BUILT_CHECKS after it.

A check yields (cell, name, detail) for each fault. Cells count from 1; 0 is the notebook as a whole.
"""

import ast
import json
import re
from collections.abc import Iterator

from nbformat import NotebookNode

from exercises import TAGS, nodes
from figures import NAMED, check_figures
from folds import CHECK, TITLES, fold_of, hidden

IGNORE = "nbval-ignore-output"
FEWEST_CELLS_PER_IGNORED = 8
# What another machine, or the next run, would print differently: addresses, folders outside the project.
MACHINE = re.compile(r"\bat 0x[0-9a-f]+|ipykernel_\d+|(?<![\w./])/(?:home|Users|root|tmp|work|var)/")
NBVAL_COMMENT = re.compile(r"^\s*#\s*(?:NBVAL_|PYTEST_VALIDATE_)", re.MULTILINE)
# altair numbers the parameters that nobody named; in a cell run a second time, the number is another one.
UNNAMED_PARAMETER = re.compile(r'"name": "param_\d+"')
# A number that another machine would print with other digits stands behind this sign.
ABOUT = "≈"
TYPED_TRUTH = re.compile(r": (?:True|False)\b")

Findings = Iterator[tuple[int, str, str]]


def plain_python(source: NotebookNode) -> Findings:
    """Cells are Python and no more: magics neither lint nor parse."""
    for position, cell in code_cells(source):
        if not nodes(cell.source):
            yield position, "not Python", cell.source.partition("\n")[0]


def known_metadata(source: NotebookNode) -> Findings:
    """No tag or comment lets a cell escape: none that skips it, and none that expects it to fail."""
    for position, cell in enumerate(source.cells, start=1):
        tags = {tag for tag in cell.metadata.get("tags", []) if not NAMED.fullmatch(tag)}
        if strangers := tags - {IGNORE} - TAGS - TITLES.keys():
            yield position, "metadata", f"tags {sorted(strangers)} are none that a notebook may have"
        if cell.metadata.get("jupyter", {}) != hidden(cell).get("jupyter", {}):
            yield position, "metadata", f"only one of the tags {sorted(TITLES)} folds a cell"
        if cell.cell_type == "code" and NBVAL_COMMENT.search(cell.source):
            yield position, "metadata", f'instead of the comment, give the cell tags=["{IGNORE}"]'


def ignored_cells(source: NotebookNode) -> Findings:
    """Few outputs escape comparison, and what each shows is then said by a cell that is compared."""
    code = list(code_cells(source))
    ignored = [index for index, (_, cell) in enumerate(code) if _is_ignored(cell)]
    if len(ignored) * FEWEST_CELLS_PER_IGNORED > len(code):
        yield 0, "too many ignored", f"{len(ignored)} of {len(code)} code cells; 1 in 8 is the most"
    for index in ignored:
        follower = code[index + 1][1] if index + 1 < len(code) else None
        if follower is None or _is_ignored(follower) or not _gives_verdict(follower.source):
            yield code[index][0], "no verdict", "the next code cell must be compared, and assert or print"


def executed_in_order(built: NotebookNode) -> Findings:
    """Code cells are numbered 1, 2, 3 ... as after one run; nbval does not compare one that has no number."""
    for number, (position, cell) in enumerate(code_cells(built), start=1):
        if cell.execution_count != number:
            yield position, "execution count", f"{cell.execution_count} instead of {number}"


def clean_outputs(built: NotebookNode) -> Findings:
    """No output is an error, and none tells on which machine it was made."""
    for position, cell in code_cells(built):
        for output in cell.outputs:
            if output.output_type == "error":
                yield position, "error output", f"{output.ename}: {output.evalue}"
            for text in _texts(output):
                if found := MACHINE.search(text):
                    yield position, "machine's own", f"{found.group()!r} would be another one elsewhere"
                if found := UNNAMED_PARAMETER.search(text):
                    yield position, "unnamed parameter", f"{found.group()}: give alt.param(name=...) a name"


def typed_truths(source: NotebookNode) -> Findings:
    """A verdict is computed: a string that holds ": True" says so whatever the run gave."""
    for position, cell in code_cells(source):
        for text in _strings(cell.source):
            if found := TYPED_TRUTH.search(text):
                yield position, "typed truth", f"{found.group()!r} in a string: print what was computed"


def held_numbers(built: NotebookNode) -> Findings:
    """What follows `≈` is not compared; an assert holds its range, in the same cell or the check below it."""
    code = list(code_cells(built))
    for (position, cell), (_, below) in zip(code, [*code[1:], (0, None)], strict=True):
        texts = [*_strings(cell.source), *(text for output in cell.outputs for text in _texts(output))]
        if any(ABOUT in text for text in texts):
            checks = [cell.source, below.source if below is not None and fold_of(below) == CHECK else ""]
            if not any(map(_asserts, checks)):
                detail = f"assert the range of what {ABOUT} stands for, here or below"
                yield position, "about, no assert", detail


SOURCE_CHECKS = [plain_python, known_metadata, ignored_cells, typed_truths]
BUILT_CHECKS = [executed_in_order, clean_outputs, held_numbers, check_figures]


def code_cells(notebook: NotebookNode) -> Iterator[tuple[int, NotebookNode]]:
    return ((n, cell) for n, cell in enumerate(notebook.cells, start=1) if cell.cell_type == "code")


def _is_ignored(cell: NotebookNode) -> bool:
    return IGNORE in cell.metadata.get("tags", [])


def _gives_verdict(source: str) -> bool:
    """Whether the code asserts or prints something."""
    return _asserts(source) or "print" in _called(source)


def _asserts(source: str) -> bool:
    """Whether the code asserts, with the statement or by assert_close and its like."""
    statements = (isinstance(node, ast.Assert) for node in nodes(source))
    return any(statements) or any(name.startswith("assert_") for name in _called(source))


def _called(source: str) -> list[str]:
    """The names of what the code calls, without what stands before the last dot."""
    return [ast.unparse(n.func).rpartition(".")[2] for n in nodes(source) if isinstance(n, ast.Call)]


def _strings(source: str) -> list[str]:
    """The strings in the code, f-strings in pieces, docstrings left out."""
    found = nodes(source)
    alone = {id(node.value) for node in found if isinstance(node, ast.Expr)}
    constants = [n.value for n in found if isinstance(n, ast.Constant) and id(n) not in alone]
    return [value for value in constants if isinstance(value, str)]


def _texts(output: NotebookNode) -> list[str]:
    """What an output holds as text: a stream, or each kind of data but pictures."""
    if output.output_type == "stream":
        return [output.text]
    data = output.get("data", {})
    return [v if isinstance(v, str) else json.dumps(v) for k, v in data.items() if not k.startswith("image/")]
