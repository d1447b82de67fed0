"""The look of the notebooks, their charts, and the source they show."""

import ast
import base64
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

import annotated
from annotated.plots.notebook import chart_bundle, describe_figure, setup_notebook, show_source
from annotated.transformer import attention as masks

alt = pytest.importorskip("altair")
pd = pytest.importorskip("pandas")

LIVE = "application/vnd.vegalite.v5+json"


@pytest.fixture(autouse=True)
def settings_restored() -> Iterator[None]:
    """Leave matplotlib and altair as they were found."""
    theme, renderer, data = alt.theme.active, alt.renderers.active, alt.data_transformers.active
    with mpl.rc_context():
        yield
    alt.theme.enable(theme)
    alt.renderers.enable(renderer)
    alt.data_transformers.enable(data)


@pytest.fixture
def chart() -> alt.Chart:
    slider = alt.param(name="power", value=2, bind=alt.binding_range(min=0, max=4, step=1))
    frame = pd.DataFrame({"x": [1, 2, 3], "kind": ["a", "b", "a"]})
    points = alt.Chart(frame, title="Powers").mark_point().encode(x="x:Q", y="z:Q", color="kind:N")
    return points.transform_calculate(z="pow(datum.x, power)").add_params(slider)


def png_size(encoded: str) -> tuple[int, int]:
    """Width and height, as the header of the PNG has them."""
    return struct.unpack(">II", base64.b64decode(encoded)[16:24])


def test_a_chart_is_shown_live_and_as_a_still(chart: alt.Chart) -> None:
    setup_notebook()
    data, metadata = chart._repr_mimebundle_()
    assert set(data) == {LIVE, "image/png", "text/plain"}
    assert data[LIVE]["params"][0]["name"] == "power"
    width, height = png_size(data["image/png"])
    assert (width / 2, height / 2) == (metadata["image/png"]["width"], metadata["image/png"]["height"])
    assert data["text/plain"] == "<Chart: Powers; parameters: power>"


def test_in_colab_a_chart_is_html_that_needs_no_extension(
    chart: alt.Chart, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))
    data, _ = chart_bundle(chart.to_dict())
    assert set(data) == {"text/html", "image/png", "text/plain"}
    assert "pow(datum.x, power)" in data["text/html"]
    assert "vega-lite@5" in data["text/html"]  # fetched from the network


def test_figures_look_the_same_whatever_the_reader_had_set() -> None:
    mpl.rcParams.update({"font.size": 3, "lines.linestyle": ":", "axes.facecolor": "black"})
    setup_notebook()
    first = dict(mpl.rcParams)
    setup_notebook()
    assert dict(mpl.rcParams) == first
    assert mpl.rcParams["lines.linestyle"] == "-"
    assert mpl.rcParams["axes.facecolor"] == "white"


def test_title_axes_and_legend_are_named() -> None:
    figure, (left, right) = plt.subplots(1, 2)
    figure.suptitle("Two runs")
    left.plot([1, 2], label="post-norm")
    left.plot([2, 1], label="pre-norm")
    left.set(title="Loss", xlabel="update", ylabel="nats")
    left.legend()
    right.set_ylabel(r"$d_{model}$")
    assert describe_figure(figure) == "Two runs; Loss: nats over update (post-norm, pre-norm); d_model"


def test_a_readers_kernel_describes_figures_and_shows_the_sentence_of_a_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MPLBACKEND", raising=False)
    code = (
        "from annotated.plots import setup_notebook\nsetup_notebook()\nimport matplotlib.pyplot as plt",
        "plt.title('A line')\nplt.plot([1, 2])\nplt.show()",
        "def test_one(one):\n    assert one == 1, f'1 is wanted, not {one}'\n\ntest_one(2)",
        "assert plt is None",
    )
    notebook = new_notebook(cells=[new_code_cell(each) for each in code])
    NotebookClient(notebook, kernel_name="python3", allow_errors=True).execute()
    [drawn], [refused], [failed] = (cell.outputs for cell in notebook.cells[1:])
    assert drawn.metadata["image/png"]["alt"] == "A line"
    assert refused.traceback == ["AssertionError: 1 is wanted, not 2"]
    assert "run them first, in their order" in failed.traceback[-1]


def test_a_chart_may_have_more_rows_than_altair_lets_through() -> None:
    setup_notebook()
    chart = alt.Chart(pd.DataFrame({"x": range(6000)})).mark_point().encode(x="x:Q")
    assert len(next(iter(chart.to_dict()["datasets"].values()))) == 6000


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The Markdown texts that were displayed."""
    texts: list[str] = []
    monkeypatch.setattr("annotated.plots.notebook.display", lambda item: texts.append(item.data))
    return texts


def code_of(text: str) -> ast.Module:
    """The block of code in a Markdown text, parsed."""
    fence = "````" if "````" in text else "```"
    return ast.parse(text.split(f"{fence}python\n")[1].removesuffix(f"\n{fence}"))


def test_shown_source_is_the_source(shown: list[str]) -> None:
    show_source(masks.subsequent_mask, masks.clones)
    module = ast.parse(Path(masks.__file__).read_text(encoding="utf-8"))
    defined = {node.name: ast.dump(node) for node in module.body if hasattr(node, "name")}
    assert [text.partition("\n")[0] for text in shown] == ["`annotated/transformer/attention.py`"] * 2
    wanted = [defined["subsequent_mask"], defined["clones"]]
    assert [ast.dump(code_of(text).body[0]) for text in shown] == wanted


def test_shown_source_without_docstrings_has_all_but_those(shown: list[str]) -> None:
    items = [show_source, chart_bundle, masks.clones, masks.subsequent_mask]
    show_source(*items)
    show_source(*items, docstring=False)
    for whole, cut in zip(shown[:4], shown[4:], strict=True):
        nodes = [n for n in ast.walk(code_of(whole)) if isinstance(n, ast.FunctionDef | ast.ClassDef)]
        for node in nodes:
            if ast.get_docstring(node) is not None and len(node.body) > 1:
                del node.body[0]
        assert ast.unparse(nodes[0]) == ast.unparse(code_of(cut))
        assert len(cut) < len(whole)


def test_a_method_is_shown_at_the_margin(shown: list[str]) -> None:
    class Inner:
        def method(self) -> str:
            return "```"

    show_source(Inner.method)
    assert "````python\ndef method(self) -> str:\n" in shown[0]
    assert shown[0].partition("\n")[0].endswith("test_plots_notebook.py`")


def test_a_missing_library_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "annotated.plots.charts", raising=False)
    monkeypatch.delitem(vars(annotated.plots), "explore_masks", raising=False)  # what a replacement left
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(ModuleNotFoundError, match=r'altair is missing: pip install "\.\[notebooks\]"'):
        annotated.plots.explore_masks  # noqa: B018
