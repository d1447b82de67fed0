"""The table of the Annotated Transformer's names: ours are there, a kept name takes the same arguments."""

import inspect
from collections import Counter

import pytest

from sources import classic_names, find

NAMES = classic_names()

# The arguments that a reader of that post (2022) types, in their order.
ARGUMENTS = {
    "EncoderDecoder": "encoder decoder src_embed tgt_embed generator",
    "Generator": "d_model vocab",
    "Encoder": "layer N",
    "Decoder": "layer N",
    "EncoderLayer": "size self_attn feed_forward dropout",
    "DecoderLayer": "size self_attn src_attn feed_forward dropout",
    "clones": "module N",
    "SublayerConnection": "size dropout",
    "subsequent_mask": "size",
    "attention": "query key value mask dropout",
    "MultiHeadedAttention": "h d_model dropout",
    "PositionwiseFeedForward": "d_model d_ff dropout",
    "Embeddings": "d_model vocab",
    "PositionalEncoding": "d_model dropout max_len",
    "make_model": "src_vocab tgt_vocab N d_model d_ff h dropout",
    "Batch": "src tgt pad",
    "Batch.make_std_mask": "tgt pad",
    "TrainState": "step accum_step samples tokens",
    "run_epoch": "data_iter model loss_compute optimizer scheduler mode accum_iter train_state",
    "rate": "step model_size factor warmup",
    "LabelSmoothing": "size padding_idx smoothing",
    "data_gen": "V batch_size nbatches",
    "SimpleLossCompute": "generator criterion",
    "greedy_decode": "model src src_mask max_len start_symbol",
}


def test_no_name_is_listed_twice() -> None:
    counts = Counter(name.theirs for name in NAMES)
    assert [name for name, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("name", [name for name in NAMES if name.ours], ids=lambda name: name.theirs)
def test_what_the_table_names_is_there(name) -> None:
    assert find(name.ours) is not None


def test_a_name_without_a_place_here_says_why() -> None:
    assert [name.theirs for name in NAMES if not name.ours and not name.remark] == []


def test_every_name_of_the_same_name_is_checked() -> None:
    same = {name.theirs for name in NAMES if name.ours.endswith(f".{name.theirs}")}
    assert same == ARGUMENTS.keys()


@pytest.mark.parametrize("theirs", ARGUMENTS)
def test_the_same_name_takes_the_same_arguments(theirs: str) -> None:
    [ours] = [find(name.ours) for name in NAMES if name.theirs == theirs]
    names = list(inspect.signature(ours).parameters)
    wanted = ARGUMENTS[theirs].split()
    assert names[: len(wanted)] == wanted
    rest = list(inspect.signature(ours).parameters.values())[len(wanted) :]
    assert all(p.default is not p.empty or p.kind is p.VAR_KEYWORD for p in rest)


@pytest.mark.parametrize("nothing", ["masks.Batches", "mask.Batch", "Batch.trg"])
def test_nothing_is_not_found(nothing: str) -> None:
    with pytest.raises((ImportError, AttributeError)):
        find(nothing)
