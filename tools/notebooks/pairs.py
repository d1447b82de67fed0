"""What makes a notebook's two files a pair: NN_name.py, the source, and NN_name.ipynb, its cells executed.

Lessons are `NN_name`, evidence is `evidence/a_question`. A translation is `zh/NN_name`: its texts are its
own, its code and outputs the lesson's.

`check_folder` tells every way in which a pair falls short, without executing anything: a notebook that was
never run, an output that belongs to other code. Whether the outputs are still true is nbval's to say.
"""

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import jupytext
import nbformat
from nbformat import NotebookNode

from address import first_cell, with_link
from cell_checks import BUILT_CHECKS, SOURCE_CHECKS, Findings, code_cells
from exercises import check_exercises
from figures import check_svgs
from folds import INSTALL, TITLE, fold, fold_of
from lessons import clean_code, is_evidence

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
BARE_NAME = re.compile(r"`(\d\d_\w+)`")
LINKED_NAME = re.compile(r"\]\(((?:\.\./|evidence/)*\w+)\.ipynb")
LINKED_SECTION = re.compile(r"\]\(((?:\.\./|evidence/)?\w+)\.ipynb\),\s+\*([^*]+)\*")
# The built notebook carries each drawing as PNG, so that it is whole when opened alone.
DRAWING = re.compile(r"\]\((?:\.\./)+images/(\w+)\.svg\)")
IMAGES = Path(__file__).resolve().parents[2] / "images"
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
# What a notebook may ask of pip: what all draw with, and with it spaCy and torchtext.
EXTRAS = ("colab", "colab,words")


class Fault(NamedTuple):
    """One thing wrong with a notebook. `cell` counts all cells from 1; 0 is the notebook as a whole."""

    notebook: str
    cell: int
    name: str
    detail: str

    def __str__(self) -> str:
        place = f"{self.notebook}, cell {self.cell}" if self.cell else self.notebook
        return f"{place}: {self.name}: {self.detail}"


def read_source(path: Path) -> NotebookNode:
    """Read a percent-format `.py` as a notebook without outputs, with ids that stay, folds and drawings.

    A cell's id is made from its own content, so that a cell put in above changes no other cell's id.
    """
    seen: Counter[str] = Counter()
    cells = [_clean(cell, seen) for cell in jupytext.read(path, fmt="py:percent").cells]
    return nbformat.v4.new_notebook(cells=cells, metadata=METADATA)


def _clean(cell: NotebookNode, seen: Counter[str]) -> NotebookNode:
    source = TITLE.sub("", cell.source.strip("\n"))
    digest = hashlib.sha256(f"{cell.cell_type}\n{source}".encode()).hexdigest()[:12]
    seen[digest] += 1
    make = getattr(nbformat.v4, f"new_{cell.cell_type}_cell")
    metadata = {key: cell.metadata[key] for key in ("tags", "jupyter") if key in cell.metadata}
    made = make(source, id=f"{digest}-{seen[digest]}", metadata=metadata)
    fold(made)
    if cell.cell_type == "markdown":
        attach(made)
    return made


def attach(cell: NotebookNode) -> None:
    """Put the PNG of each drawing that the text shows into the cell, and let the text show that."""
    if drawings := DRAWING.findall(cell.source):
        cell.source = DRAWING.sub(r"](attachment:\1.png)", cell.source)
        pictures = {name: base64.b64encode((IMAGES / f"{name}.png").read_bytes()) for name in drawings}
        attached = {f"{name}.png": {"image/png": png.decode()} for name, png in pictures.items()}
        cell.attachments = nbformat.from_dict(attached)


def find_sources(folder: Path) -> dict[str, Path]:
    """Return the notebooks' sources by name: lessons in the order of the series, then `evidence/...`."""
    return find(folder, "[0-9][0-9]_*.py", "evidence/[a-z]*.py")


def find_translations(folder: Path) -> dict[str, Path]:
    """Return the translated lessons' sources by name, such as `zh/00_start_here`."""
    return find(folder, "[a-z][a-z]/[0-9][0-9]_*.py")


def find(folder: Path, *patterns: str) -> dict[str, Path]:
    """Return the files below a folder by their names, without what stands behind the dot."""
    paths = [path for pattern in patterns for path in sorted(folder.glob(pattern))]
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in paths}


def with_outputs(source: Path, executed: Path) -> NotebookNode:
    """Read a source, with the outputs of an executed notebook. Raises ValueError where its code is other.

    First cells may differ: the project's address stands in them.
    """
    notebook = read_source(source)
    own, theirs = ([c for c in n.cells if c.cell_type == "code"] for n in (notebook, read_built(executed)))
    for number, (cell, done) in enumerate(zip_longest(own, theirs)):
        code = [each and TITLE.sub("", each.source) for each in (cell, done)]
        if None in code or (number and code[0] != code[1]):
            raise ValueError(f"code cell {number + 1} is not that of {executed.name}")
        cell.outputs, cell.execution_count = done.outputs, done.execution_count
    return notebook


def translated(source: Path) -> NotebookNode:
    """Read a translation's source, with the lesson's outputs. Raises ValueError where its code is other."""
    return with_outputs(source, source.parents[1] / f"{source.stem}.ipynb")


def check_translation(source: Path, folder: Path) -> list[Fault]:
    """Every fault of a translation: of its code, its links, and its .ipynb."""
    name = f"{source.parent.name}/{source.stem}"
    try:
        text, built = nbformat.writes(translated(source)), source.with_suffix(".ipynb").read_text("utf-8")
    except (ValueError, FileNotFoundError) as error:
        return [Fault(name, 0, "translation", str(error))]
    detail = f"build.py {source.stem} writes another .ipynb"
    faults = [Fault(name, 0, "not built", detail)] if text + "\n" != built else []
    return faults + [Fault(name, *finding) for finding in links(source, folder)]


def check_folder(folder: Path, repository: str, names: Sequence[str] = ()) -> list[Fault]:
    """Check all notebooks of a folder, or those named; `repository` is the project's address, or empty."""
    sources = find_sources(folder)
    built = find(folder, "*.ipynb", "evidence/*.ipynb")
    wanted = [name for name in sorted({**sources, **built}) if not names or name in names]
    if not wanted:
        return [Fault(str(folder), 0, "no notebooks", "there is nothing to check")]
    faults = []
    for name in wanted:
        if name not in sources:
            detail = f"there is no {name}.py: write it, or remove the .ipynb"
            faults.append(Fault(name, 0, "no source", detail))
        elif name not in built:
            faults.append(Fault(name, 0, "not built", f"no {name}.ipynb: make notebooks ONLY={name}"))
        else:
            faults += check_pair(sources[name], built[name], repository)
            faults += [Fault(name, *finding) for finding in links(sources[name], folder)]
    translations = [path for path in find_translations(folder).values() if not names or path.stem in names]
    return faults + [fault for path in translations for fault in check_translation(path, folder)]


def check_pair(source_path: Path, built_path: Path, repository: str) -> list[Fault]:
    """Every fault of one notebook: of its source, and of the executed file against it."""
    name = f"evidence/{source_path.stem}" if is_evidence(source_path) else source_path.stem
    source = read_source(source_path)
    lesson = [] if is_evidence(source_path) else [check_exercises, clean_code]
    found = [finding for check in (*SOURCE_CHECKS, *lesson) for finding in check(source)]
    found += starts_with(source, repository, name)
    try:
        built = read_built(built_path)
    except ValueError as error:
        found.append((0, "unreadable", str(error)))
    else:
        found += [*same_cells(source, built), *check_svgs(built, source_path)]
        found += [finding for check in BUILT_CHECKS for finding in check(built)]
    return [Fault(name, *finding) for finding in found]


def read_built(path: Path) -> NotebookNode:
    """Read an `.ipynb` as it is; ValueError if it is no notebook of format 4.5, which the builder writes."""
    try:
        built = nbformat.reads(path.read_text(encoding="utf-8"), as_version=nbformat.NO_CONVERT)
        nbformat.validate(built, version=4, version_minor=5)
    except (nbformat.reader.NotJSONError, nbformat.ValidationError, ValueError) as error:
        raise ValueError(f"{path.name}: {str(error).partition(chr(10))[0]}") from error
    return built


def starts_with(source: NotebookNode, repository: str, name: str) -> Findings:
    """The title links to Colab, if there is an address; the first code installs what is missing."""
    title = source.cells[0].source
    if title != with_link(title, repository, name):
        yield 1, "address", "the link to Colab is not that of pyproject.toml: make address"
    starts = [first_cell(repository, extras) for extras in EXTRAS]
    position, cell = next(code_cells(source), (0, None))
    if cell is None or cell.source not in starts or fold_of(cell) != INSTALL:
        yield position, "first cell", f'the first code cell, tags=["{INSTALL}"] (make address):\n{starts[0]}'


def links(path: Path, folder: Path) -> Findings:
    """A notebook that exists is named by a link to it, one that does not yet by its bare name.

    An italic title after a link, `[02](02_attention.ipynb), *Equation 1*`, is that of a section there.
    """
    for position, cell in enumerate(read_source(path).cells, start=1):
        if cell.cell_type == "markdown":
            for name in BARE_NAME.findall(cell.source):
                if (folder / f"{name}.py").exists():
                    yield position, "no link", f"`{name}` is there: [{name}]({name}.ipynb)"
            for name in LINKED_NAME.findall(cell.source):
                if not (path.parent / f"{name}.py").exists():
                    yield position, "dead link", f"there is no {name}: name it `{name}`"
            for name, title in LINKED_SECTION.findall(cell.source):
                title = " ".join(title.split())
                there = path.parent / f"{name}.py"
                if there.exists() and title not in headings(there):
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
        for key in ("cell_type", "source", "metadata", "id", "attachments"):
            if cell.get(key) != other.get(key):
                yield position, f"other {key}", "the .ipynb differs from the .py: build it again"
    if built.metadata != METADATA:
        yield 0, "notebook metadata", f"{sorted(built.metadata)} is not what the builder writes"
