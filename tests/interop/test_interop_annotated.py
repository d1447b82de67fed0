"""Checkpoints of the Annotated Transformer, against a Transformer in its manner."""

import pytest
import torch
from check.right import classic
from interop_models import Bomb, classic_state, shaken

from annotated.batches import padding_mask
from annotated.transformer.attention import subsequent_mask
from annotated.transformer.positions import sinusoids
from annotated.translation.interop import load_classic

D = 12


def theirs(h=3):
    """That model with no weight left at zero or one."""
    model = classic.make_model(9, 11, N=2, d_model=D, d_ff=20, h=h)
    for table in (model.src_embed[1], model.tgt_embed[1]):
        table.pe = table.pe[:, :50]
    return shaken(model)


@pytest.fixture
def state():
    return classic_state(theirs())


def batch():
    src = torch.tensor([[0, 4, 5, 8, 1], [0, 6, 1, 2, 2]])
    tgt = torch.tensor([[0, 10, 5, 6], [0, 7, 8, 9]])
    return src, tgt, padding_mask(src, 2), subsequent_mask(4)


def log_probs(model, *inputs):
    with torch.no_grad():
        return model.generator(model(*inputs)).double()


@pytest.mark.parametrize("h", [1, 3])
def test_it_computes_what_that_model_does(state, h):
    found = log_probs(load_classic(state, h=h), *batch())
    torch.testing.assert_close(found, log_probs(theirs(h), *batch()), atol=1e-4, rtol=0)


def test_a_pickle_is_never_opened(tmp_path):
    torch.save({"weight": Bomb(tmp_path / "exploded")}, tmp_path / "bomb.pt")
    with pytest.raises(ValueError, match="is not a file of tensors"):
        load_classic(tmp_path / "bomb.pt")
    assert not (tmp_path / "exploded").exists()
    torch.load(tmp_path / "bomb.pt", weights_only=False)
    assert (tmp_path / "exploded").exists()  # the bomb does work


FIRST = "src_embed.0.lut.weight"


def flipped(content, state):
    place = content.index(state[FIRST].numpy().tobytes())
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda content, _: b"", "is not a file of tensors"),
        (lambda content, _: content[:-1], "is not a file of tensors"),
        (flipped, "is damaged"),
    ],
)
def test_a_damaged_file_is_named(damage, says, state, tmp_path):
    torch.save(state, tmp_path / "cut.pt")
    (tmp_path / "cut.pt").write_bytes(damage((tmp_path / "cut.pt").read_bytes(), state))
    with pytest.raises(ValueError, match=rf"cut\.pt {says}"):
        load_classic(tmp_path / "cut.pt", h=3)


def test_a_file_of_before_archives_is_read(state, tmp_path):
    """As PyTorch of 2018 wrote it; embeddings that are one tensor stand in it once."""
    state["tgt_embed.0.lut.weight"] = state["generator.proj.weight"]
    torch.save(state, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    model = load_classic(tmp_path / "old.pt", h=3)
    torch.testing.assert_close(log_probs(model, *batch()), log_probs(load_classic(state, h=3), *batch()))


LAYER_0 = "encoder.layers.0.feed_forward.w_1.weight"


@pytest.mark.parametrize(
    "name", [FIRST, "decoder.norm.b_2", "generator.proj.bias", "src_embed.1.pe", LAYER_0]
)
def test_a_missing_tensor_is_named(state, name):
    del state[name]
    with pytest.raises(ValueError, match=rf"tensor {name.replace('b_2', 'bias')} is missing"):
        load_classic(state, h=3)


def test_a_model_of_several_processes_is_the_model(state):
    found = load_classic({f"module.{name}": tensor for name, tensor in state.items()}, h=3)
    torch.testing.assert_close(found.state_dict(), load_classic(state, h=3).state_dict())


def test_what_holds_no_tensors_by_name_is_told_what_to_give(state, tmp_path):
    torch.save({"model_state_dict": state, "epoch": 3}, tmp_path / "more.pt")
    for source, says in (
        (
            tmp_path / "more.pt",
            r"more\.pt holds no .* but model_state_dict, epoch; give what model\.state_dict",
        ),
        ({"model": state}, "state_dict holds no tensors by name, but model; give"),
        (theirs(3), "state_dict holds no tensors by name; give"),
    ):
        with pytest.raises(ValueError, match=says):
            load_classic(source, h=3)
    with pytest.raises(ValueError, match="is a folder: give the file"):
        load_classic(tmp_path)
    with pytest.raises(FileNotFoundError):
        load_classic(tmp_path / "none.pt")


def test_what_our_model_does_not_compute_is_refused(state):
    for wrong in (torch.zeros(1, 50, D), torch.zeros(0, 50, D), sinusoids(50, D + 1)[None]):
        with pytest.raises(ValueError, match=r"tgt_embed\.1\.pe does not hold the sinusoids"):
            load_classic(state | {"tgt_embed.1.pe": wrong}, h=3)
    with pytest.raises(ValueError, match="tensor extra is not part"):
        load_classic(state | {"extra": torch.zeros(1)}, h=3)
