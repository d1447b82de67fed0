from itertools import pairwise

import torch

from annotated.search.cache import DecoderCache, KeyValueCache
from annotated.transformer.attention import MultiHeadedAttention, subsequent_mask


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


def test_select_takes_rows_in_any_order_and_twice():
    cache = DecoderCache(2)
    cache.select(torch.tensor([0]))  # an empty one has nothing to select from
    rows = torch.tensor([1, 1, 0])
    key = torch.randn(2, 3, 1, 4)
    for layer in cache.layers:
        for each in (layer.target, layer.memory):
            each.extend(key, -key)
    cache.select(rows)
    for layer in cache.layers:
        for each in (layer.target, layer.memory):
            assert torch.equal(each.key, key[rows])
            assert torch.equal(each.value, -key[rows])
    assert len(cache) == 1


def test_one_position_at_a_time_gives_what_all_at_once_gives():
    attend = MultiHeadedAttention(2, 8).double().eval()
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    cache = KeyValueCache()
    steps = [attend(x[:, i : i + 1], x[:, i : i + 1], x[:, i : i + 1], cache=cache) for i in range(5)]
    torch.testing.assert_close(torch.cat(steps, dim=1), attend(x, x, x, subsequent_mask(5)))


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
