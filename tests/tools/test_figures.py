"""Figures: those with a name are kept as SVG, and one that is missing is told."""

from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook, new_output

import build
import figure_svgs
import figures
import pairs

PNG = {"image/png": "AAAA", "text/plain": "<Figure size 640x480 with 1 Axes>"}
SVG = "<svg>\n <metadata>\n  <date>2026-01-01</date>\n </metadata>\n <g/></svg>"


def picture(*tags: str) -> NotebookNode:
    output = new_output("display_data", PNG, metadata={"image/png": {"alt": "A line", "svg": SVG}})
    return new_code_cell("plt.show()", outputs=[output], metadata={"tags": list(tags)})


def test_files_follow_the_names(tmp_path: Path) -> None:
    source, other = tmp_path / "02_attention.py", tmp_path / "figures/03-heads.svg"
    build.write_svgs(source, {"masks": SVG, "weights": SVG})
    other.touch()
    build.write_svgs(source, {"masks": SVG})
    assert {path.name for path in other.parent.iterdir()} == {"02-masks.svg", "03-heads.svg"}
    named, unnamed = new_notebook(cells=[picture("figure-masks")]), new_notebook(cells=[picture()])
    assert list(figures.check_svgs(named, source)) == []
    [(_, fault, told)] = figures.check_svgs(unnamed, source)
    assert (fault, told.split(":")[0]) == ("svg", "figures/02-masks.svg is of no figure")
    build.write_svgs(source, {})
    [(_, fault, told)] = figures.check_svgs(named, source)
    assert (fault, told.split(":")[0]) == ("svg", "figures/02-masks.svg is missing")


def test_a_build_keeps_the_picture_and_no_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MPLBACKEND", raising=False)  # tests draw without windows; a kernel draws inline
    source = tmp_path / "00_tiny.py"
    source.write_text(
        '# %% tags=["figure-line"]\nimport matplotlib.pyplot as plt\n'
        "from annotated.plots import setup_notebook\n\nsetup_notebook()\nplt.plot([1, 2])\nplt.show()\n"
    )
    build.build(source)
    path = tmp_path / "figures/00-line.svg"
    first = path.read_bytes()
    assert b"<svg" in first
    build.build(source)
    assert path.read_bytes() == first
    [output] = pairs.read_built(tmp_path / "00_tiny.ipynb").cells[0].outputs
    assert output.data.keys() == {"image/png", "text/plain"}
    assert output.metadata["image/png"].keys() == {"alt", "height", "width"}


def test_an_svg_stands_beside_the_picture_which_stays_as_it_is() -> None:
    draw = figure_svgs.with_svg(lambda figure: (b"png", {"width": 3}) if figure.axes else None)
    figure = plt.figure()
    assert draw(figure) is None
    figure.add_subplot().set_title("A mask")
    picture, metadata = draw(figure)
    assert picture == b"png"
    assert metadata.pop("svg").rstrip().endswith("</svg>")
    assert metadata == {"width": 3}
