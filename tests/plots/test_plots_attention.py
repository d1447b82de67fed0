"""Attention weights, drawn and explored: what is shown, and that no token can stand on the wrong axis."""

import numpy as np
import pytest
import torch
from charts import drawn, marks, texts
from small_models import make

from annotated.plots import as_words, explore_attention, plot_attention
from annotated.translation.tokenizers import WordTokenizer
from annotated.translation.translator import Translator

QUERIES, KEYS = ["the", "cat", "saw"], ["die", "Katze", "hat", "gesehen"]


@pytest.fixture
def weights() -> torch.Tensor:
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).mul(3).softmax(dim=-1)


def labels(axis: object) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def test_queries_go_down_and_keys_across(weights: torch.Tensor) -> None:
    ax = plot_attention(weights, QUERIES, KEYS, title="One head")
    assert (ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) == ("One head", "key", "query")
    assert (labels(ax.yaxis), labels(ax.xaxis)) == (QUERIES, KEYS)
    assert ax.yaxis_inverted()  # the first query is at the top
    np.testing.assert_array_equal(ax.images[0].get_array(), weights.numpy())
    assert ax.images[0].get_clim() == (0, 1)  # a color means the same in every map


def test_numbers_stand_in_their_cells(weights: torch.Tensor) -> None:
    ax = plot_attention(weights, QUERIES, KEYS)
    drawn = {text.get_position()[::-1]: text.get_text() for text in ax.texts}
    large = {(t, s): f"{weights[t, s]:.2f}" for t in range(3) for s in range(4) if weights[t, s] >= 0.05}
    assert 0 < len(large) < 12
    assert drawn == large


def test_a_large_map_has_no_numbers() -> None:
    tokens = [str(n) for n in range(20)]
    assert not plot_attention(torch.full((20, 20), 0.05), tokens, tokens).texts


@pytest.mark.parametrize("shape", [(4, 3), (3, 3), (4, 4), (1, 3, 4)])
def test_weights_that_do_not_fit_the_tokens_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"3 queries \(down\) and 4 keys \(across\).*\(3, 4\)"):
        plot_attention(torch.zeros(shape), QUERIES, KEYS)


SRC, TGT = ["Ein", "Hund", "Hund"], ["<s>", "A"]
SIZES = {"encoder": (3, 3), "decoder": (2, 2), "cross": (2, 3)}


@pytest.fixture
def maps() -> dict[tuple[str, int], torch.Tensor]:
    """Two layers of two heads, every weight another number."""
    torch.manual_seed(0)
    return {(kind, layer): torch.rand(2, *size) for kind, size in SIZES.items() for layer in (0, 1)}


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("head", [0, 1])
@pytest.mark.parametrize(
    ("kind", "queries", "keys"), [("encoder", SRC, SRC), ("decoder", TGT, TGT), ("cross", TGT, SRC)]
)
def test_each_map_has_its_own_weights_and_tokens(
    maps, kind: str, queries: list[str], keys: list[str], layer: int, head: int
) -> None:
    chart = explore_attention(maps, SRC, TGT)
    seen = [mark for mark in marks(chart, kind=kind, layer=layer, head=head) if "weight" in mark]
    cells = {(int(mark["query"]), int(mark["key"])): mark for mark in seen}
    expected = maps[kind, layer][head]
    assert len(cells) == len(seen) == expected.numel()
    for (query, key), cell in cells.items():
        assert float(cell["weight"]) == pytest.approx(expected[query, key].item(), abs=6e-4)
        assert (cell["query_token"], cell["key_token"]) == (queries[query], keys[key])


def test_the_axes_name_the_tokens_of_the_map_that_is_shown(maps) -> None:
    chart = explore_attention(maps, SRC, TGT)
    shown = texts(chart, kind="cross")
    assert shown[shown.index("key") - 3 : shown.index("key")] == SRC
    assert shown[shown.index("query") - 2 : shown.index("query")] == TGT
    shown = texts(chart, kind="decoder", layer=0, head=1)
    assert shown[shown.index("key") - 2 : shown.index("key")] == TGT
    assert "decoder attention, layer 1, head 2" in shown
    legend = [float(text) for text in shown if text.replace(".", "").isdigit()]
    assert (min(legend), max(legend)) == (0, 1)  # whatever the map's weights
    assert not [part for part in drawn(chart, {}).iter() if "mark-rule" in part.get("class", "")]


def test_a_translator_shows_the_attention_of_a_sentence() -> None:
    source, target = WordTokenizer(["ein", "Hund"], None), WordTokenizer(["a", "dog"], None)
    translator = Translator(
        make(source.vocabulary[4:], target.vocabulary[4:], tied_embeddings="target"), source, target
    )
    seen = translator.attention("ein Hund", "a dog")
    expected = explore_attention(seen.maps, seen.src_tokens, seen.tgt_tokens)
    assert marks(translator.show_attention("ein Hund", "a dog")) == marks(expected)


def test_the_menus_offer_what_there_is(maps) -> None:
    params = {param["name"]: param for param in explore_attention(maps, SRC, TGT).to_dict()["params"]}
    offered = {name: params[name]["bind"]["options"] for name in ("kind", "layer", "head")}
    assert offered == {"kind": ["encoder", "decoder", "cross"], "layer": [0, 1], "head": [0, 1]}
    assert [params[name]["bind"]["labels"] for name in ("layer", "head")] == [["1", "2"], ["1", "2"]]
    assert [params[name]["value"] for name in ("kind", "layer", "head")] == ["cross", 1, 0]


@pytest.mark.parametrize(
    ("maps", "message"),
    [
        ({("cross", 0): torch.rand(2, 3, 2)}, r"2 queries \(down\) and 3 keys"),  # the two sides swapped
        ({("encoder", 0): torch.rand(2, 2, 2)}, "3 queries"),
        ({}, "no map"),
    ],
)
def test_maps_that_cannot_be_explored_are_refused(maps, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        explore_attention(maps, SRC, TGT)


def test_pieces_are_written_as_words() -> None:
    """Without the sign of a space, a dot where a word goes on; words of another kind stay as they are."""
    pieces = ["<s>", "▁Ein", "▁Schnee", "mann", ".", "</s>"]
    words = ["start", "Ein", "Schnee", "·mann", ".", "end"]
    assert labels(plot_attention(torch.full((6, 6), 1 / 6), pieces, pieces).xaxis) == words
    assert as_words(["<s>", "cat", "."]) == ["<s>", "cat", "."]
