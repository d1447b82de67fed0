import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from annotated import Batch, data_gen
from annotated.translation.data import EncodedPairs, TokenBatches


def pairs_of(lengths):
    """Pairs of the given (source, target) lengths, each recognisable by its tokens."""
    src = [[10 + i] * (a - 1) + [1] for i, (a, b) in enumerate(lengths)]
    tgt = [[0] + [10 + i] * (b - 2) + [1] for i, (a, b) in enumerate(lengths)]
    return EncodedPairs(src, tgt, [1000 + i for i in range(len(lengths))], "made up")


def plan(batches, epoch):
    """The batches of an epoch as lists."""
    return [indices.tolist() for indices in batches.plan(epoch)]


def random_pairs(count, longest=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    src = torch.randint(1, longest, (count,), generator=generator)
    tgt = (src + torch.randint(-3, 4, (count,), generator=generator)).clamp(2, longest)
    return pairs_of(list(zip(src.tolist(), tgt.tolist(), strict=True)))


LENGTHS = st.lists(st.tuples(st.integers(1, 12), st.integers(2, 13)), min_size=1, max_size=60)


@settings(deadline=None)
@given(LENGTHS, st.integers(12, 80), st.booleans(), st.integers(0, 5))
def test_every_pair_once_an_epoch_and_no_batch_too_large(lengths, max_tokens, shuffle, epoch):
    batches = TokenBatches(pairs_of(lengths), max_tokens, shuffle=shuffle)
    plan = batches.plan(epoch)
    assert sorted(i for batch in plan for i in batch) == list(range(len(lengths)))
    assert len(plan) == len(batches)
    for indices in plan:
        batch = batches.collate(indices)
        assert max(batch.src.numel(), batch.tgt.numel()) <= max_tokens


@settings(deadline=None)
@given(LENGTHS)
def test_collate_pads_on_the_right(lengths):
    pairs = pairs_of(lengths)
    batches = TokenBatches(pairs, 40)
    for indices, batch in zip(batches.plan(3), batches.epoch(3), strict=True):
        assert batch.src.dtype == batch.tgt.dtype == torch.int64
        for row, i in enumerate(indices):
            src, tgt = pairs.src[i], pairs.tgt[i]
            assert batch.src[row].tolist() == src + [2] * (batch.src.size(1) - len(src))
            assert batch.tgt[row, : len(tgt) - 1].tolist() == tgt[:-1]
            assert batch.tgt_y[row].tolist() == tgt[1:] + [2] * (batch.tgt.size(1) + 1 - len(tgt))
        assert batch.src.size(1) == max(len(pairs.src[i]) for i in indices)
        assert batch.ntokens == sum(len(pairs.tgt[i]) - 1 for i in indices)


def test_batches_are_tight():
    pairs = random_pairs(3000)
    batches = TokenBatches(pairs, 1000)
    widths = [max(len(src), len(tgt) - 1) for src, tgt in zip(pairs.src, pairs.tgt, strict=True)]
    assert len(batches) <= 1.05 * math.ceil(sum(widths) / 1000)


def test_long_and_short_batches_come_in_random_order():
    batches = TokenBatches(random_pairs(500), 200)
    orders = [[len(batch) for batch in batches.plan(epoch)] for epoch in range(2)]
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]
    rises = sum(one < two for one, two in zip(orders[0], orders[0][1:], strict=False))
    falls = sum(one > two for one, two in zip(orders[0], orders[0][1:], strict=False))
    assert min(rises, falls) > len(batches) / 4  # sorted by length, one of them would be 0


def test_the_order_follows_from_seed_and_epoch_alone():
    pairs = random_pairs(500)
    first = TokenBatches(pairs, 200, seed=7)
    again = TokenBatches(pairs, 200, seed=7)
    torch.rand(3)  # the global random stream plays no part
    assert plan(again, 5) == plan(first, 5)
    assert plan(again, 4) != plan(first, 5)
    assert plan(TokenBatches(pairs, 200, seed=8), 5) != plan(first, 5)
    sorted_by_length = TokenBatches(pairs, 200, shuffle=False)
    assert plan(sorted_by_length, 0) == plan(sorted_by_length, 1)


def test_sentences_of_one_length_meet_others_in_each_epoch():
    batches = TokenBatches(pairs_of([(5, 6)] * 40), 50)
    one, other = ({frozenset(batch) for batch in plan(batches, epoch)} for epoch in range(2))
    assert one != other


def test_a_pair_that_fits_no_batch_is_named():
    with pytest.raises(ValueError, match=r"made up, line 1001: 9 tokens do not fit .*max_tokens=8"):
        TokenBatches(pairs_of([(2, 2), (9, 3), (3, 3)]), 8)
    assert len(TokenBatches(pairs_of([(2, 2), (9, 3), (3, 10)]), 9)) == 3


@pytest.mark.parametrize("tokens", [[[3, 4]], torch.tensor([3, 4])])
@pytest.mark.parametrize("side", ["src", "tgt"])
def test_tokens_that_are_no_batch_are_refused(tokens, side):
    with pytest.raises(ValueError, match=f"{side} must be a tensor"):
        Batch(**{"src": torch.tensor([[3, 4]]), side: tokens})


def test_the_copy_task():
    made = list(data_gen(V=5, batch_size=64, nbatches=2))
    assert len(made) == 2
    for batch in made:
        assert batch.src.shape == (64, 10)
        assert set(batch.src.unique().tolist()) == {1, 2, 3, 4}
        assert (batch.src[:, 0] == 1).all()
        assert torch.equal(torch.cat([batch.tgt, batch.tgt_y[:, -1:]], dim=1), batch.src)
        assert batch.ntokens == 64 * 9
    assert not torch.equal(made[0].src, made[1].src)
