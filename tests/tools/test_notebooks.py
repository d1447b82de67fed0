"""The pair check names every fault put in; the builder repeats itself, and stops at a failing cell."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_output
from tiny_notebooks import notebook_text, write_pair

import build
import lessons
import pairs

ROOT = Path(__file__).parents[2]
IGNORED = '# %% tags=["nbval-ignore-output"]\nprint(id(object()))\n'
VERDICT = "# %%\nprint(1 > 0)\n"
PLAIN = "# %%\nx = 1\n"
CHART = "application/vnd.vegalite.v5+json"


def names(folder: Path) -> list[str]:
    return [fault.name for fault in pairs.check_folder(folder, "")]


@pytest.mark.parametrize(
    "cell",
    [
        "\n".join(f"x{i} = {i}" for i in range(30)),
        'print("≈1")\n\n# %% tags=["check"]\nfrom torch.testing import assert_close\n\nassert_close(1, 1)',
        'print(f"equal: {1 == 1}")  # ≈1',
    ],
)
def test_a_good_pair_has_no_fault(tmp_path: Path, cell: str) -> None:
    write_pair(tmp_path, notebook_text(f"# %%\n{cell}\n", IGNORED, VERDICT, *[PLAIN] * 4))
    assert pairs.check_folder(tmp_path, "") == []


SOURCE_FAULTS = [
    ("first cell", notebook_text(start="import annotated")),
    ("not Python", notebook_text("# %%\n# %timeit 1 + 1\n")),
    ("proof in the open", notebook_text("# %%\nassert 1 + 1 == 2\n")),
    ("metadata", notebook_text('# %% tags=["nbval-skip"]\nx = 1\n')),
    ("metadata", notebook_text("# %%\n# NBVAL_IGNORE_OUTPUT\nx = 1\n")),
    ("about, no assert", notebook_text('# %%\nprint(f"≈{0.1:.2f}")\n')),
    (
        "about, no assert",
        notebook_text('# %%\nprint("≈1")\n\n# %%\nx = 1\n\n# %% tags=["check"]\nassert 1\n'),
    ),
    ("typed truth", notebook_text('# %%\nprint("equal: True")\n')),
    ("too many ignored", notebook_text(IGNORED, VERDICT, *[PLAIN] * 3)),
    ("no verdict", notebook_text(IGNORED, PLAIN, VERDICT, *[PLAIN] * 4)),
    ("no exercise", notebook_text(PLAIN, end="")),
]


@pytest.mark.parametrize(("name", "text"), SOURCE_FAULTS)
def test_faults_of_the_source_are_named(tmp_path: Path, name: str, text: str) -> None:
    write_pair(tmp_path, text)
    assert names(tmp_path) == [name]


def test_texts_are_brought_up_to_date_without_a_run(tmp_path: Path) -> None:
    write_pair(tmp_path, notebook_text(PLAIN), prints("1\n"))
    source = tmp_path / "00_tiny.py"
    source.write_text(source.read_text().replace("# # Tiny", "# # Small"))
    assert build.main(["--text"], tmp_path) == 0
    assert pairs.read_built(tmp_path / "00_tiny.ipynb").cells[2].outputs[0].text == "1\n"
    assert names(tmp_path) == []
    source.write_text(source.read_text().replace("x = 1", "x = 2"))
    assert build.main(["--text"], tmp_path) == 1
    assert "other source" in names(tmp_path)


def test_a_translation_has_the_lessons_code_and_outputs(tmp_path: Path) -> None:
    write_pair(tmp_path, notebook_text(PLAIN))
    source = tmp_path / "zh/00_tiny.py"
    source.parent.mkdir()
    source.write_text(notebook_text(PLAIN).replace("# # Tiny", "# # 很小"), encoding="utf-8")
    build.write_translations(tmp_path / "00_tiny.py")
    assert names(tmp_path) == []
    built = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    assert built.cells[0].source.startswith("# 很小")
    assert [cell.execution_count for cell in built.cells if cell.cell_type == "code"] == [1, 2, 3]
    source.write_text(source.read_text(encoding="utf-8").replace("x = 1", "x = 2"), encoding="utf-8")
    assert names(tmp_path) == ["translation"]


def test_minutes_to_read_count_words_code_and_what_is_printed(tmp_path: Path) -> None:
    words = "# %% [markdown]\n# " + 147 * "word " + "[two words](http://a.b/c) - 1\n"
    cells = [words, "# %%\n" + 11 * "x = 1\n", '# %% tags=["check"]\n' + 99 * "assert 1\n"]
    exercise = "# %% [markdown]\n# **Exercise.** " + 99 * "Add " + '\n# %% tags=["solution"]\nx = 1\n'
    (tmp_path / "00_tiny.py").write_text("\n".join([*cells, exercise]))
    lesson = pairs.read_source(tmp_path / "00_tiny.py")
    assert lessons.reading_minutes(lesson) == pytest.approx(150 / 150 + 11 / 12)
    lesson.cells[1].outputs = [
        new_output("stream", text="1\n\n"),
        new_output("display_data", {"image/png": ""}),
    ]
    lesson.cells[2].outputs = [new_output("execute_result", {"text/plain": "True"})]
    assert lessons.reading_minutes(lesson) == pytest.approx(150 / 150 + 13 / 12)


def output(cell: int, **content: object) -> Callable[[NotebookNode], object]:
    """A change that gives a cell an output."""
    return lambda built: built.cells[cell].outputs.append(new_output(**content))


def prints(text: str) -> Callable[[NotebookNode], object]:
    return output(2, output_type="stream", name="stdout", text=text)


def sets(key: str, value: object) -> Callable[[NotebookNode], object]:
    return lambda built: built.cells[2].update({key: value})


BUILT_FAULTS = [
    ("cells", lambda built: built.cells.pop()),
    ("other source", sets("source", "x = 2")),
    ("other metadata", sets("metadata", nbformat.from_dict({"collapsed": True}))),
    ("notebook metadata", lambda built: built.metadata.update(authors=[])),
    ("execution count", sets("execution_count", 3)),
    ("error output", output(2, output_type="error", ename="ValueError", evalue="no", traceback=[])),
    ("machine's own", prints("<object object at 0x7f4867b82fc0>")),
    ("machine's own", output(2, output_type="display_data", data={"text/html": "<a href='/tmp/x'>"})),
    (
        "unnamed parameter",
        output(2, output_type="display_data", data={CHART: {"params": [{"name": "param_7"}]}}),
    ),
    ("about, no assert", prints("≈0.25\n")),
    ("unreadable", lambda built: built.update(nbformat=3)),
]


@pytest.mark.parametrize(("name", "change"), BUILT_FAULTS)
def test_faults_of_the_built_notebook_are_named(tmp_path: Path, name: str, change: Callable) -> None:
    write_pair(tmp_path, notebook_text(PLAIN), change)
    assert names(tmp_path) == [name]


def test_missing_partners_and_missing_notebooks_are_named(tmp_path: Path) -> None:
    assert names(tmp_path) == ["no notebooks"]
    write_pair(tmp_path, notebook_text(PLAIN))
    (tmp_path / "00_tiny.py").rename(tmp_path / "01_other.py")
    assert names(tmp_path) == ["no source", "not built"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("See `00_tiny`.", ["no link"]),
        ("See [00_tiny](00_tiny.ipynb) and `01_to_come`.", []),
        ("See [01_gone](01_gone.ipynb).", ["dead link"]),
        ("See [00](00_tiny.ipynb),\n# *A\n# part*.\n# ## A part", []),
        ("See [00](00_tiny.ipynb), *Another part*.\n# ## A part", ["no such section"]),
    ],
)
def test_notebooks_are_linked_where_they_exist(tmp_path: Path, text: str, fault: list[str]) -> None:
    write_pair(tmp_path, notebook_text(PLAIN, f"# %% [markdown]\n# {text}\n"))
    assert names(tmp_path) == fault


def test_two_builds_give_the_same_faultless_bytes(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    source, others = tmp_path / "00_tiny.py", psutil.Process().children()
    cells = "# %%\nimport sys\nprint('one')\nprint('two', file=sys.stderr)\n{'sum': 1 + 1}\n"
    source.write_text(notebook_text(cells, start="import os\nprint(os.path.exists('00_tiny.py'))"))
    first = build.build(source).read_bytes()
    assert build.build(source).read_bytes() == first
    built = nbformat.read(tmp_path / "00_tiny.ipynb", as_version=4)
    assert built.cells[1].outputs[0].text == "True\n"  # it ran in the folder of its source
    assert {o.get("text") for o in built.cells[2].outputs} == {"one\n", "two\n", None}
    assert names(tmp_path) == ["first cell"]
    assert psutil.Process().children() == others  # the kernels are gone


def test_a_failing_cell_is_told_and_the_old_notebook_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    write_pair(tmp_path, notebook_text("# %%\nx = 41\nx / 0\n", start="x = 1"))
    before = (tmp_path / "00_tiny.ipynb").read_bytes()
    assert build.main(["00_tiny"], tmp_path) == 1
    told = capsys.readouterr().err
    assert "00_tiny.py, cell 3 of 5 failed:\n" in told
    assert "ZeroDivisionError" in told
    assert (tmp_path / "00_tiny.ipynb").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00_tiny.ipynb", "00_tiny.py"]


def test_an_edit_of_the_built_notebook_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-C", tmp_path, "-c", "user.name=n", "-c", "user.email=e", *arguments], check=True
        )

    builds: list[Path] = []
    monkeypatch.setattr(build, "build_all", lambda sources, repository: builds.extend(sources) or 0)
    write_pair(tmp_path, notebook_text(PLAIN))
    built, source = tmp_path / "00_tiny.ipynb", tmp_path / "00_tiny.py"
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    assert build.main([], tmp_path) == 0
    built.write_text(built.read_text().replace("x = 1", "x = 7"))
    assert build.main(["00_tiny"], tmp_path) == build.main([], tmp_path) == 1
    assert len(builds) == 1
    assert build.main(["--force"], tmp_path) == 0
    source.write_text(source.read_text().replace("x = 1", "x = 2"))  # from which the notebook may be built
    assert build.main([], tmp_path) == 0
