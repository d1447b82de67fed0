"""Model folders on the Hugging Face Hub: pushed and loaded as they are."""

import json
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from annotated.interop.export import import_library
from annotated.training.run_folder import LOG
from annotated.translation.model_folder import CONFIG, SETTINGS, WEIGHTS, find_model, training_settings
from annotated.translation.translator import Translator

# What a translator is loaded from, and everything that is pushed; a run's checkpoints are not.
MODEL = (CONFIG, WEIGHTS, "tokenizer.*", "src_tokenizer.*", "tgt_tokenizer.*")
FILES = (*MODEL, SETTINGS, "README.md", "scores.json", LOG)
PATHS = ("path", "src", "tgt", "val_src", "val_tgt", "init_from")  # settings that are paths on this machine


def from_hub(name: str, revision: str | None = None, **options: Any) -> Translator:
    """Load the model pushed to the Hub as `name`, such as "org/name", at a branch, tag or commit.

    A folder of that name on this machine comes first; without a network, the Hub's cache is used. `options`
    are those of `Translator.load`. Raises what `huggingface_hub.snapshot_download` raises, and ValueError for
    files that are not one of our models.
    """
    return Translator.load(find_folder(name, (*MODEL, SETTINGS), revision), **options)


def to_hub(model: str | Path, name: str, private: bool = True) -> str:
    """Push a model folder, or a shipped model, to the Hub as `name`; return its address there.

    One commit adds the files and removes those that an earlier model left there under the same names. The
    training settings go with them, except paths on this machine. The access token is the one that
    `hf auth login` stores. Raises FileNotFoundError for a folder without a model, and the Hub's own errors.
    """
    folder = find_model(model)
    Translator.load(folder)  # raises for a damaged model
    hub = import_library("huggingface_hub")
    files: dict[str, Path | bytes] = {path.name: path for kind in FILES for path in folder.glob(kind)}
    if trained := training_settings(folder):
        settings = {key: value for key, value in trained.items() if key not in PATHS}
        files[SETTINGS] = json.dumps(settings, indent=2).encode()
    api = hub.HfApi()
    api.create_repo(name, private=private, exist_ok=True)
    old = [file for file in api.list_repo_files(name) if any(fnmatch(file, kind) for kind in FILES)]
    operations = [hub.CommitOperationAdd(file, content) for file, content in sorted(files.items())]
    operations += [hub.CommitOperationDelete(file) for file in old if file not in files]
    api.create_commit(name, operations, commit_message="Add a translation model")
    return f"https://huggingface.co/{name}"


def find_folder(name_or_folder: str | Path, files: Sequence[str], revision: str | None = None) -> Path:
    """Return a folder on this machine, or download these files of that name from the Hub into its cache."""
    if (folder := Path(name_or_folder)).is_dir():
        return folder
    hub = import_library("huggingface_hub")
    return Path(hub.snapshot_download(str(name_or_folder), revision=revision, allow_patterns=list(files)))
