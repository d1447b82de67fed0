"""Pictures of masks: the grid, and the explorer whose rows one can point at."""

import matplotlib as mpl
import numpy as np
import pytest
import torch

from annotated.plots import explore_masks, plot_mask
from annotated.plots.heatmaps import ALLOWED, HIDDEN
from annotated.transformer.attention import subsequent_mask

TOKENS = ["<s>", "the", "the", "<blank>"]
CAUSAL = subsequent_mask(4)[0]
PADDED = torch.tensor([[True, True, True, False]])


def test_the_grid_is_the_mask_query_down_and_key_across() -> None:
    ax = plot_mask(CAUSAL, TOKENS, TOKENS, title="causal")
    np.testing.assert_array_equal(ax.images[0].get_array(), CAUSAL.numpy())
    assert ax.yaxis_inverted()
    assert (ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) == ("causal", "key", "query")
    for axis in (ax.xaxis, ax.yaxis):
        assert [label.get_text() for label in axis.get_ticklabels()] == TOKENS


def test_colours_mean_what_the_legend_says() -> None:
    ax = plot_mask(CAUSAL, TOKENS, TOKENS)
    legend = ax.get_legend()
    meaning = {
        text.get_text(): patch.get_facecolor()
        for text, patch in zip(legend.get_texts(), legend.get_patches(), strict=True)
    }
    image = ax.images[0]
    assert tuple(image.cmap(image.norm(1))) == meaning["may attend"] == mpl.colors.to_rgba(ALLOWED)
    assert tuple(image.cmap(image.norm(0))) == meaning["hidden"] == mpl.colors.to_rgba(HIDDEN)


@pytest.mark.parametrize("allowed", [True, False])
def test_a_mask_of_one_kind_keeps_its_colour(allowed: bool) -> None:
    image = plot_mask(torch.full((4, 4), allowed), TOKENS, TOKENS).images[0]
    color = image.cmap(image.norm(image.get_array()))[0, 0]
    np.testing.assert_allclose(color, mpl.colors.to_rgba(ALLOWED if allowed else HIDDEN))


def test_one_row_serves_every_query() -> None:
    image = plot_mask(PADDED, TOKENS, TOKENS).images[0]
    np.testing.assert_array_equal(image.get_array(), PADDED.expand(4, 4).numpy())


def test_keys_and_queries_may_be_of_different_number() -> None:
    ax = plot_mask(PADDED, ["a", "b"], TOKENS)
    assert ax.images[0].get_array().shape == (2, 4)


def test_without_tokens_positions_stand_on_the_axes() -> None:
    ax = plot_mask(CAUSAL[:3])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0", "1", "2"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "1", "2", "3"]
    assert [label.get_text() for label in plot_mask(PADDED, keys=TOKENS).get_xticklabels()] == TOKENS
    with pytest.raises(ValueError, match=r"torch.bool"):
        plot_mask(CAUSAL.float())
    with pytest.raises(ValueError, match=r"not \(2, 3, 4, 4\)"):
        plot_mask(CAUSAL.expand(2, 3, 4, 4))


@pytest.mark.parametrize(
    ("mask", "reason"),
    [
        (CAUSAL.float(), "torch.bool"),
        (CAUSAL[:, :3], r"\(4, 4\)"),
        (CAUSAL[:3], r"\(4, 4\)"),
        (CAUSAL.unsqueeze(0), r"\(4, 4\)"),
    ],
)
def test_what_is_no_mask_of_these_tokens_is_refused(mask: torch.Tensor, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        plot_mask(mask, TOKENS, TOKENS)
    with pytest.raises(ValueError, match=reason):
        explore_masks({"any": mask}, TOKENS, TOKENS)


@pytest.fixture
def spec() -> dict:
    masks = {"padding": PADDED, "causal": CAUSAL}
    return explore_masks(masks, TOKENS, TOKENS, query=2).to_dict()


def rows(spec: dict, layer: dict) -> list[dict]:
    return spec["datasets"][layer["data"]["name"]]


def test_the_explorer_has_the_cells_of_each_mask(spec: dict) -> None:
    assert [panel["title"] for panel in spec["hconcat"]] == ["padding", "causal"]
    for panel, mask in zip(spec["hconcat"], (PADDED.expand(4, 4), CAUSAL), strict=True):
        drawn = torch.zeros(4, 4, dtype=torch.bool)
        for row in rows(spec, panel["layer"][0]):
            drawn[row["query"], row["key"]] = row["may"] == "may attend"
            assert (row["looking"], row["at"]) == (TOKENS[row["query"]], TOKENS[row["key"]])
        assert len(rows(spec, panel["layer"][0])) == 16
        assert (drawn == mask).all()


def test_the_explorer_spells_out_what_a_query_sees(spec: dict) -> None:
    sentences = rows(spec, spec["hconcat"][1]["layer"][1])
    assert [row["words"] for row in sentences] == [" ".join(TOKENS[: n + 1]) for n in range(4)]
    assert sentences[1]["says"] == "“the” sees"


def test_the_explorer_says_so_where_a_query_sees_nothing() -> None:
    spec = explore_masks({"empty": torch.zeros(1, 2).bool()}, ["a", "b"], ["c", "d"]).to_dict()
    assert rows(spec, spec["hconcat"][0]["layer"][1])[0]["words"] == "nothing"


def test_axes_of_the_explorer_put_query_down_key_across_with_their_tokens() -> None:
    spec = explore_masks({"one": torch.ones(2, 3).bool()}, ["a", "b"], ["c", "d", "e"]).to_dict()
    encoding = spec["hconcat"][0]["layer"][0]["encoding"]
    assert (encoding["x"]["field"], encoding["x"]["title"]) == ("key", "key")
    assert (encoding["y"]["field"], encoding["y"]["title"]) == ("query", "query")
    assert encoding["x"]["axis"]["labelExpr"] == '["c", "d", "e"][datum.value]'
    assert encoding["y"]["axis"]["labelExpr"] == '["a", "b"][datum.value]'
    assert encoding["color"]["scale"] == {"domain": ["may attend", "hidden"], "range": [ALLOWED, HIDDEN]}


def test_one_named_selection_moves_all_panels(spec: dict) -> None:
    (chosen,) = spec["params"]
    assert (chosen["name"], chosen["select"]["fields"], chosen["value"]) == (
        "query",
        ["query"],
        [{"query": 2}],
    )
    assert len(chosen["views"]) == len(set(chosen["views"])) == 2
    for panel in spec["hconcat"]:
        cells, *sentences = panel["layer"]
        assert cells["encoding"]["opacity"]["condition"]["param"] == "query"
        assert {layer["transform"][0]["filter"]["param"] for layer in sentences} == {"query"}


def test_an_explorer_is_the_same_each_time() -> None:
    made = [explore_masks({"causal": CAUSAL}, TOKENS, TOKENS).to_dict() for _ in range(2)]
    assert made[0] == made[1]


@pytest.mark.parametrize(("masks", "query"), [({}, 0), ({"causal": CAUSAL}, 4), ({"causal": CAUSAL}, -1)])
def test_no_mask_or_no_such_query_is_refused(masks: dict[str, torch.Tensor], query: int) -> None:
    with pytest.raises(ValueError, match=f"from 0 to 3, not {query}"):
        explore_masks(masks, TOKENS, TOKENS, query=query)


pytest.importorskip("matplotlib")
