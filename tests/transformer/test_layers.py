import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annotated.transformer.layers import Embeddings, PositionwiseFeedForward, SublayerConnection
from annotated.transformer.positions import LearnedPositions, PositionalEncoding, sinusoids


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("activation", "formula"),
    [
        ("relu", lambda z: max(z, 0.0)),
        ("gelu", lambda z: z * (1 + math.erf(z / math.sqrt(2))) / 2),
        ("swish", lambda z: z / (1 + math.exp(-z))),
    ],
)
def test_feed_forward_is_equation_2(activation, formula):
    ff = PositionwiseFeedForward(3, 5, activation=activation).double().eval()
    x = torch.randn(2, 4, 3, dtype=torch.float64)
    inner = x @ ff.w_1.weight.T + ff.w_1.bias
    expected = inner.detach().clone().apply_(formula) @ ff.w_2.weight.T + ff.w_2.bias
    torch.testing.assert_close(ff(x), expected)


def test_feed_forward_drops_what_the_activation_gives():
    ff = PositionwiseFeedForward(2, 2000, dropout=0.5, activation="gelu")
    seen = []
    ff.w_2.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    nn.init.zeros_(ff.w_1.weight)
    nn.init.ones_(ff.w_1.bias)
    ff(torch.randn(1, 2))
    assert 800 < (seen[0] == 0).sum() < 1200
    torch.testing.assert_close(seen[0].max(), 2 * F.gelu(torch.tensor(1.0)))


def test_embeddings_are_rows_times_the_root_of_the_width():
    embed = Embeddings(16, 7)
    tokens = torch.tensor([[3, 0], [6, 3]])
    assert torch.equal(embed(tokens), embed.lut.weight[tokens] * 4)


@pytest.mark.parametrize("d_model", [8, 7, 1])
def test_sinusoids_are_the_formula_of_section_3_5(d_model):
    table = sinusoids(5001, d_model)
    assert (table.dtype, table.shape) == (torch.float32, (5001, d_model))
    for pos in (*range(60), 4999, 5000):  # angles in float32 would be off at the last
        for column in range(d_model):
            angle = pos / 10000 ** (2 * (column // 2) / d_model)
            expected = math.cos(angle) if column % 2 else math.sin(angle)
            assert abs(table[pos, column].item() - expected) < 1e-7


def test_positions_are_added_from_where_they_start():
    positions = PositionalEncoding(6, 0.0, max_len=20)
    x = torch.randn(2, 5, 6)
    assert torch.equal(positions(x), x + sinusoids(20, 6)[:5])
    assert torch.equal(positions(x, start=7), x + sinusoids(20, 6)[7:12])


@pytest.mark.parametrize(("start", "length"), [(0, 11), (9, 3), (300, 1)])
def test_positions_grow_when_a_sentence_needs_them(start, length):
    small, large = PositionalEncoding(6, 0.0, max_len=10), PositionalEncoding(6, 0.0, max_len=400)
    x = torch.randn(2, length, 6)
    assert torch.equal(small(x, start), large(x, start))
    assert torch.equal(small(x, start), large(x, start))
    assert small.state_dict() == {}  # nothing of it is a weight


@pytest.mark.parametrize("kind", [PositionalEncoding, LearnedPositions])
def test_dropout_comes_after_the_sum(kind):
    x = torch.full((1, 500, 4), 5.0)  # a sum is never 0
    out = kind(4, 0.5, 500)(x)
    assert 800 < (out == 0).sum() < 1200


def test_learned_positions_are_rows_and_have_an_end():
    positions = LearnedPositions(4, 0.0, max_len=6)
    x = torch.randn(2, 3, 4)
    assert torch.equal(positions(x, start=2), x + positions.lut.weight[2:5])
    with pytest.raises(ValueError, match="7 positions asked for, but only max_len=6"):
        positions(x, start=4)


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_sublayer_is_wrapped_as_the_formula_says(norm_first):
    wrap = SublayerConnection(6, 0.0, norm_first, nn.LayerNorm(6, eps=0.1))
    torch.nn.init.normal_(wrap.norm.weight)
    x = torch.randn(2, 3, 6)

    def norm(y):
        return F.layer_norm(y, (6,), wrap.norm.weight, wrap.norm.bias, 0.1)

    expected = x + norm(x).square() if norm_first else norm(x + x.square())
    torch.testing.assert_close(wrap(x, torch.square), expected)
