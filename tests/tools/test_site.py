"""The site: its own checker finds dead links, pictures get words, the drawings are complete.

`make site` builds it and checks every link; `make test-site` reads it in a browser.
"""

import base64
from pathlib import Path

import nbformat
import pytest

from checking import check_site
from notebook_pages import VEGA, as_html, figure_name
from sources import notebooks
from teaching import row

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "images"
PNG = base64.b64encode(b"picture").decode()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "a.html").write_text('<h1 id="top">A</h1><a href="b.html#end">b</a><img src="x.png">')
    (tmp_path / "b.html").write_text('<p id="end"></p><a href="https://example.org">e</a>')
    (tmp_path / "x.png").write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ('<a href="c.html">c</a>', "c.html"),
        ('<a href="b.html#start">b</a>', "#start"),
        ('<img src="y.png">', "y.png"),
        ('<script src="https://cdn.example.org/x.js"></script>', "https://cdn.example.org/x.js"),
        ('<link href="//fonts.example.org/f.css">', "//fonts.example.org/f.css"),
    ],
)
def test_dead_links_and_other_hosts_are_faults(site: Path, page: str, fault: str) -> None:
    assert check_site(site) == []
    (site / "a.html").write_text(f"\n{page}")
    [message] = check_site(site)
    assert message.startswith("a.html, line 2: ")
    assert message.endswith(fault)


def output(**data: object) -> nbformat.NotebookNode:
    """What a cell displayed, with the picture's size in the metadata."""
    return nbformat.v4.new_output("display_data", data, metadata={"image/png": {"width": 80, "height": 40}})


def test_a_figure_becomes_a_file_with_an_alternative_text(tmp_path: Path) -> None:
    figure = output(**{"image/png": PNG})
    assert 'alt="Figure: Masks"' in as_html(figure, "Masks", tmp_path).data["text/html"]
    figure.metadata["image/png"]["alt"] = 'A "mask" & more'
    html = as_html(figure, "Masks", tmp_path, "02-masks").data["text/html"]
    assert 'alt="A &quot;mask&quot; &amp; more"' in html
    assert 'src="../_static/figures/02-masks.png"' in html
    assert (tmp_path / "02-masks.png").read_bytes() == b"picture"


def test_data_in_a_chart_cannot_end_its_script(tmp_path: Path) -> None:
    spec = {"data": {"values": [{"token": "</script><p>"}]}}
    chart = output(**{"image/png": PNG, VEGA: spec, "text/plain": "<Chart: Scores; parameters: d_k>"})
    html = as_html(chart, "", tmp_path).data["text/html"]
    assert html.count("</script>") == 3  # its own, and two that load what draws


def test_a_row_for_teachers_says_what_the_head_of_the_notebook_says() -> None:
    known = "- **Before:** you know\n  [01](01_b.ipynb).\n- **After:** more."
    texts = f"# A\n\n*24 minutes to read, two to run.*\n\n{known}", "**Exercise 1 (easy).** Add."
    cells = [nbformat.v4.new_markdown_cell(text) for text in texts]
    notebook = nbformat.v4.new_notebook(cells=cells)
    assert row(Path("02_a.ipynb"), notebook) == (
        "[A](notebooks/02_a.ipynb)",
        "24 to read; two to run",
        "you know [01](notebooks/01_b.ipynb).",
        "more.",
        "easy; 0 with a test",
    )
    cells[0].source = "# A"
    assert row(Path("02_a.ipynb"), notebook)[1:4] == ("", "", "")


def test_every_figure_with_a_name_has_its_file() -> None:
    for path, notebook in notebooks(ROOT):
        names = [figure_name(cell, path.stem) for cell in notebook.cells]
        assert all((ROOT / f"notebooks/figures/{name}.svg").exists() for name in names if name)
