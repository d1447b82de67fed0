"""Tokens of a stranger's model are drawn as they are: they run nothing in a page and are no formula."""

import sys
from pathlib import Path
from types import ModuleType

import altair as alt
import pytest
import torch
from charts import texts

from annotated.plots import explore_attention, plot_attention
from annotated.plots.notebook import chart_bundle

STRANGE = ["</script><script>alert(1)</script>", "<!--<script>", "$$", r"$\foo$", "$a$", '"quoted\\"']
PLAIN = [f"token{i}" for i in range(len(STRANGE))]
SIZE = len(STRANGE)


def explorer(tokens: list[str]) -> alt.LayerChart:
    weights = torch.full((1, SIZE, SIZE), 1 / SIZE)
    return explore_attention({("cross", 0): weights}, tokens, tokens)


def elements(page: str) -> list[int]:
    """Count whatever opens or closes a script or a comment."""
    return [page.lower().count(mark) for mark in ("<script", "</script", "<!--")]


@pytest.mark.filterwarnings("ignore:Automatically deduplicated")
def test_no_token_runs_as_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))
    pages = []
    for tokens in (STRANGE, PLAIN):
        chart = explorer(tokens)
        chart.save(tmp_path / "chart.html")
        saved = (tmp_path / "chart.html").read_text(encoding="utf-8")
        pages.append([saved, chart.to_html(), chart_bundle(chart.to_dict())[0]["text/html"]])
    for strange, plain in zip(*pages, strict=True):
        assert elements(strange) == elements(plain)


def test_the_tokens_are_read_as_they_are() -> None:
    drawn = texts(explorer(STRANGE))
    assert [drawn.count(token) for token in STRANGE[1:]] == [2] * (SIZE - 1)
    assert sum(text.startswith("</script><script>") for text in drawn) == 2  # too long for the axis


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_dollar_begins_no_formula(dtype: torch.dtype) -> None:
    ax = plot_attention(torch.full((SIZE, SIZE), 0.25, dtype=dtype), STRANGE, STRANGE)
    ax.figure.canvas.draw()
    assert [label.get_text() for label in ax.get_xticklabels()] == STRANGE
    assert {text.get_text() for text in ax.texts} == {"0.25"}
