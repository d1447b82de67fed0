from itertools import pairwise

import torch

from annotated.search.cache import KeyValueCache
from annotated.transformer.attention import MultiHeadedAttention


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
