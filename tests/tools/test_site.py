"""The site's parts: notebooks become pages, tables become links, the check of the built pages finds faults.

The pages themselves are read in a browser by `make test-site`.
"""

import base64
import re
from html import unescape
from pathlib import Path

import nbformat
import pytest
from docutils import nodes
from docutils.utils import new_document
from pygments import highlight
from pygments.lexers import PythonLexer

from checking import check_site
from extension import LineFormatter, add_dark, public, to_rest
from folds import TITLES
from gallery import write_gallery
from notebook_pages import VEGA, as_html, fold, to_page
from reference_pages import Series, code_link, glossary_entry, question
from sources import notebooks, read_table, slug, terms_for, terms_in
from teaching import row

ROOT = Path(__file__).parents[2]
PNG = base64.b64encode(b"picture").decode()


def output(**data: object) -> nbformat.NotebookNode:
    """What a cell displayed, with the picture's size in the metadata."""
    return nbformat.v4.new_output("display_data", data, metadata={"image/png": {"width": 80, "height": 40}})


# Built pages


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "a.html").write_text('<h1 id="top">A</h1><a href="b.html#end">b</a><img src="x.png">')
    (tmp_path / "b.html").write_text(
        '<p id="end"></p><a href="a.html">a</a><a href="https://example.org">e</a>'
    )
    (tmp_path / "x.png").write_bytes(b"")
    return tmp_path


def test_a_sound_site_has_no_faults(site: Path) -> None:
    assert check_site(site) == []


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ('<a href="c.html">c</a>', "there is no c.html"),
        ('<a href="b.html#start">b</a>', "b.html has no #start"),
        ('<a href="#nowhere">n</a>', "this page has no #nowhere"),
        ('<img src="y.png">', "there is no y.png"),
        (
            '<script src="https://cdn.example.org/x.js"></script>',
            "<script> fetches https://cdn.example.org/x.js",
        ),
        ('<link href="//fonts.example.org/f.css">', "<link> fetches //fonts.example.org/f.css"),
    ],
)
def test_each_fault_is_found(site: Path, page: str, fault: str) -> None:
    (site / "a.html").write_text(f"\n{page}")
    assert check_site(site) == [f"a.html, line 2: {fault}"]


def test_an_empty_folder_is_no_site(tmp_path: Path) -> None:
    assert len(check_site(tmp_path)) == 1


# Notebooks


def test_a_figure_becomes_a_file_with_words(tmp_path: Path) -> None:
    figure = output(**{"image/png": PNG, "text/plain": "<Figure size 8x4 with 1 Axes>"})
    figure.metadata["image/png"]["alt"] = 'A "mask" & more'
    html = as_html(figure, "Masks", tmp_path).data["text/html"]
    [path] = tmp_path.iterdir()
    assert path.read_bytes() == b"picture"
    assert f'src="../_static/figures/{path.name}"' in html
    assert 'alt="A &quot;mask&quot; &amp; more" width="80" height="40"' in html


def test_a_figure_with_a_name_keeps_it(tmp_path: Path) -> None:
    html = as_html(output(**{"image/png": PNG}), "Masks", tmp_path, "02-masks").data["text/html"]
    assert 'src="../_static/figures/02-masks.png"' in html
    assert (tmp_path / "02-masks.png").read_bytes() == b"picture"


def test_the_gallery_shows_each_named_figure_with_its_caption_its_files_and_its_code(tmp_path: Path) -> None:
    text, code = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell
    named = code("draw(1)", outputs=[output(**{"image/png": PNG})], metadata={"tags": ["figure-masks"]})
    below = text("*Figure 1. What\nto see.*\n\nAnd so on.")
    other = code("draw(2)", outputs=[output(**{"image/png": PNG})])
    cells = [text("# 02 · Attention"), text("## Which way round?"), named, below, other]
    (tmp_path / "notebooks/figures").mkdir(parents=True)
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "notebooks/02_attention.ipynb")
    (tmp_path / "notebooks/figures/02-masks.svg").write_text("<svg/>")
    (tmp_path / "gallery.md").write_text("FIGURES")
    write_gallery(tmp_path, tmp_path)
    page = (tmp_path / "gallery.md").read_text(encoding="utf-8")
    assert page.index("## 02 · Attention") < page.index("*Figure 1. What\nto see.*") < page.index("draw(1)")
    assert "(notebooks/02_attention.ipynb#which-way-round)" in page
    assert "And so on" not in page
    assert "draw(2)" not in page
    kept = {path.name for path in (tmp_path / "_static/figures").iterdir()}
    assert kept == {"02-masks.png", "02-masks.svg"}
    assert all(f'href="_static/figures/{name}"' in page for name in kept)


def test_a_figure_without_words_is_named_by_its_section(tmp_path: Path) -> None:
    html = as_html(output(**{"image/png": PNG}), "Masks: who may look", tmp_path).data["text/html"]
    assert 'alt="Figure: Masks: who may look"' in html


def test_a_chart_keeps_its_data_and_its_still(tmp_path: Path) -> None:
    spec = {"data": {"values": [{"token": "</script><p>"}]}}
    chart = output(**{"image/png": PNG, VEGA: spec, "text/plain": "<Chart: Scores; parameters: d_k>"})
    html = as_html(chart, "", tmp_path).data["text/html"]
    assert html.count("</script>") == 3  # its own, and two that load what draws
    assert '"description": "Scores"' in html
    assert 'alt="Scores"' in html


def test_a_drawing_gets_its_dark_twin_and_no_other_picture_does() -> None:
    page = new_document("page")
    addresses = ["../images/map.svg", "../_static/figures/02-masks.svg", "../images/card.png"]
    page += [nodes.image(uri=address, alt="What to see") for address in addresses]
    add_dark(None, page)
    shown = [(image["uri"], image["classes"], image["alt"]) for image in page.findall(nodes.image)]
    assert shown == [
        ("../images/map.svg", ["only-light"], "What to see"),
        ("../images/map.dark.svg", ["only-dark"], "What to see"),
        *((address, [], "What to see") for address in addresses[1:]),
    ]


def test_text_stays_as_it_is(tmp_path: Path) -> None:
    stream = nbformat.v4.new_output("stream", text="True\n")
    assert as_html(stream, "", tmp_path) is stream


def test_what_a_notebook_folds_is_folded_and_nothing_else() -> None:
    cells = [nbformat.v4.new_code_cell(f"# @title {tag}\n1", metadata={"tags": [tag]}) for tag in TITLES]
    notebook = nbformat.v4.new_notebook(cells=[*cells, nbformat.v4.new_code_cell("2 + 2")])
    fold(notebook)
    assert [cell.metadata.get("tags", []) for cell in notebook.cells] == [
        *(["hide-cell", t] for t in TITLES),
        [],
    ]
    assert {cell.source for cell in cells} == {"1"}


def test_an_attached_drawing_is_the_sites_own(tmp_path: Path) -> None:
    text = nbformat.v4.new_markdown_cell("![A map](attachment:map.png)", attachments={"map.png": {}})
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Why?"), text])
    to_page(notebook, "why", tmp_path, "../../")
    assert notebook.cells[1].source == "![A map](../../images/map.svg)"
    assert "attachments" not in notebook.cells[1]


def test_a_page_has_its_downloads_below_the_title_and_its_terms_at_the_end(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# 02 · Attention\n\nText")])
    to_page(notebook, "02_attention", tmp_path)
    assert re.match(r'# 02 · Attention\n\n<p class="downloads">.*</p>\n\n\nText', notebook.cells[0].source)
    assert "{term}`attention`" in notebook.cells[-1].source


def test_a_line_of_code_knows_its_indent_and_a_block_its_longest_line() -> None:
    code = 'def f():\n    """Two\n    lines."""\n\n    return "&<>"\n'
    page = highlight(code, PythonLexer(), LineFormatter())
    assert '<pre style="--longest: 16' in page
    lines = re.findall(r'<span class="line" style="--indent: (\d+)">(.*?\n)</span>', page)
    assert [int(indent) for indent, _ in lines] == [0, 4, 4, 0, 4]
    assert unescape(re.sub("<.*?>", "", "".join(line for _, line in lines))) == code


# Teaching


def notebook_with(head: str, *cells: nbformat.NotebookNode) -> tuple[Path, nbformat.NotebookNode]:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(head), *cells])
    return Path("02_attention.ipynb"), notebook


def test_what_a_teacher_reads_of_a_notebook_is_what_the_notebook_says() -> None:
    head = (
        "# 02 · Attention\n\n*26 minutes to read, 20 seconds to run, the exercises extra.*\n\n"
        "- **Before:** tensors\n  ([01](01_why_attention.ipynb)).\n- **After:** you can write it."
    )
    text, code = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell
    easy, hard = text("**Exercise 1 (easy).** Write it."), text("**Exercise 2 (hard).** Why?")
    tested = [code("1", metadata={"tags": [tag]}) for tag in ("exercise", "solution", "exercise-test")]
    solution = code("2", metadata={"tags": ["solution"]})
    assert row(*notebook_with(head, easy, *tested, hard, solution)) == (
        "[02 · Attention](notebooks/02_attention.ipynb)",
        "26 to read; 20 seconds to run",
        "tensors ([01](notebooks/01_why_attention.ipynb)).",
        "you can write it.",
        "easy, hard; 1 with a test",
    )


def test_a_head_that_does_not_say_how_long_it_takes_is_told() -> None:
    with pytest.raises(ValueError, match=r"02_attention.ipynb: its head needs '\*n minutes to read"):
        row(*notebook_with("# 02 · Attention\n\n- **Before:** a\n- **After:** b"))


def test_every_notebook_has_a_row_for_teachers() -> None:
    for path, notebook in notebooks(ROOT):
        assert all(row(path, notebook))


# Tables


def test_every_place_in_the_tables_is_there() -> None:
    series = Series(ROOT)
    for entry in read_table("glossary"):
        glossary_entry(entry, series)
    for item in read_table("questions"):
        question(item, series)


def test_a_section_that_is_gone_is_told() -> None:
    with pytest.raises(ValueError, match="02_attention has no section 'Equation 4'"):
        Series(ROOT).link("words", "02_attention", "Equation 4")


def test_a_notebook_that_is_not_written_is_not_linked() -> None:
    assert Series(ROOT).link("words", "99_later", "Any") == "words"


def test_every_code_name_of_the_glossary_is_public() -> None:
    codes = {code for entry in read_table("glossary") for code in entry["code"]}
    assert {code.partition(".")[0] for code in codes} <= public().keys()


def test_terms_and_places_lead_both_ways() -> None:
    assert "memory" in terms_for("EncoderDecoder.encode")
    assert "memory" in terms_in("03_multi_head_attention")
    assert terms_for("") == []


@pytest.mark.parametrize(
    ("heading", "name"),
    [
        ("Equation 1", "equation-1"),
        ("Why exp(log)?", "why-explog"),
        ("Why divide by the square root of $d_k$", "why-divide-by-the-square-root-of-"),
    ],
)
def test_headings_get_the_names_that_github_gives_them(heading: str, name: str) -> None:
    assert slug(heading) == name


def test_code_leads_to_its_own_entry_or_to_its_class() -> None:
    assert code_link("data.Batch.to") == "{py:obj}`Batch.to <annotated.data.Batch.to>`"
    assert (
        code_link("TransformerConfig.h")
        == "{py:obj}`TransformerConfig.h <annotated.transformer.config.TransformerConfig>`"
    )
    assert code_link("data.torchtext_fields.make_fields") == "`data.torchtext_fields.make_fields`"


# Docstrings


def test_names_become_links_and_examples_blocks() -> None:
    lines = ["As `Batch` and `x[0]` do:", "", "    make site", "", "Args:", "    src: |A|."]
    to_rest(None, "function", "annotated.unknown", None, None, lines)
    assert lines[0] == "As :py:obj:`Batch <annotated.data.Batch>` and ``x[0]`` do:"
    assert lines[2:5] == ["::", "", "    make site"]
    assert lines[-1] == r"    src: \|A\|."


def test_every_chart_of_a_notebook_is_drawn_by_the_version_that_made_it() -> None:
    """The bundle holds Vega-Lite in altair's version, and so the specifications are understood."""
    altair = pytest.importorskip("altair")
    assert altair.SCHEMA_VERSION.startswith("v5.")
    assert altair.vegalite.v5.display.VEGALITE_MIME_TYPE == VEGA
