"""The names of "The Annotated Transformer" (2018 and 2022) come from `annotated`, with the same arguments."""

import inspect
import subprocess
import sys
from copy import deepcopy
from operator import attrgetter

import pytest
import torch
from torch import nn

import annotated

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


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_classic_name_takes_the_same_arguments(name: str) -> None:
    parameters = inspect.signature(attrgetter(name)(annotated)).parameters
    wanted = ARGUMENTS[name].split()
    assert list(parameters)[: len(wanted)] == wanted
    rest = list(parameters.values())[len(wanted) :]
    assert all(p.default is not p.empty or p.kind is p.VAR_KEYWORD for p in rest)


def test_a_model_built_as_that_post_builds_it_reads_and_searches() -> None:
    torch.manual_seed(0)
    attn, ff = annotated.MultiHeadedAttention(2, 8), annotated.PositionwiseFeedForward(8, 12, 0.1)
    position = annotated.PositionalEncoding(8, 0.1)
    model = annotated.EncoderDecoder(
        annotated.Encoder(annotated.EncoderLayer(8, deepcopy(attn), deepcopy(ff), 0.1), 2),
        annotated.Decoder(annotated.DecoderLayer(8, deepcopy(attn), deepcopy(attn), deepcopy(ff), 0.1), 2),
        nn.Sequential(annotated.Embeddings(8, 11), deepcopy(position)),
        nn.Sequential(annotated.Embeddings(8, 11), deepcopy(position)),
        annotated.Generator(8, 11),
    ).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    same = annotated.make_model(11, 11, N=2, d_model=8, d_ff=12, h=2).eval()
    same.load_state_dict(model.state_dict())

    src = torch.tensor([[1, 2, 3, 4]])
    batch = annotated.Batch(src, src, pad=0)
    inputs = batch.src, batch.tgt, batch.src_mask, batch.tgt_mask
    torch.testing.assert_close(model(*inputs), same(*inputs))
    asked = src, batch.src_mask, 6, 1
    assert torch.equal(annotated.greedy_decode(model, *asked), annotated.greedy_decode(same, *asked))
    assert annotated.beam_search(model, *asked) == annotated.beam_search(same, *asked)


def test_an_unknown_name_is_missing_from_the_module_that_the_user_wrote() -> None:
    with pytest.raises(AttributeError, match="annotated attribute checks"):
        annotated.checks  # type: ignore[attr-defined]  # noqa: B018


def test_the_package_imports_nothing_else_until_it_is_used() -> None:
    code = "import sys; before = {*sys.modules}; import annotated; print(*{*sys.modules} - before); "
    found = subprocess.check_output([sys.executable, "-c", code + "annotated.plots.plot_mask"], text=True)
    assert {name.partition(".")[0] for name in found.split()} - sys.stdlib_module_names == {
        "annotated",
        "lazy_loader",
    }
