"""The roofline: calls counted by hand, and the figure."""

import pytest
import torch
from torch.nn import functional as F

from annotated.plots.roofline import Operands, byte_shares, plot_roofline

pytest.importorskip("matplotlib")


def test_a_product_an_addition_and_a_view_are_counted() -> None:
    x, y = torch.ones(2, 3), torch.ones(3, 4)
    with Operands() as found:
        (x @ y).t().add(1)
    assert found.calls == [(True, 2 * 2 * 3 * 4, 4 * (6 + 12 + 8)), (False, 8, 4 * (8 + 8))]
    assert (found.total(1), found.total(1, [True]), found.total(2, [False])) == (56, 48, 64)


def test_a_look_up_reads_its_rows_not_the_table() -> None:
    table = torch.ones(1000, 4)
    with Operands() as found:
        F.embedding(torch.tensor([1, 2]), table)
    assert found.calls == [(False, 8, 2 * 2 * 4 * 4)]


def test_fused_attention_counts_as_its_two_products() -> None:
    heads = torch.ones(3, 1, 2, 5, 16)
    with Operands() as found:
        F.scaled_dot_product_attention(*heads)
    assert found.total(1, [True]) == 2 * (2 * 2 * 5 * 5 * 16)


def test_what_is_written_to_a_place_given_is_counted_once() -> None:
    x, y = torch.ones(2, 3), torch.ones(2, 2)
    with Operands() as found:
        torch.mm(x, x.t(), out=y)
    assert found.calls == [(True, 2 * 2 * 3 * 2, 4 * (6 + 6 + 4))]


def test_what_returns_nothing_counts_what_it_changes_or_not_at_all() -> None:
    weight = torch.nn.Parameter(torch.ones(8))
    weight.grad = torch.ones(8)
    optimizer = torch.optim.SGD([weight], fused=True)
    with Operands() as found:
        weight.grad[0].item()
        optimizer.step()
    assert found.calls[-1][1] >= 8
    assert all(done for _, done, _ in found.calls)
    assert found.total(2) >= 3 * 8 * 4  # reads weight and gradient, writes the weight


def test_the_roof_bends_at_the_ridge_point_alone() -> None:
    x = torch.ones(4)
    with Operands() as found:
        x.add(1)  # 4 operations, 32 bytes
    roof, below = plot_roofline(60e9, 10e9, {"1 row": (0.5, 4e9)}, {"a step": found})
    assert list(roof.lines[0].get_xdata()) == [2**-5, 6, 2**9]
    assert list(roof.lines[0].get_ydata()) == pytest.approx([10 / 32, 60, 60])
    assert list(roof.lines[2].get_ydata()) == [4]
    assert [text.get_text() for text in roof.texts] == ["1 row"]
    assert [bars.get_label() for bars in below.containers] == ["a step"]
    assert byte_shares(found)[:4] == [0, 0, 1, 0]  # from 1/8 to 1/4
