"""Where the project is: first cells and links to Colab, made from `Repository` in pyproject.toml.

    python notebooks/address.py    put them into the notebooks, both files of each, and into the README

Nothing is executed: outputs stay. Exit code 1: a notebook is to be built first, because its two files differ.
"""

import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import nbformat
from nbformat import NotebookNode

FIRST_CELL = """\
# Where the package is missing, as in Colab, this installs it. Where it is installed, nothing happens.
import os
import subprocess
import sys

try:
    import annotated

    annotated.make_model  # PyPI has a stranger's `annotated`, which has none
except (ImportError, AttributeError):
    where = os.environ.get("ANNOTATED_SPEC", "{address}")
    if not where:
        todo = "%env ANNOTATED_SPEC=git+https://..."
        raise RuntimeError(f"To say where pip finds annotated, run in a cell above:\\n{{todo}}") from None
    package = f"annotated-transformer[{extras}] @ {{where}}"
    command = [sys.executable, "-m", "pip", "install", package]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        for line in pip.stdout:
            print(line, end="")
    if pip.returncode:
        raise RuntimeError("pip could not install annotated: its reason stands above") from None
    sys.modules.pop("annotated", None)"""
EXTRAS = re.compile(r"annotated-transformer\[([a-z,]+)\] @")
GITHUB = "https://github.com/"
COLAB = "https://colab.research.google.com/github/"
LINK = "[Open in Colab]("
README = re.compile(r"(<!-- colab -->\n).*?(<!-- end of colab -->)", re.DOTALL)


def find_repository(pyproject: Path) -> str:
    """`Repository` of `[project.urls]`, or nothing where it is not said yet."""
    urls = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"].get("urls", {})
    return urls.get("Repository", "").removesuffix("/").removesuffix(".git")


def first_cell(repository: str, extras: str = "colab") -> str:
    """The code that a notebook starts with: `extras` are what it needs beside the package."""
    return FIRST_CELL.format(address=f"git+{repository}" if repository else "", extras=extras)


def colab_address(repository: str, name: str) -> str:
    """Where Colab opens a notebook; nothing for a repository elsewhere than at GitHub."""
    where = repository.removeprefix(GITHUB)
    return f"{COLAB}{where}/blob/main/notebooks/{name}.ipynb" if where != repository else ""


def with_link(title: str, repository: str, name: str) -> str:
    """A notebook's title cell with the link to Colab below the heading, if there is an address."""
    paragraphs = [text for text in title.split("\n\n") if not text.startswith(LINK)]
    if address := colab_address(repository, name):
        paragraphs.insert(1, f"{LINK}{address})")
    return "\n\n".join(paragraphs)


def with_address(source: str, repository: str, name: str) -> str:
    """The text of a `.py` with the link in its title and with the first cell of now; extras stay."""
    before, title, code, *rest = re.split(r"^(?=# %%)", source, flags=re.MULTILINE)
    marker, *lines = title.rstrip("\n").split("\n")
    words = with_link("\n".join(line.removeprefix("#")[1:] for line in lines), repository, name)
    title = "\n".join([marker, *(f"# {line}".rstrip() for line in words.split("\n"))])
    extras = EXTRAS.search(code)
    cell = first_cell(repository, extras[1] if extras else "colab")
    return "".join([before, title, "\n\n", f"# %%\n{cell}\n\n", *rest])


def with_badges(readme: str, repository: str, names: Mapping[str, Path]) -> str:
    """The README with a link to Colab for each notebook, between its two comments."""
    links = [
        f"[{name[:2]}]({colab_address(repository, name)})"
        for name in names
        if colab_address(repository, name)
    ]
    line = f"Open in Colab: {' · '.join(links)}\n" if links else ""
    return README.sub(lambda found: found[1] + line + found[2], readme)


def code_below(notebook: NotebookNode) -> list[tuple[int, str]]:
    """The code whose outputs stay: all but the first code cell, with the cells' places."""
    code = [(i, cell.source) for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    return [(len(notebook.cells), ""), *code[1:]]


def write_all(root: Path) -> int:
    """Put the address into README and notebooks; 1 if a notebook has to be built first."""
    from build import write_atomically
    from pairs import find_sources, read_built, read_source

    repository = find_repository(root / "pyproject.toml")
    sources = find_sources(root / "notebooks")
    readme = root / "README.md"
    text = with_badges(readme.read_text(encoding="utf-8"), repository, sources)
    readme.write_text(text, encoding="utf-8", newline="\n")
    for name, path in sources.items():
        target = path.with_suffix(".ipynb")
        built = read_built(target)
        if code_below(built) != code_below(read_source(path)):
            print(f"{name}: its two files differ: make notebooks ONLY={name}", file=sys.stderr)
            return 1
        text = with_address(path.read_text(encoding="utf-8"), repository, name)
        path.write_text(text, encoding="utf-8", newline="\n")
        after = read_source(path)
        for cell, executed in zip(after.cells, built.cells, strict=True):
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = executed.outputs, executed.execution_count
        write_atomically(target, nbformat.writes(after) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(write_all(Path(__file__).resolve().parents[1]))
