"""One address, in pyproject.toml: what the first cell does without the package, and where the links lead."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from packaging.requirements import Requirement

import address
import pairs

ROOT = Path(__file__).parents[2]
HUB = "https://github.com/someone/annotated"
PIP = """import sys
print("Collecting", sys.argv[-1])
print("a warning", file=sys.stderr)
sys.exit(sys.argv[-1].endswith("nowhere"))
"""


def run_first_cell(
    folder: Path, repository: str = "", spec: str | None = None, package: str = ""
) -> subprocess.CompletedProcess:
    """The first cell in a fresh interpreter that sees `package` as `annotated`, and a pip that only talks."""
    (folder / "pip.py").write_text(PIP)
    if package:
        (folder / "annotated.py").write_text(package)
    environment = {name: value for name, value in os.environ.items() if name != "ANNOTATED_SPEC"}
    environment |= {"PYTHONPATH": str(folder)} | ({"ANNOTATED_SPEC": spec} if spec else {})
    # -S: nothing that is installed is seen, so that `annotated` is missing; and pip is the one above.
    code = address.first_cell(repository).replace('"-m", "pip"', '"-S", "-m", "pip"')
    command = [sys.executable, "-S", "-c", code + "\nprint('annotated' in sys.modules)"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def asked_for(done: subprocess.CompletedProcess) -> Requirement:
    """What pip was told to install, as the reader saw it."""
    assert done.stdout.splitlines()[1:] == ["a warning", "False"], done.stderr
    return Requirement(done.stdout.splitlines()[0].removeprefix("Collecting "))


def test_the_first_cell_is_silent_where_the_package_is_there() -> None:
    command = [sys.executable, "-c", address.first_cell("")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""


def test_the_first_cell_installs_from_annotated_spec_and_shows_it(tmp_path: Path) -> None:
    wanted = asked_for(run_first_cell(tmp_path, HUB, "git+file://localhost/somewhere"))
    assert (wanted.name, wanted.extras) == ("annotated-transformer", {"colab"})
    assert wanted.url == "git+file://localhost/somewhere"


def test_the_first_cell_installs_from_the_repository_once_there_is_one(tmp_path: Path) -> None:
    assert asked_for(run_first_cell(tmp_path, HUB)).url == f"git+{HUB}"


def test_a_strangers_package_of_that_name_is_not_taken_for_ours(tmp_path: Path) -> None:
    assert asked_for(run_first_cell(tmp_path, HUB, package="def annotate(): ...")).url == f"git+{HUB}"


def test_without_an_address_the_first_cell_says_what_to_do(tmp_path: Path) -> None:
    done = run_first_cell(tmp_path)
    assert done.stdout == ""
    say, todo = done.stderr.splitlines()[-2:]
    assert say.startswith("RuntimeError: ")
    assert todo == "%env ANNOTATED_SPEC=git+https://..."


def test_a_failed_installation_stops_the_first_cell(tmp_path: Path) -> None:
    done = run_first_cell(tmp_path, spec="nowhere")
    assert done.stdout.startswith("Collecting")
    assert "RuntimeError: pip could not install annotated" in done.stderr


def test_the_extras_of_the_first_cells_are_those_of_the_project() -> None:
    known = address.tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {name for extras in pairs.EXTRAS for name in extras.split(",")} <= known.keys()
    assert not {"spacy", "torchtext", "jupyter"} & {Requirement(text).name for text in known["colab"]}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one notebook, executed, that takes the second choice of extras."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    shutil.copy(ROOT / "README.md", tmp_path)
    cells = [
        "# %% [markdown]\n# # Tiny\n#\n# **A start.**",
        f"# %%\n{address.first_cell('', pairs.EXTRAS[1])}",
    ]
    cells += ["# %%\nprint(1)", "# %% [markdown]\n# Exercise", '# %% tags=["solution"]\nx = 1']
    source = tmp_path / "notebooks/00_tiny.py"
    source.write_text("\n\n".join(cells) + "\n")
    built = pairs.read_source(source)
    for count, cell in enumerate((c for c in built.cells if c.cell_type == "code"), start=1):
        cell.execution_count = count
    built.cells[2].outputs = [nbformat.v4.new_output("stream", text="1\n")]
    nbformat.write(built, source.with_suffix(".ipynb"))
    return tmp_path


def faults(project: Path) -> list[str]:
    repository = address.find_repository(project / "pyproject.toml")
    return [fault.name for fault in pairs.check_folder(project / "notebooks", repository)]


def test_an_address_goes_everywhere_and_away_again(project: Path) -> None:
    def texts() -> list[str]:
        return [path.read_text() for path in (*(project / "notebooks").iterdir(), project / "README.md")]

    before = texts()
    assert faults(project) == []
    urls = f'[project]\n[project.urls]\nRepository = "{HUB}.git"\n'
    (project / "pyproject.toml").write_text(urls)
    assert faults(project) == ["address", "first cell"]
    assert address.write_all(project) == 0
    assert faults(project) == []
    colab = "colab.research.google.com/github/someone/annotated/blob/main/notebooks/00_tiny.ipynb"
    assert [text.count(colab) for text in texts()] == [1, 1, 1]
    built = pairs.read_built(project / "notebooks/00_tiny.ipynb")
    assert built.cells[0].source.startswith("# Tiny\n\n[Open in Colab](https://colab")
    assert built.cells[1].source == address.first_cell(HUB, pairs.EXTRAS[1])
    assert built.cells[2].outputs[0].text == "1\n"
    (project / "pyproject.toml").write_text("[project]\n")
    assert address.write_all(project) == 0
    assert texts() == before


def test_a_notebook_whose_files_differ_is_not_touched(project: Path, capsys: pytest.CaptureFixture) -> None:
    source = project / "notebooks/00_tiny.py"
    source.write_text(source.read_text().replace("print(1)", "print(2)"))
    before = source.read_text(), source.with_suffix(".ipynb").read_text()
    assert address.write_all(project) == 1
    assert "00_tiny: its two files differ: make notebooks ONLY=00_tiny" in capsys.readouterr().err
    assert (source.read_text(), source.with_suffix(".ipynb").read_text()) == before


def test_colab_is_offered_only_for_what_it_can_read() -> None:
    assert address.colab_address("https://example.org/annotated", "02_attention") == ""
    assert address.colab_address("", "02_attention") == ""
