"""One address, in pyproject.toml: what the first cell does without the package, and where the links lead."""

import shutil
import sys
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


def first_cell(repository: str) -> str:
    """The first cell where there is no such package."""
    return address.first_cell(repository).replace('"annotated-transformer"', '"no-such-package"')


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A kernel whose magic notes in `asked` what it is to install, and installs it if `works`."""
    installed = tmp_path / "site-packages"
    installed.mkdir()
    monkeypatch.syspath_prepend(installed)

    def run_line_magic(name: str, line: str) -> None:
        kernel.asked.append(f"{name} {line}")
        if kernel.works:
            (installed / "no_such_package-1.dist-info").mkdir()

    kernel = SimpleNamespace(asked=[], works=True, run_line_magic=run_line_magic)
    return kernel


def test_the_first_cell_leaves_an_installed_package_alone(pip: SimpleNamespace) -> None:
    exec(address.first_cell(HUB), {"get_ipython": lambda: pip})
    assert pip.asked == []


@pytest.mark.parametrize("repository", ["", HUB])
@pytest.mark.parametrize("folder", [".", "notebooks", "notebooks/zh"])
def test_inside_a_clone_the_first_cell_installs_the_clone(
    pip: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: str, folder: str
) -> None:
    clone = tmp_path / "a clone"
    (clone / "annotated/transformer").mkdir(parents=True)
    (clone / folder).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(clone / folder)
    exec(first_cell(repository), {"get_ipython": lambda: pip})
    assert pip.asked == [f'pip install -q -e "{clone}[colab]"']
    assert str(clone) in sys.path  # for this kernel, too


def test_alone_the_first_cell_installs_from_the_address(
    pip: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(first_cell(HUB), {"get_ipython": lambda: pip})
    assert pip.asked == [f'pip install -q "annotated-transformer[colab] @ git+{HUB}"']


@pytest.mark.parametrize(("repository", "asked"), [("", 0), (HUB, 1)])
def test_the_first_cell_stops_where_nothing_could_be_installed(
    pip: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: str, asked: int
) -> None:
    monkeypatch.chdir(tmp_path)
    pip.works = False
    with pytest.raises(Exception, match="make setup"):
        exec(first_cell(repository), {"get_ipython": lambda: pip})
    assert len(pip.asked) == asked


def test_a_notebook_alone_shows_one_sentence_and_runs_no_further(tmp_path: Path) -> None:
    cells = [nbformat.v4.new_code_cell(source) for source in (first_cell(""), "print(1)")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    with pytest.raises(build.BuildError):
        build.execute(notebook, tmp_path / "alone.py")
    (shown,) = notebook.cells[0].outputs
    assert shown.traceback == [shown.evalue]  # and none of the code above it
    assert shown.evalue.count(".") == 1
    assert notebook.cells[1].execution_count is None


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
    urls = f'[project]\n[project.urls]\nRepository = "{HUB}.git"\nDocumentation = "https://example.org/"\n'
    (project / "pyproject.toml").write_text(urls)
    assert faults(project) == ["address", "first cell"]
    assert address.write_all(project) == 0
    assert faults(project) == []
    colab = "colab.research.google.com/github/someone/annotated/blob/main/notebooks/00_tiny.ipynb"
    translated = colab.replace("00_tiny", "zh/00_tiny")
    assert [text.count(colab) for text in texts()] == [1, 1, 1, 0, 0]
    assert [text.count(translated) for text in texts()] == [0, 0, 0, 1, 1]
    assert "](https://example.org/) or as [a book](https://example.org/annotated.pdf)" in texts()[0]
    built = pairs.read_built(project / "notebooks/00_tiny.ipynb")
    assert built.cells[0].source.startswith("# Tiny\n\n[Open in Colab](https://colab")
    assert built.cells[1].source == address.first_cell(HUB, pairs.EXTRAS[1])
    assert built.cells[2].outputs[0].text == "1\n"
    (project / "pyproject.toml").write_text("[project]\n")
    assert address.write_all(project) == 0
    assert texts() == before
