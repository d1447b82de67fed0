"""Pictures of masks: the grid, and the explorer whose rows one can point at."""

import xml.etree.ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest
import torch
import vl_convert

from annotated.batches import Batch, padding_mask
from annotated.plots import explore_masks, plot_mask
from annotated.plots.figures import ALLOWED, HIDDEN
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


@pytest.mark.parametrize("mask", [CAUSAL.numpy(), CAUSAL.tolist()], ids=["array", "lists"])
def test_masks_that_are_no_tensors_and_tokens_that_are_ids_are_drawn(mask) -> None:
    ax = plot_mask(mask, [5, 6, 7, 8], [5, 6, 7, 8])
    np.testing.assert_array_equal(ax.images[0].get_array(), CAUSAL.numpy())
    assert [label.get_text() for label in ax.xaxis.get_ticklabels()] == ["5", "6", "7", "8"]


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
    image = plot_mask(PADDED, ["a", "b"], TOKENS).images[0]
    np.testing.assert_array_equal(image.get_array(), PADDED.expand(2, 4).numpy())


def test_the_masks_of_one_sentence_are_drawn_as_they_are() -> None:
    tokens = torch.tensor([[5, 6, 7, 0]])
    for mask in (subsequent_mask(4), padding_mask(tokens, 0), Batch.make_std_mask(tokens, 0)):
        drawn = plot_mask(mask).images[0].get_array()
        np.testing.assert_array_equal(drawn, mask[0].numpy())


def test_without_tokens_positions_stand_on_the_axes() -> None:
    ax = plot_mask(CAUSAL[:3])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0", "1", "2"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "1", "2", "3"]
    assert [label.get_text() for label in plot_mask(PADDED, keys=TOKENS).get_xticklabels()] == TOKENS
    with pytest.raises(ValueError, match=r"not \(2, 3, 4, 4\)"):
        plot_mask(CAUSAL.expand(2, 3, 4, 4))


@pytest.mark.parametrize(
    ("mask", "reason"),
    [
        (CAUSAL.float(), "torch.bool"),
        (CAUSAL[:, :3], r"\(4, 4\)"),
        (CAUSAL[:3], r"\(4, 4\)"),
        (CAUSAL.expand(2, 4, 4), r"\(4, 4\)"),
    ],
)
def test_what_is_no_mask_of_these_tokens_is_refused(mask: torch.Tensor, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        plot_mask(mask, TOKENS, TOKENS)
    with pytest.raises(ValueError, match=reason):
        explore_masks({"any": mask}, TOKENS, TOKENS)


def test_the_explorer_has_the_cells_of_each_mask_and_one_bright_row() -> None:
    masks = {"padding": PADDED, "causal": CAUSAL}
    chart = explore_masks(masks, TOKENS, TOKENS, query=2)
    found = chart.to_dict()["data"]["values"]
    assert len(found) == 32
    for cell in found:
        allowed = masks[cell["mask"]].expand(4, 4)[cell["query"], cell["key"]]
        assert cell["may"] == ("may attend" if allowed else "hidden")
        assert (cell["looking"], cell["at"]) == (TOKENS[cell["query"]], TOKENS[cell["key"]])
    page = ET.fromstring(vl_convert.vegalite_to_svg(chart.to_dict()))
    cells = [part for part in page.iter() if part.get("aria-roledescription") == "rect mark"]
    bright = [cell.get("aria-label") for cell in cells if float(cell.get("opacity", 1)) == 1]
    assert len(cells) == 32
    assert len(bright) == 8
    assert all("query: 2" in label or "query: the" in label for label in bright)
    assert not [part for part in page.iter() if "mark-rule" in part.get("class", "")]  # cells, no ruler
