"""What makes a notebook's two files a pair: NN_name.py, the source, and NN_name.ipynb, its cells executed.

`check_folder` tells every way in which a pair falls short, without executing anything: a notebook that was
never run, an output that belongs to other code, a cell that no reader has patience for. Whether the outputs
are still true is nbval's to say.
"""

import ast
import hashlib
import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jupytext
import nbformat
from nbformat import NotebookNode

LONGEST_CELL = 25
IGNORE = "nbval-ignore-output"
FEWEST_CELLS_PER_IGNORED = 8
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# What another machine, or the next run, would print differently: addresses, folders outside the project.
MACHINE = re.compile(r"\bat 0x[0-9a-f]+|ipykernel_\d+|(?<![\w./])/(?:home|Users|root|tmp|work|var)/")
NBVAL_COMMENT = re.compile(r"^\s*#\s*(?:NBVAL_|PYTEST_VALIDATE_)", re.MULTILINE)
BARE_NAME = re.compile(r"`(\d\d_\w+)`")
LINKED_NAME = re.compile(r"\]\((\d\d_\w+)\.ipynb")
LINKED_SECTION = re.compile(r"\]\((\d\d_\w+)\.ipynb\),\s+\*([^*]+)\*")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
# altair numbers the parameters that nobody named; in a cell run a second time, the number is another one.
UNNAMED_PARAMETER = re.compile(r'"name": "param_\d+"')

FIRST_CELL = """\
# Where the package is missing, as in Colab, this installs it. Where it is installed, nothing happens.
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("annotated") is None:
    where = os.environ.get("ANNOTATED_SPEC", "{address}")
    if not where:
        raise RuntimeError("First tell pip where annotated is: %env ANNOTATED_SPEC=git+https://...")
    package = f"annotated[notebooks] @ {{where}}"
    subprocess.check_call([sys.executable, "-m", "pip", "install", "--quiet", package])"""


class Fault(NamedTuple):
    """One thing wrong with a notebook. `cell` counts all cells from 1; 0 is the notebook as a whole."""

    notebook: str
    cell: int
    name: str
    detail: str

    def __str__(self) -> str:
        place = f"{self.notebook}, cell {self.cell}" if self.cell else self.notebook
        return f"{place}: {self.name}: {self.detail}"


# A check looks at the source or at the executed notebook, and yields (cell, name, detail).
Findings = Iterator[tuple[int, str, str]]


def first_cell(pyproject: Path) -> str:
    """The code that every notebook starts with; its default address is `Repository` of `[project.urls]`."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    repository = project.get("urls", {}).get("Repository")
    return FIRST_CELL.format(address=f"git+{repository}" if repository else "")


def read_source(path: Path) -> NotebookNode:
    """Read a percent-format `.py` as a notebook without outputs, with our metadata and with ids that stay.

    A cell's id is made from its own content, so that a cell put in above changes no other cell's id.
    """
    seen: Counter[str] = Counter()
    cells = [_clean(cell, seen) for cell in jupytext.read(path, fmt="py:percent").cells]
    return nbformat.v4.new_notebook(cells=cells, metadata=METADATA)


def _clean(cell: NotebookNode, seen: Counter[str]) -> NotebookNode:
    source = cell.source.strip("\n")
    digest = hashlib.sha256(f"{cell.cell_type}\n{source}".encode()).hexdigest()[:12]
    seen[digest] += 1
    new = {"code": nbformat.v4.new_code_cell, "markdown": nbformat.v4.new_markdown_cell}.get(cell.cell_type)
    make = new or nbformat.v4.new_raw_cell
    metadata = {key: cell.metadata[key] for key in ("tags", "jupyter") if key in cell.metadata}
    return make(source, id=f"{digest}-{seen[digest]}", metadata=metadata)


def find_sources(folder: Path) -> dict[str, Path]:
    """The notebooks' sources in a folder, by name, in the order of the series."""
    return {path.stem: path for path in sorted(folder.glob("[0-9][0-9]_*.py"))}


def check_folder(folder: Path, start: str, names: Sequence[str] = ()) -> list[Fault]:
    """Check all notebooks of a folder, or those named; `start` is the code that each must start with."""
    sources = find_sources(folder)
    built = {path.stem: path for path in sorted(folder.glob("*.ipynb"))}
    wanted = [name for name in sorted({**sources, **built}) if not names or name in names]
    if not wanted:
        return [Fault(str(folder), 0, "no notebooks", "there is nothing to check")]
    faults = []
    for name in wanted:
        if name not in sources:
            faults.append(
                Fault(name, 0, "no source", f"there is no {name}.py: write it, or remove the .ipynb")
            )
        elif name not in built:
            faults.append(Fault(name, 0, "not built", f"no {name}.ipynb: make notebooks ONLY={name}"))
        else:
            faults += check_pair(sources[name], built[name], start)
            faults += [Fault(name, *finding) for finding in links(read_source(sources[name]), sources)]
    return faults


def check_pair(source_path: Path, built_path: Path, start: str) -> list[Fault]:
    """Every fault of one notebook: of its source, and of the executed file against it."""
    name = source_path.stem
    source = read_source(source_path)
    faults = [Fault(name, *finding) for check in SOURCE_CHECKS for finding in check(source)]
    faults += [Fault(name, *finding) for finding in starts_with(source, start)]
    try:
        built = read_built(built_path)
    except ValueError as error:
        return [*faults, Fault(name, 0, "unreadable", str(error))]
    faults += [Fault(name, *finding) for finding in same_cells(source, built)]
    return faults + [Fault(name, *finding) for check in BUILT_CHECKS for finding in check(built)]


def read_built(path: Path) -> NotebookNode:
    """Read an `.ipynb` as it is; ValueError if it is no notebook of format 4.5, which the builder writes."""
    try:
        built = nbformat.reads(path.read_text(encoding="utf-8"), as_version=nbformat.NO_CONVERT)
        nbformat.validate(built, version=4, version_minor=5)
    except (nbformat.reader.NotJSONError, nbformat.ValidationError, ValueError) as error:
        raise ValueError(f"{path.name}: {str(error).partition(chr(10))[0]}") from error
    return built


def starts_with(source: NotebookNode, start: str) -> Findings:
    """The first code cell is the one that fetches the package where it is missing."""
    position, cell = next(_code(source), (0, None))
    if cell is None or cell.source != start:
        yield position, "first cell", f"the first code cell must be this one:\n{start}"


def plain_python(source: NotebookNode) -> Findings:
    """Cells are Python and no more: magics neither lint nor parse."""
    for position, cell in _code(source):
        if _parse(cell.source) is None:
            yield position, "not Python", cell.source.partition("\n")[0]


def short_cells(source: NotebookNode) -> Findings:
    """One idea a cell; only a class, which cannot be cut, may be longer."""
    for position, cell in _code(source):
        length = len(cell.source.splitlines())
        tree = _parse(cell.source) or ast.Module([], [])
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        rest = length - sum(node.end_lineno - node.lineno + 1 for node in classes)
        if length > LONGEST_CELL and (len(classes) != 1 or rest > LONGEST_CELL):
            yield position, "too long", f"{length} lines; {LONGEST_CELL} are the most, unless it is one class"


def no_semicolon(source: NotebookNode) -> Findings:
    """nbval sees the output that a closing semicolon hides, and fails."""
    for position, cell in _code(source):
        if cell.source.endswith(";"):
            yield position, "semicolon", "end the cell with plt.show(), or give the value to _"


def known_metadata(source: NotebookNode) -> Findings:
    """No tag or comment lets a cell escape: none that skips it, and none that expects it to fail."""
    for position, cell in enumerate(source.cells, start=1):
        strangers = {"tags": [tag for tag in cell.metadata.get("tags", []) if tag != IGNORE]}
        strangers["jupyter"] = [key for key in cell.metadata.get("jupyter", {}) if key != "source_hidden"]
        for kind, values in strangers.items():
            if values:
                yield position, "metadata", f"{kind} {values} is none that a notebook may have"
        if cell.cell_type == "code" and NBVAL_COMMENT.search(cell.source):
            yield position, "metadata", f'instead of the comment, give the cell tags=["{IGNORE}"]'


def ignored_cells(source: NotebookNode) -> Findings:
    """Few outputs escape comparison, and what each shows is then said by a cell that is compared."""
    code = list(_code(source))
    ignored = [index for index, (_, cell) in enumerate(code) if _is_ignored(cell)]
    if len(ignored) * FEWEST_CELLS_PER_IGNORED > len(code):
        yield 0, "too many ignored", f"{len(ignored)} of {len(code)} code cells; 1 in 8 is the most"
    for index in ignored:
        follower = code[index + 1][1] if index + 1 < len(code) else None
        if follower is None or _is_ignored(follower) or not _gives_verdict(follower.source):
            yield code[index][0], "no verdict", "the next code cell must be compared, and assert or print"


def exercises(source: NotebookNode) -> Findings:
    """At least one exercise: its solution is collapsed, right below the question."""
    solutions = [position for position, cell in _code(source) if _is_collapsed(cell)]
    if not solutions:
        yield 0, "no exercise", 'none has a solution: a code cell with jupyter={"source_hidden": true}'
    for position in solutions:
        above = source.cells[: position - 1]
        question = next((cell for cell in reversed(above) if not _is_collapsed(cell)), None)
        if question is None or question.cell_type != "markdown" or "exercise" not in question.source.lower():
            yield position, "no question", 'a collapsed cell stands below a text that says "Exercise"'


def links(source: NotebookNode, existing: Mapping[str, Path]) -> Findings:
    """A notebook that exists is named by a link to it, one that does not yet by its bare name.

    An italic title after a link, `[02](02_attention.ipynb), *Equation 1*`, is that of a section there.
    """
    for position, cell in enumerate(source.cells, start=1):
        if cell.cell_type == "markdown":
            for name in BARE_NAME.findall(cell.source):
                if name in existing:
                    yield position, "no link", f"`{name}` is there: [{name}]({name}.ipynb)"
            for name in LINKED_NAME.findall(cell.source):
                if name not in existing:
                    yield position, "dead link", f"there is no {name}: name it `{name}`"
            for name, title in LINKED_SECTION.findall(cell.source):
                title = " ".join(title.split())
                if name in existing and title not in headings(existing[name]):
                    yield position, "no such section", f"{name} has no section {title!r}"


def headings(path: Path) -> list[str]:
    """The titles of a notebook's sections."""
    cells = read_source(path).cells
    return [title for cell in cells if cell.cell_type == "markdown" for title in HEADING.findall(cell.source)]


def same_cells(source: NotebookNode, built: NotebookNode) -> Findings:
    """The executed notebook holds the source's cells and the builder's metadata, and nothing else."""
    if len(source.cells) != len(built.cells):
        yield 0, "cells", f"the source has {len(source.cells)}, the .ipynb {len(built.cells)}: build it again"
    for position, (cell, other) in enumerate(zip(source.cells, built.cells, strict=False), start=1):
        for key in ("cell_type", "source", "metadata", "id"):
            if cell[key] != other.get(key):
                yield position, f"other {key}", "the .ipynb differs from the .py: build it again"
    if built.metadata != METADATA:
        yield 0, "notebook metadata", f"{sorted(built.metadata)} is not what the builder writes"


def executed_in_order(built: NotebookNode) -> Findings:
    """Code cells are numbered 1, 2, 3 ... as after one run; nbval does not compare one that has no number."""
    for number, (position, cell) in enumerate(_code(built), start=1):
        if cell.execution_count != number:
            yield position, "execution count", f"{cell.execution_count} instead of {number}"


def clean_outputs(built: NotebookNode) -> Findings:
    """No output is an error, and none tells on which machine it was made."""
    for position, cell in _code(built):
        for output in cell.outputs:
            if output.output_type == "error":
                yield position, "error output", f"{output.ename}: {output.evalue}"
            for text in _texts(output):
                if found := MACHINE.search(text):
                    yield position, "machine's own", f"{found.group()!r} would be another one elsewhere"
                if found := UNNAMED_PARAMETER.search(text):
                    yield position, "unnamed parameter", f"{found.group()}: give alt.param(name=...) a name"


SOURCE_CHECKS: list[Callable[[NotebookNode], Findings]] = [
    plain_python,
    short_cells,
    no_semicolon,
    known_metadata,
    ignored_cells,
    exercises,
]
BUILT_CHECKS: list[Callable[[NotebookNode], Findings]] = [executed_in_order, clean_outputs]


def _code(notebook: NotebookNode) -> Iterator[tuple[int, NotebookNode]]:
    return ((n, cell) for n, cell in enumerate(notebook.cells, start=1) if cell.cell_type == "code")


def _parse(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except SyntaxError:
        return None


def _is_ignored(cell: NotebookNode) -> bool:
    return IGNORE in cell.metadata.get("tags", [])


def _is_collapsed(cell: NotebookNode) -> bool:
    return cell.cell_type == "code" and bool(cell.metadata.get("jupyter", {}).get("source_hidden"))


def _gives_verdict(source: str) -> bool:
    """Whether the code asserts (with the statement, or by assert_close and its like) or prints something."""
    nodes = list(ast.walk(_parse(source) or ast.Module([], [])))
    calls = [ast.unparse(node.func).rpartition(".")[2] for node in nodes if isinstance(node, ast.Call)]
    return any(isinstance(n, ast.Assert) for n in nodes) or any(re.match(r"print$|assert_", c) for c in calls)


def _texts(output: NotebookNode) -> list[str]:
    """What an output holds as text: a stream, or each kind of data but pictures."""
    if output.output_type == "stream":
        return [output.text]
    data = output.get("data", {})
    return [v if isinstance(v, str) else json.dumps(v) for k, v in data.items() if not k.startswith("image/")]
