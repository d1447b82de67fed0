"""The places of a batch, and the share of padding by way of batching."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from annotated.plots.padding import PADDING, TOKEN, plot_padding, plot_tokens, wasted_share

pytest.importorskip("matplotlib")


def test_a_case_worked_by_hand() -> None:
    # Two batches of 2 x 4 and 1 x 3 places; 4 + 1 + 3 of the 11 hold tokens.
    assert wasted_share([[4, 1], [3]]) == pytest.approx(3 / 11)


@given(st.lists(st.lists(st.integers(1, 50), min_size=1), min_size=1))
def test_it_is_what_padding_really_adds(batches: list[list[int]]) -> None:
    padded = [[1] * n + [0] * (max(batch) - n) for batch in batches for n in batch]
    zeros, places = sum(row.count(0) for row in padded), sum(map(len, padded))
    assert wasted_share(batches) == pytest.approx(zeros / places)


def test_a_bar_for_each_way() -> None:
    ax = plot_padding({"as they come": [[4, 1], [1, 4]], "sorted": [[1, 1], [4, 4]]})
    assert [bar.get_width() for bar in ax.containers[0]] == pytest.approx([100 * 6 / 16, 0])
    assert [text.get_text() for text in ax.texts] == ["37.5 %", "0.0 %"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["as they come", "sorted"]
    assert ax.get_xlabel() == "places wasted on padding (%)"


@pytest.mark.parametrize(
    ("ways", "message"),
    [
        ({"one": [[4, 1]], "other": [[4, 2]]}, r"'one': 5, 'other': 6"),
        ({"one": [[]]}, "at least one sentence"),
        ({"one": []}, "at least one sentence"),
        ({"one": [[0]]}, "tokens in it"),
        ({}, "every way"),
    ],
)
def test_what_cannot_be_compared_is_refused(ways, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plot_padding(ways)


def test_a_cell_for_each_place_grey_where_padding_stands() -> None:
    from matplotlib.colors import to_hex

    tokens = torch.tensor([[5, 6, 7], [8, 2, 2]])
    ax = plot_tokens(tokens, pad=2, names=[["a", "b", "c"], ["d", "-", "-"]])
    image = ax.images[0]
    colours = [[to_hex(cell) for cell in row] for row in image.cmap(image.norm(image.get_array()))]
    assert colours == [[TOKEN] * 3, [TOKEN, PADDING, PADDING]]
    written = {text.get_text(): text.get_position() for text in ax.texts}
    assert written == {"a": (0, 0), "b": (1, 0), "c": (2, 0), "d": (0, 1)}  # (column, row)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["token", "padding"]


def test_no_names_no_text() -> None:
    assert not plot_tokens(torch.tensor([[5, 2]]), pad=2).texts


def test_a_name_for_each_place() -> None:
    with pytest.raises(ValueError, match=r"1 rows of 2 tokens need as many names, not \[1\]"):
        plot_tokens(torch.tensor([[5, 2]]), pad=2, names=[["a"]])
