"""Model folders: what is saved comes back, what is damaged is named, and nothing is ever unpickled."""

import pickle
import struct
from contextlib import suppress

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from interop_models import Bomb
from safetensors.torch import save_file
from small_models import WORDS, change, make

from annotated.files import read_json, write_json
from annotated.storage import model_folder
from annotated.storage.model_folder import (
    CONFIG,
    WEIGHTS,
    find_model,
    load_model,
    load_weights,
    save_model,
    weights,
)
from annotated.storage.tensor_files import read_tensors, write_tensors
from annotated.tokenizers import WordTokenizer
from annotated.training.checkpoint import average_checkpoints
from annotated.translator import load_pretrained


@pytest.fixture
def folder(tmp_path):
    save_model(tmp_path / "m", make(), WORDS, WORDS)
    return tmp_path / "m"


# ---- round trips


@pytest.mark.parametrize("tied", ["all", "target", "none"])
def test_a_model_comes_back(tied, tmp_path):
    model = make(tied_embeddings=tied, norm_first=True, positions="learned", max_len=9, activation="swish")
    save_model(tmp_path, model, WORDS, WORDS)
    again, src, tgt = load_model(tmp_path)
    assert again.config == model.config
    assert src is tgt
    assert not again.training
    tokens = torch.tensor([[0, 4, 5, 1]])
    torch.testing.assert_close(again(tokens, tokens, None, None), model.eval()(tokens, tokens, None, None))
    assert (again.generator.proj.weight is again.tgt_embed[0].lut.weight) == (tied != "none")
    assert (again.src_embed[0].lut.weight is again.tgt_embed[0].lut.weight) == (tied == "all")
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}


def test_two_tokenizers_come_back_as_two(tmp_path):
    src, tgt = WordTokenizer(["a", "b"], None), WordTokenizer(["x", "y", "z"], None)
    save_model(tmp_path, make("ab", "xyz", tied_embeddings="target"), src, tgt)
    _, one, other = load_model(tmp_path)
    assert one.words == src.words
    assert other.words == tgt.words


def test_a_shared_matrix_is_stored_once(folder):
    names = read_tensors(folder / WEIGHTS).keys()
    assert len([name for name in names if "lut" in name or "proj.weight" in name]) == 1


# ---- damage


def test_a_file_cut_off_anywhere_is_never_read_as_whole(folder):
    content = (folder / WEIGHTS).read_bytes()
    for size in [*range(0, len(content), 97), *range(12), len(content) - 1]:
        (folder / WEIGHTS).write_bytes(content[:size])
        with pytest.raises(ValueError, match=r"model.safetensors is not a whole safetensors file"):
            read_tensors(folder / WEIGHTS)
    with pytest.raises(ValueError, match=r"model.safetensors is not a whole safetensors file"):
        load_model(folder)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 200), st.integers(0, 255))
def test_a_changed_header_is_an_error_or_harmless(tmp_path_factory, place, byte):
    path = tmp_path_factory.getbasetemp() / "t.safetensors"
    write_tensors(path, {"a": torch.ones(3, 2), "b": torch.zeros(4)})
    content = bytearray(path.read_bytes())
    content[min(place, len(content) - 1)] = byte
    path.write_bytes(content)
    with suppress(ValueError):
        read_tensors(path)


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
    for name, error in ((WEIGHTS, "model.safetensors is missing"), ("tokenizer.json", "tokenizer.json")):
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        with pytest.raises(FileNotFoundError, match=error):
            load_model(folder)
        (folder / name).write_bytes(content)
    with pytest.raises(FileNotFoundError, match=r"holds no model: there is no config.json"):
        load_model(folder.parent)


def test_wrong_tensors_are_named(folder):
    # Copies: what was read may still be the file, which is written over here.
    tensors = {key: tensor.clone() for key, tensor in read_tensors(folder / WEIGHTS).items()}
    name = "encoder.layers.0.feed_forward.w_1.weight"
    missing = {key: tensor for key, tensor in tensors.items() if key != name}
    for changed, says in (
        (missing, f"tensor {name} is missing"),
        ({**tensors, name: torch.zeros(8, 9)}, rf"tensor {name} has shape \(8, 9\), but .* \(8, 8\)"),
        (
            {**tensors, name: torch.full((8, 8), torch.nan)},
            f"tensor {name} holds numbers that are not finite",
        ),
        ({**tensors, "extra": torch.zeros(1)}, "tensor extra is not part of what the settings describe"),
        (
            {**tensors, name: torch.full((8, 8), 1e300, dtype=torch.float64)},
            f"tensor {name} holds numbers that are not finite",  # in float32, as they will be
        ),
        *(
            ({**tensors, name: torch.ones(8, 8).to(dtype)}, f"tensor {name} is {dtype}, not float of 16, 32")
            for dtype in (torch.int8, torch.bool, torch.float8_e4m3fn, torch.int64, torch.complex64)
        ),
    ):
        save_file(changed, folder / WEIGHTS)
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
        ({"N": 0}, "config.json: N must be a whole number from 1 to .* not 0"),
        ({"tgt_vocab": 7}, "config.json: tied_embeddings='all' needs one vocabulary"),
        ({"d_ff": 10**13}, "config.json: d_ff must be a whole number from 1 to .* not 10000000000000"),
        ({"N": 2}, "model.safetensors: tensor .*layers.1.* is missing"),
    ],
)
def test_impossible_settings_are_named_in_one_line(values, says, folder):
    change(folder, **values)
    with pytest.raises(ValueError, match=says) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


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


def test_loading_draws_no_random_numbers(folder):
    before = torch.get_rng_state()
    load_model(folder)
    assert torch.equal(torch.get_rng_state(), before)


# ---- averages


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_average_is_the_arithmetic_mean(dtype, tmp_path):
    models = []
    for i in range(5):
        model = make().to(dtype)
        torch.manual_seed(i)
        models.append({name: torch.randn_like(parameter) for name, parameter in weights(model).items()})
        load_weights(model, models[-1], "here")
        save_model(tmp_path / str(i), model, WORDS, WORDS)
    mean = average_checkpoints([tmp_path / str(i) for i in range(5)])
    for name, tensor in mean.items():
        assert tensor.dtype == dtype
        wanted = torch.stack([tensors[name] for tensors in models]).double().mean(dim=0)
        torch.testing.assert_close(tensor, wanted.to(dtype))
    backwards = average_checkpoints([tmp_path / str(i) for i in reversed(range(5))])
    assert all(torch.equal(mean[name].float(), backwards[name].float()) for name in mean)
    alone = average_checkpoints([tmp_path / "3"])
    assert all(torch.equal(alone[name], models[3][name]) for name in alone)


# ---- shipped models


@pytest.fixture
def shipped(folder, tmp_path, monkeypatch):
    """A package that ships one model, `small`, and beside it a model that it does not ship."""
    package = tmp_path / "package"
    for place in (package / "pretrained" / "small", package / "secret"):
        save_model(place, make(), WORDS, WORDS)
    monkeypatch.setattr(model_folder, "PRETRAINED", package / "pretrained")
    monkeypatch.chdir(tmp_path)
    return package


def test_a_shipped_model_is_found_by_its_name(shipped):
    assert load_pretrained("small").model.config == make().config
    assert find_model("small") == shipped / "pretrained" / "small"
    assert find_model(shipped / "secret") == shipped / "secret"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../secret", "..\\secret", "small/", "small/../../secret", "./small", "m", "nope"]
)
def test_only_names_are_taken(name, shipped):
    with pytest.raises(ValueError, match="is not the name of a shipped model; they are: small"):
        load_pretrained(name)
    with pytest.raises(ValueError, match="is not the name of a shipped model"):
        load_pretrained(str(shipped / "secret"))
