"""Model folders on the Hugging Face Hub: the folder as it is, pushed and loaded back."""

import json
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from annotated.interop.common import foreign
from annotated.training.run_folder import LOG
from annotated.translation.model_folder import CONFIG, SETTINGS, WEIGHTS, find_model, training_settings
from annotated.translation.translator import Translator

# What a translator is loaded from, and all that is pushed; a run's folder holds checkpoints besides.
MODEL = (CONFIG, WEIGHTS, "tokenizer.*", "src_tokenizer.*", "tgt_tokenizer.*")
FILES = (*MODEL, SETTINGS, "README.md", "scores.json", LOG)
LOCAL = ("path", "src", "tgt", "val_src", "val_tgt", "init_from")  # settings that are paths on one's own disk


def from_hub(name: str, revision: str | None = None, **options: Any) -> Translator:
    """The model pushed to the Hub as `name`, such as "org/name", at a branch, tag or commit.

    `options` are those of `Translator.load`. A folder of that name here comes first. Without a network, what
    an earlier call left in the Hub's cache. Raises FileNotFoundError where it can be had from neither,
    ValueError for a name that cannot be one and for files that are not a model of ours.
    """
    return Translator.load(find_folder(name, (*MODEL, SETTINGS), revision), **options)


def to_hub(model: str | Path, name: str, private: bool = True) -> str:
    """Push a model folder, or a shipped model, to the Hub as `name`; returns its address there.

    All in one commit, which also removes what an earlier model left there of the same files. The settings of
    its training go with it, all but those that are paths on this machine. It takes an access token, which
    `hf auth login` keeps. Raises FileNotFoundError for a folder without a model, and whatever the Hub has to
    object.
    """
    folder = find_model(model)
    Translator.load(folder)  # what cannot be loaded here is of no use there
    hub = foreign("huggingface_hub")
    files: dict[str, Path | bytes] = {path.name: path for kind in FILES for path in folder.glob(kind)}
    if trained := training_settings(folder):
        settings = {key: value for key, value in trained.items() if key not in LOCAL}
        files[SETTINGS] = json.dumps(settings, indent=2).encode()
    api = hub.HfApi()
    api.create_repo(name, private=private, exist_ok=True)
    there = [file for file in api.list_repo_files(name) if any(fnmatch(file, kind) for kind in FILES)]
    operations = [hub.CommitOperationAdd(file, content) for file, content in sorted(files.items())]
    operations += [hub.CommitOperationDelete(file) for file in there if file not in files]
    api.create_commit(name, operations, commit_message="A model, and what is known of it")
    return f"https://huggingface.co/{name}"


def find_folder(name_or_folder: str | Path, files: Sequence[str], revision: str | None = None) -> Path:
    """A folder on disk, or that of the Hub's cache with those files, brought up to date where a network is.

    Raises FileNotFoundError where they can be had from nowhere, ValueError for an impossible name.
    """
    if (folder := Path(name_or_folder)).is_dir():
        return folder
    name, hub = str(name_or_folder), foreign("huggingface_hub")
    try:
        return Path(hub.snapshot_download(name, revision=revision, allow_patterns=list(files)))
    except hub.errors.HFValidationError as error:
        raise ValueError(f"{name!r} is no folder here, and no name on the Hub: {error}") from None
    except Exception as error:  # the library lets through those of whichever HTTP client it has
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        which = f"{name} at {revision}" if revision else name
        raise FileNotFoundError(
            f"{which} is no folder here, not in the Hub's cache and cannot be downloaded: {reason}"
        ) from None
