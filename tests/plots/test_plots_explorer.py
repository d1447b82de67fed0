"""The attention explorer: what stands on its axes and in its cells at each setting of the menus."""

import json

import pytest
import torch
from charts import marks, texts

from annotated.plots.explorer import explore_attention

pytest.importorskip("altair")

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


def test_the_menus_offer_what_there_is(maps) -> None:
    params = {param["name"]: param for param in explore_attention(maps, SRC, TGT).to_dict()["params"]}
    offered = {name: params[name]["bind"]["options"] for name in ("kind", "layer", "head")}
    assert offered == {"kind": ["encoder", "decoder", "cross"], "layer": [0, 1], "head": [0, 1]}
    assert [params[name]["bind"]["labels"] for name in ("layer", "head")] == [["1", "2"], ["1", "2"]]
    assert [params[name]["value"] for name in ("kind", "layer", "head")] == ["cross", 1, 0]


def test_the_chart_is_the_same_each_time_and_needs_no_kernel(maps) -> None:
    spec = explore_attention(maps, SRC, TGT).to_json()
    assert spec == explore_attention(maps, SRC, TGT).to_json()
    assert '"url"' not in json.dumps(json.loads(spec)["layer"])


def test_one_kind_alone_is_enough() -> None:
    chart = explore_attention({("encoder", 0): torch.rand(1, 3, 3)}, SRC, TGT)
    assert "encoder attention, layer 1, head 1" in texts(chart)


@pytest.mark.parametrize(
    ("maps", "message"),
    [
        ({("cross", 0): torch.rand(2, 3, 2)}, r"2 queries \(down\) and 3 keys"),  # the two sides swapped
        ({("encoder", 0): torch.rand(2, 2, 2)}, "3 queries"),
        ({("cross", 0): torch.rand(2, 3)}, r"must be \(h, queries, keys\)"),
        ({("other", 0): torch.rand(2, 2, 3)}, "not 'other'"),
        ({}, "at least one map"),
    ],
)
def test_what_cannot_be_drawn_is_refused(maps, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        explore_attention(maps, SRC, TGT)
