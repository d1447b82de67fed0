from itertools import pairwise

import pytest
import torch

from annotated.transformer.attention import MultiHeadedAttention
from annotated.transformer.cache import DecoderCache, KeyValueCache
from annotated.transformer.model import make_model


def test_a_growing_cache_seldom_moves_what_it_has():
    cache, places, expected = KeyValueCache(), [], torch.zeros(3, 2, 0, 4)
    for step in range(60):
        new = torch.randn(len(expected), 2, 1, 4)
        key, value = cache.extend(new, -new)
        expected = torch.cat([expected, new], dim=2)
        assert torch.equal(key, expected)
        assert torch.equal(value, -expected)
        places.append(cache.storage.data_ptr())
        if step == 50:
            rows = torch.tensor([2, 0])
            cache.select(rows)
            expected = expected[rows]
    assert len(cache) == 60
    moves = sum(a != b for a, b in pairwise(places))
    assert moves <= 5  # at 3, 7, 15 and 31 positions, and when rows were selected


def test_a_complete_cache_stands_in_for_keys_and_values():
    attend = MultiHeadedAttention(2, 8).double().eval()
    query, memory = torch.randn(3, 1, 8, dtype=torch.float64), torch.randn(3, 5, 8, dtype=torch.float64)
    cache = KeyValueCache(grows=False)
    assert not cache.complete
    first = attend(query, memory, memory, cache=cache)
    assert cache.complete
    torch.testing.assert_close(first, attend(query, memory, memory))
    again = attend(query, torch.full_like(memory, torch.nan), torch.full_like(memory, torch.nan), cache=cache)
    assert torch.equal(again, first)
    assert len(cache) == 5


def test_a_cache_is_of_one_batch_of_sentences():
    """Another of the same size would be decoded with the keys and values of the first."""
    model = make_model(9, 9, N=1, d_model=8, d_ff=8, h=2).eval()
    src, tgt = torch.tensor([[3, 4], [5, 6]]), torch.tensor([[1], [1]])
    memory, cache = model.encode(src, None), DecoderCache(1)
    model.decode(memory, None, tgt, None, cache)
    with pytest.raises(ValueError, match="a DecoderCache is of one batch"):
        model.decode(model.encode(src.flip(0), None), None, tgt, None, cache)
    rows = torch.tensor([1])
    cache.select(rows)
    model.decode(memory[rows], None, tgt[rows], None, cache)
    with pytest.raises(ValueError, match="a DecoderCache is of one batch"):
        model.decode(memory, None, tgt, None, cache)
