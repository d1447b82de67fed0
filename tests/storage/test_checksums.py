"""Checksums: damaged weights and files of different models are told from whole ones."""

import struct

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from small_models import WORDS, change, make

from annotated.translation.storage import model_folder
from annotated.translation.storage.model_folder import WEIGHTS, load_model, save_model
from annotated.translation.storage.tensor_files import digest, read_tensors, read_with_sums, write_tensors
from annotated.translation.tokenizers import WordTokenizer
from annotated.translation.training.checkpoint import average_checkpoints


@pytest.fixture
def folder(tmp_path):
    save_model(tmp_path / "m", make(), WORDS, WORDS)
    return tmp_path / "m"


@pytest.mark.parametrize("place", [-1, 0])
def test_damaged_weights_are_refused(place, folder):
    content = bytearray((folder / WEIGHTS).read_bytes())
    first = 8 + struct.unpack("<Q", content[:8])[0]  # behind the header
    content[place or first] ^= 1
    (folder / WEIGHTS).write_bytes(content)
    for read in (load_model, lambda folder: average_checkpoints([folder, folder])):
        with pytest.raises(ValueError, match=r"model.safetensors is damaged: its checksum differs"):
            read(folder)


def test_a_changed_name_shape_or_type_is_damage(tmp_path):
    tensors = {"a": torch.arange(6.0).view(2, 3), "b": torch.zeros(4, dtype=torch.int16)}
    others = [
        {"c": tensors["a"], "b": tensors["b"]},
        {**tensors, "a": tensors["a"].view(3, 2)},
        {**tensors, "b": tensors["b"].half()},
    ]
    assert len({digest(each) for each in (tensors, *others)}) == 4
    assert digest(dict(reversed(tensors.items()))) == digest(tensors)
    write_tensors(tmp_path / "t", tensors)
    again = read_tensors(tmp_path / "t")
    assert all(torch.equal(again[name], tensor) for name, tensor in tensors.items())


def test_a_folder_put_together_from_two_is_refused(folder):
    WordTokenizer(["x", "y"], None).save(folder, "tokenizer")
    with pytest.raises(ValueError, match=r"tokenizer.json is not what was saved with model.safetensors"):
        load_model(folder)


@pytest.mark.parametrize("setting", [{"h": 4}, {"activation": "gelu"}, {"layer_norm_eps": 0.1}])
def test_settings_that_the_weights_do_not_show_are_bound_to_them(setting, folder):
    change(folder, **setting)
    with pytest.raises(ValueError, match=r"config.json is not what was saved with model.safetensors"):
        load_model(folder)


def test_weights_without_checksums_are_read(folder):
    save_file(read_tensors(folder / WEIGHTS), folder / WEIGHTS)
    WordTokenizer(["x", "y"], None).save(folder, "tokenizer")
    load_model(folder)


def test_the_same_model_makes_the_same_file(folder, tmp_path):
    save_model(tmp_path / "again", make(), WORDS, WORDS)
    assert (tmp_path / "again" / WEIGHTS).read_bytes() == (folder / WEIGHTS).read_bytes()


@pytest.mark.parametrize("name", model_folder.shipped_models())
def test_shipped_models_carry_checksums(name):
    folder = model_folder.shipped_model(name)
    with safe_open(folder / WEIGHTS, "pt") as file:
        assert "tensors=" in file.metadata()["sha256"]
    assert read_with_sums(folder / WEIGHTS)[1].keys() == {"config.json", "tokenizer.json"}
