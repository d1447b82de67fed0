"""One address, in pyproject.toml: what the first cell does without the package, and where the links lead."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from nbformat import NotebookNode
from tiny_notebooks import notebook_text, write_pair

import address
import build
import pairs
from folds import TITLE

ROOT = Path(__file__).parents[2]
HUB = "https://github.com/someone/annotated"


def test_the_first_cell_installs_only_where_the_package_is_missing() -> None:
    ran: list[tuple[str, str]] = []  # the cell's magics
    shell = SimpleNamespace(run_line_magic=lambda name, line: ran.append((name, line)))
    code = address.first_cell("")
    exec(code, {"get_ipython": lambda: shell})
    assert ran == []
    exec(code.replace('"annotated"', '"no_such_package"'), {"get_ipython": lambda: shell})
    assert ran == [("pip", "install -q 'annotated-transformer[colab]'")]


def prints_one(built: NotebookNode) -> None:
    built.cells[2].outputs = [nbformat.v4.new_output("stream", text="1\n")]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one notebook, executed and translated, that takes the second choice of extras."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    shutil.copy(ROOT / "README.md", tmp_path)
    start = TITLE.sub("", address.first_cell("", pairs.EXTRAS[1]))
    write_pair(tmp_path / "notebooks", notebook_text("# %%\nprint(1)\n", start=start), prints_one)
    source = tmp_path / "notebooks/00_tiny.py"
    (tmp_path / "notebooks/zh").mkdir()
    shutil.copy(source, tmp_path / "notebooks/zh")
    build.write_translations(source)
    return tmp_path


def faults(project: Path) -> list[str]:
    repository = address.find_repository(project / "pyproject.toml")
    return [fault.name for fault in pairs.check_folder(project / "notebooks", repository)]


def test_an_address_goes_everywhere_and_away_again(project: Path) -> None:
    def texts() -> list[str]:
        notebooks = sorted((project / "notebooks").rglob("00_tiny.*"))
        return [path.read_text() for path in (project / "README.md", *notebooks)]

    before = texts()
    assert faults(project) == []
    urls = f'[project]\n[project.urls]\nRepository = "{HUB}.git"\n'
    (project / "pyproject.toml").write_text(urls)
    assert faults(project) == ["address", "first cell"]
    assert address.write_all(project) == 0
    assert faults(project) == []
    colab = "colab.research.google.com/github/someone/annotated/blob/main/notebooks/00_tiny.ipynb"
    translated = colab.replace("00_tiny", "zh/00_tiny")
    assert [text.count(colab) for text in texts()] == [1, 1, 1, 0, 0]
    assert [text.count(translated) for text in texts()] == [0, 0, 0, 1, 1]
    built = pairs.read_built(project / "notebooks/00_tiny.ipynb")
    assert built.cells[0].source.startswith("# Tiny\n\n[Open in Colab](https://colab")
    assert built.cells[1].source == address.first_cell(HUB, pairs.EXTRAS[1])
    assert built.cells[2].outputs[0].text == "1\n"
    (project / "pyproject.toml").write_text("[project]\n")
    assert address.write_all(project) == 0
    assert texts() == before
