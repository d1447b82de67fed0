"""Finding a corpus's files: in the reader's data folder, in the cache, or on the network."""

import hashlib
import os
import shutil
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

import platformdirs
from tqdm import tqdm

from annotated.files import replacing

Check = Callable[[Path, str], None]  # of a file and of what errors call it; raises ValueError

_TIMEOUT = 30.0  # seconds without a byte


def cache_folder(corpus: str) -> Path:
    """Where a downloaded corpus is kept: the platform's cache folder for this project."""
    return Path(platformdirs.user_cache_dir("annotated")) / corpus


def corpus_folders(corpus: str) -> list[Path]:
    """Where a corpus is looked for, in that order: `$ANNOTATED_DATA/<corpus>`, then the cache."""
    mine = os.environ.get("ANNOTATED_DATA")
    return [*([Path(mine) / corpus] if mine else []), cache_folder(corpus)]


def find(corpus: str, *relatives: str) -> Path | None:
    """The first of the paths `relatives` that exists in the first of `corpus_folders` to have one."""
    candidates = (folder / relative for folder in corpus_folders(corpus) for relative in relatives)
    return next((path for path in candidates if path.exists()), None)


def looked_in(corpus: str) -> str:
    """Say in which folders a corpus was looked for, and which of them are not there."""
    folders = corpus_folders(corpus)
    shown = [f"{folder}{'' if folder.is_dir() else ' (no such folder)'}" for folder in folders]
    unset = "; ANNOTATED_DATA is not set" if len(folders) == 1 else ""
    return f"looked in {' and '.join(shown)}{unset}"


def download(url: str, path: Path, check: Check, note: str = "") -> Path:
    """Fetch `url` to `path`, with a progress bar, and let `check` judge it before it bears its final name.

    Raises what `check` raises, and FileNotFoundError naming the file, the URL and the folder into which to
    put it by hand if it cannot be had, with the `note`. Nothing half-written is left.
    """
    try:
        with replacing(path) as temporary:
            _fetch(url, temporary)
            check(temporary, url)
    except (OSError, HTTPException) as error:
        raise FileNotFoundError(
            f"{path.name} cannot be downloaded ({error}); put {url} into {path.parent} by hand{note}"
        ) from None
    return path


def sha256_check(expected: str) -> Check:
    """A check that raises ValueError, naming the file, where its SHA-256 is not `expected`."""

    def check(path: Path, name: str) -> None:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != expected:
            raise ValueError(f"{name} is damaged or another version: SHA-256 {found}, expected {expected}")

    return check


def _fetch(url: str, path: Path) -> None:
    shown = {"desc": Path(url).name, "leave": False, "disable": None}
    with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer, path.open("wb") as file:
        total = int(answer.headers.get("Content-Length") or 0)
        with tqdm.wrapattr(file, "write", total=total or None, **shown) as bar:
            shutil.copyfileobj(answer, bar)
        if total and file.tell() != total:
            raise OSError(f"{file.tell():,} of {total:,} bytes came")
