import torch
from hypothesis import given, settings, strategies as st

from annotated.batches import Batch

PAD = 2
tokens = st.integers(0, 6)


@settings(deadline=None)
@given(st.lists(st.lists(tokens, min_size=5, max_size=5), min_size=1, max_size=4))
def test_a_target_position_sees_just_the_real_tokens_up_to_itself(rows):
    mask = Batch.make_std_mask(torch.tensor(rows), PAD)
    assert mask.tolist() == [
        [[key <= query and row[key] != PAD for key in range(5)] for query in range(5)] for row in rows
    ]


def test_a_batch_shifts_the_target_by_one():
    src = torch.tensor([[5, 6, 1], [7, 1, PAD]])
    tgt = torch.tensor([[0, 8, 9, 1], [0, 9, 1, PAD]])
    batch = Batch(src, tgt, PAD)
    assert batch.src is src
    assert batch.src_mask.tolist() == [[[True, True, True]], [[True, True, False]]]
    assert batch.tgt.tolist() == [[0, 8, 9], [0, 9, 1]]
    assert batch.tgt_y.tolist() == [[8, 9, 1], [9, 1, PAD]]
    assert batch.tgt_mask.shape == (2, 3, 3)
    assert batch.ntokens == 5


def test_a_batch_moves_as_a_whole():
    tgt = torch.tensor([[0, 8, 1]])
    batch = Batch(tgt, tgt)
    assert batch.to("meta") is batch
    for name in ("src", "src_mask", "tgt", "tgt_y", "tgt_mask"):
        assert getattr(batch, name).device.type == "meta", name
