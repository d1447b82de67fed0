"""Model folders: what is saved comes back, what is damaged is named, and nothing is ever unpickled."""

import os
import pickle
import struct
from hashlib import sha256

import pytest
import torch
from interop_models import Bomb
from safetensors.torch import save_file
from small_models import WORDS, change, make

from annotated.translation.devices import find_device
from annotated.translation.files import read_json, write_json
from annotated.translation.storage import model_folder
from annotated.translation.storage.model_folder import CONFIG, WEIGHTS, find_model, load_model, save_model
from annotated.translation.storage.tensor_files import read_tensors
from annotated.translation.tokenizers import WordTokenizer
from annotated.translation.training.checkpoint import average_checkpoints
from annotated.translation.translator import Translator, load_pretrained


@pytest.fixture
def folder(tmp_path):
    save_model(tmp_path / "m", make(), WORDS, WORDS)
    return tmp_path / "m"


def test_the_model_of_a_run_is_not_overwritten(folder):
    save_model(folder, make(), WORDS, WORDS)
    (folder / "training.json").write_text("{}")
    before = (folder / "model.safetensors").read_bytes()
    with pytest.raises(ValueError, match="holds the model of a run"):
        save_model(folder, make(), WORDS, WORDS)
    assert (folder / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize("tied", ["all", "target", "none"])
def test_a_model_comes_back(tied, tmp_path):
    model = make(tied_embeddings=tied, norm_first=True, positions="learned", max_len=9, activation="swish")
    save_model(tmp_path, model, WORDS, WORDS)
    again, src, tgt = load_model(tmp_path)
    assert again.config == model.config
    assert src is tgt
    assert next(load_model(tmp_path, "auto")[0].parameters()).device == find_device()
    assert not again.training
    tokens = torch.tensor([[0, 4, 5, 1]])
    torch.testing.assert_close(again(tokens, tokens, None, None), model.eval()(tokens, tokens, None, None))
    assert (again.generator.proj.weight is again.tgt_embed[0].lut.weight) == (tied != "none")
    assert (again.src_embed[0].lut.weight is again.tgt_embed[0].lut.weight) == (tied == "all")
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}
    names = [name for name in read_tensors(tmp_path / WEIGHTS) if "embed.0" in name or "proj.weight" in name]
    assert len(names) == {"all": 1, "target": 2, "none": 3}[tied]


def test_two_tokenizers_come_back_as_two(tmp_path):
    src, tgt = WordTokenizer(["a", "b"], None), WordTokenizer(["x", "y", "z"], None)
    save_model(tmp_path, make("ab", "xyz", tied_embeddings="target"), src, tgt)
    _, one, other = load_model(tmp_path)
    assert one.vocabulary == src.vocabulary
    assert other.vocabulary == tgt.vocabulary


def test_a_file_cut_off_anywhere_is_never_read_as_whole(folder):
    content = (folder / WEIGHTS).read_bytes()
    for size in [*range(0, len(content), 97), *range(12), len(content) - 1]:
        (folder / WEIGHTS).write_bytes(content[:size])
        with pytest.raises(ValueError, match=r"model.safetensors is not a whole safetensors file"):
            read_tensors(folder / WEIGHTS)
    with pytest.raises(ValueError, match=r"model.safetensors is not a whole safetensors file"):
        load_model(folder)


def test_a_pickle_is_never_opened(folder, tmp_path):
    bomb = pickle.dumps(Bomb(tmp_path / "exploded"))
    for stray in ("pytorch_model.bin", "model.pt", "tokenizer.pkl", "optimizer.pt"):
        (folder / stray).write_bytes(bomb)
    load_model(folder)
    damage = [(name, bomb) for name in (CONFIG, "tokenizer.json", WEIGHTS)]
    for name, content in [*damage, (WEIGHTS, struct.pack("<Q", len(bomb)) + bomb)]:
        original = (folder / name).read_bytes()
        (folder / name).write_bytes(content)
        with pytest.raises(ValueError, match=name):
            load_model(folder)
        (folder / name).write_bytes(original)
    assert not (tmp_path / "exploded").exists()
    pickle.loads(bomb)
    assert (tmp_path / "exploded").exists()  # the bomb does work


def test_missing_files_are_named(folder):
    for name in ("tokenizer.json", WEIGHTS, CONFIG):
        (folder / name).unlink()
        with pytest.raises(FileNotFoundError, match=name):
            load_model(folder)


def test_an_empty_file_of_subwords_is_refused(folder):
    (folder / "tokenizer.model").touch()
    write_json(folder / "tokenizer.json", {"kind": "sentencepiece", "sha256": sha256(b"").hexdigest()})
    with pytest.raises(ValueError, match="an empty file"):
        load_model(folder)


NAME = "encoder.layers.0.feed_forward.w_1.weight"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({NAME: None}, f"tensor {NAME} is missing"),
        ({NAME: torch.zeros(8, 9)}, rf"tensor {NAME} has shape \(8, 9\), but .* \(8, 8\)"),
        ({NAME: torch.full((8, 8), torch.nan)}, f"tensor {NAME} holds numbers that are not finite"),
        ({"extra": torch.zeros(1)}, "tensor extra is not part of what the settings describe"),
        # In float32, as they will be.
        ({NAME: torch.full((8, 8), 1e300, dtype=torch.float64)}, f"tensor {NAME} holds numbers that are not"),
        ({NAME: torch.ones(8, 8, dtype=torch.int8)}, f"tensor {NAME} is torch.int8, not float of 16, 32"),
        ({NAME: torch.ones(8, 8, dtype=torch.complex64)}, f"tensor {NAME} is torch.complex64, not float"),
    ],
)
def test_wrong_tensors_are_named(changes, says, folder):
    # Copies: what was read may still be the file, which is written over here.
    tensors = {name: tensor.clone() for name, tensor in read_tensors(folder / WEIGHTS).items()} | changes
    save_file({name: t for name, t in tensors.items() if t is not None}, folder / WEIGHTS)
    with pytest.raises(ValueError, match=f"model.safetensors: {says}"):
        load_model(folder)


def test_weights_are_loaded_all_or_none():
    model = make()
    before = {name: p.clone() for name, p in model.named_parameters()}
    some = {name: torch.full_like(p, 7) for name, p in before.items()} | {"extra": torch.zeros(1)}
    with pytest.raises(ValueError, match="extra"):
        model_folder.load_weights(model, some, "here")
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"N": "six"}, "config.json: N must .*not 'six'"),
        ({"tgt_vocab": 7}, "config.json: tied_embeddings='all' needs one vocabulary"),
        ({"N": 2}, "model.safetensors: tensor .*layers.1.* is missing"),
    ],
)
def test_impossible_settings_are_named(values, says, folder):
    change(folder, **values)
    with pytest.raises(ValueError, match=says):
        load_model(folder)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"format": 2}, "format 2 is unknown; this version reads 1"),
        ({"model": None}, "the settings 'model' are missing"),
        ({"tokenizers": {"src": "../../secret", "tgt": "tokenizer"}}, "tokenizers.src must be"),
        ({"tokenizers": {"src": "tokenizer"}}, "tokenizers.tgt must be"),
    ],
)
def test_a_foreign_config_is_named(values, says, folder):
    write_json(folder / CONFIG, {**read_json(folder / CONFIG), **values})
    with pytest.raises(ValueError, match=f"config.json: {says}"):
        load_model(folder)


@pytest.mark.parametrize("default", [torch.float16, torch.float64])
def test_loading_draws_no_random_numbers_and_makes_float32_whatever_the_default_is(default, folder):
    tokens, before = torch.tensor([[0, 4, 5, 4, 1]]), torch.get_rng_state()
    expected = load_model(folder)[0](tokens, tokens, None, None)
    try:
        torch.set_default_dtype(default)
        assert torch.equal(load_model(folder)[0](tokens, tokens, None, None), expected)
        assert torch.get_default_dtype() == default
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(torch.get_rng_state(), before)


def test_two_models_have_no_mean(folder, tmp_path):
    """Of the same shapes, as two directions of one pair of languages are."""
    words = WordTokenizer(["x", "y"], None)
    save_model(tmp_path / "tokens", make(), words, words)
    save_model(tmp_path / "settings", make(h=4), WORDS, WORDS)
    save_model(tmp_path / "same", make(), WORDS, WORDS)
    for other in ("tokens", "settings"):
        with pytest.raises(ValueError, match=f"{other} and .*m are two models: their settings or tokenizers"):
            average_checkpoints([folder, tmp_path / other])
    average_checkpoints([folder, tmp_path / "same"])


@pytest.fixture
def shipped(folder, tmp_path, monkeypatch):
    """A package that ships one model, `small`, and beside it a model that it does not ship."""
    package = tmp_path / "package"
    for place in (package / "pretrained" / "small", package / "secret"):
        save_model(place, make(), WORDS, WORDS)
    monkeypatch.setattr(model_folder, "PRETRAINED", package / "pretrained")
    monkeypatch.chdir(tmp_path)
    return package


def test_a_shipped_model_is_found_by_its_name_alone(shipped):
    assert load_pretrained("small").model.config == make().config
    assert find_model("small") == shipped / "pretrained" / "small"
    assert find_model(shipped / "secret") == shipped / "secret"
    for name in ("", ".", "..", "../secret", "..\\secret", "small/", "./small", "m", str(shipped / "secret")):
        with pytest.raises(ValueError, match="is not the name of a shipped model; they are: small"):
            load_pretrained(name)


@pytest.mark.parametrize("name", ["training.json", CONFIG, "tokenizer.json"])
def test_a_folder_holds_files_and_no_pipes_or_devices(name, folder):
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    for read in (load_model, Translator.load):
        if name != "training.json" or read is Translator.load:
            with pytest.raises((ValueError, FileNotFoundError), match=str(folder)):
                read(folder)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    with pytest.raises((ValueError, FileNotFoundError), match=str(folder)):
        Translator.load(folder)
