"""Model folders on the Hub, without a network: through the library's own cache, laid out as it does."""

import importlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from interop_models import MISSING, toy

import annotated
from annotated.cli.main import main
from annotated.interop import from_hub, load_marian, to_hub
from annotated.tokenizers import WordTokenizer
from annotated.translation.model_folder import save_model

COMMIT = "0123456789" * 4
WORDS = WordTokenizer(["a", "dog", "runs"], None)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """The library, offline, its cache an empty folder."""
    hub = pytest.importorskip("huggingface_hub", reason=MISSING.format("huggingface_hub"))
    importlib.import_module("huggingface_hub.constants")  # the package loads its modules when asked
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return hub


@pytest.fixture
def folder(tmp_path):
    """A run's folder: a model, its log, and its checkpoints."""
    torch.manual_seed(0)
    save_model(tmp_path / "run", toy(7, 7), WORDS, WORDS)
    (tmp_path / "run" / "log.jsonl").write_text("{}\n")
    save_model(tmp_path / "run" / "checkpoints" / "step-1", toy(7, 7), WORDS, WORDS)
    return tmp_path / "run"


def cached(hub, folder, name="org/name"):
    """Lay a folder into the cache as a download of its main branch would have."""
    place = Path(hub.constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}"
    shutil.copytree(folder, place / "snapshots" / COMMIT)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(COMMIT)


def test_what_the_cache_has_is_loaded(hub, folder):
    cached(hub, folder)
    assert from_hub("org/name", revision=COMMIT)("a dog") == annotated.Translator.load(folder)("a dog")
    assert annotated.from_hub("org/name")("a dog") == annotated.Translator.load(folder)("a dog")


@pytest.mark.parametrize("load", [from_hub, load_marian])
def test_what_is_nowhere_is_a_missing_file(hub, load):
    with pytest.raises(FileNotFoundError):
        load("org/none")


class FakeApi:
    """Stands in for the Hub, and writes down what it is asked."""

    def __init__(self, hub):
        self.hub, self.calls, self.there = hub, [], []

    def create_repo(self, name, private, exist_ok):
        self.calls.append((name, private, exist_ok))

    def list_repo_files(self, name):
        return self.there

    def create_commit(self, name, operations, commit_message):
        added = [each for each in operations if isinstance(each, self.hub.CommitOperationAdd)]
        self.files = {}
        for each in added:
            with each.as_file() as file:
                self.files[each.path_in_repo] = file.read()
        self.deleted = [each.path_in_repo for each in operations if each not in added]
        self.calls.append((name, len(operations)))


@pytest.fixture
def api(hub, monkeypatch):
    """The Hub that `to_hub` speaks to."""
    api = FakeApi(hub)
    monkeypatch.setattr(hub, "HfApi", lambda: api)
    return api


def test_a_run_is_pushed_without_its_checkpoints(api, folder):
    assert to_hub(folder, "org/name") == "https://huggingface.co/org/name"
    assert api.calls == [("org/name", True, True), ("org/name", 4)]  # one commit
    assert sorted(api.files) == ["config.json", "log.jsonl", "model.safetensors", "tokenizer.json"]
    assert api.files["model.safetensors"] == (folder / "model.safetensors").read_bytes()


def test_no_path_of_this_machine_is_pushed(api, folder):
    (folder / "training.json").write_text('{"variant": "tok", "src": "/home/me/secret.en", "path": null}')
    for model in (folder, folder / "checkpoints" / "step-1"):
        to_hub(model, "org/name")
        assert json.loads(api.files["training.json"]) == {"variant": "tok"}


def test_a_model_of_own_text_is_not_pushed_as_one_of_a_public_corpus(api, folder, tmp_path, capfd):
    own = {"corpus": "own", "pair": None, "src": "/home/me/secret.en", "tgt": "/home/me/secret.de"}
    (folder / "training.json").write_text(json.dumps(own))
    to_hub(folder, "org/name")
    assert json.loads(api.files["training.json"]) == {"corpus": "own", "pair": None}
    for name, content in api.files.items():
        (tmp_path / name).write_bytes(content)
    assert main(["evaluate", "--model", str(tmp_path)]) == 2
    assert "trained on files of your own: give --src and --tgt" in capfd.readouterr().err


def test_what_an_earlier_model_left_there_goes(api, folder):
    """Its settings would be taken for those of the new one."""
    api.there = ["config.json", "training.json", "scores.json", "README.md", ".gitattributes", "notes.txt"]
    to_hub(folder, "org/name")
    assert api.deleted == ["training.json", "scores.json", "README.md"]
