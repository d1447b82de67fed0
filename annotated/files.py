"""Files that appear under their final name only when they are whole, and the JSON and TOML in them."""

import dataclasses
import errno
import glob
import hashlib
import json
import os
import shutil
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

Settings = TypeVar("Settings")

_PARTIAL = ".partial"
_STALE = 24 * 3600.0  # seconds


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Yield a path of the same name in a new hidden folder beside `path`; what is left there goes with it.

    No two processes or threads are given the same one. What a killed process left beside `path` is deleted
    once it is a day old: until then, somebody may still be writing it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_partials(path.parent, glob.escape(path.name), older=_STALE)
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=_PARTIAL, dir=path.parent))
    try:
        yield folder / path.name
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_partials(folder: Path, name: str = "*", older: float = 0.0) -> None:
    """Delete what killed processes left in a folder under hidden names, `older` seconds old or more."""
    for partial in folder.glob(f".{name}.*{_PARTIAL}"):
        with suppress(FileNotFoundError):  # another process deletes it too
            if time.time() - partial.stat().st_mtime >= older:
                shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def naming(path: object) -> Iterator[None]:
    """Let an error name `path` where it names nothing, as one of a full disk or of too little memory does."""
    try:
        yield
    except MemoryError:
        raise OSError(errno.ENOMEM, "larger than the memory that is left", str(path)) from None
    except OSError as error:
        if error.strerror and error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path to write a file to; it takes `path`'s place, whole, only if the block succeeds.

    For files of our own: a device, a pipe or a link at `path` would be replaced too.
    """
    with naming(path), beside(path) as partial:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())  # the name must not reach the disk before the content
        partial.replace(path)


@contextmanager
def creating_folder(path: Path, replace: bool = False) -> Iterator[Path]:
    """Yield a folder to fill; it takes `path`'s name, whole, only if the block succeeds.

    Raises FileExistsError if there is something at `path`, because making room for the new leaves a moment
    with neither; with `replace` that is accepted, and the old folder goes when the new one is whole.
    """
    if os.path.lexists(path) and not replace:  # a link to nowhere cannot become a folder
        raise FileExistsError(f"{path} exists already")
    with naming(path), beside(path) as new, beside(path) as old:
        new.mkdir()
        yield new
        try:
            if path.exists() and replace:
                path.rename(old)  # at once: a folder half deleted must not stand under its name
            new.rename(path)
        except OSError:
            if path.exists():  # another process was faster
                raise FileExistsError(f"{path} exists already") from None
            raise
        finally:
            if old.exists() and not path.exists():
                old.rename(path)


def remove_folder(path: Path) -> None:
    """Delete a folder, so that a process killed midway leaves nothing under its name."""
    with beside(path) as gone:
        path.rename(gone)


def write_json(path: Path, value: object) -> None:
    """Write JSON to a file of our own, whole or not at all."""
    with replacing(path) as partial:
        partial.write_text(json_text(value), encoding="utf-8")


def write_as_shell(path: Path, text: str) -> None:
    """Write to what the user named, be it a file, a device, a pipe or a link; its mode stays as it is."""
    with naming(path), path.open("wb") as file:
        file.write(text.encode())


def json_text(value: object) -> str:
    """Lay out JSON so that a person can read it."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def read_file(path: Path) -> bytes:
    """Read a whole file. Raises FileNotFoundError, or ValueError for a pipe, which might never end."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ValueError(f"{path} is a pipe or a device; a file is wanted")
    with naming(path):
        return path.read_bytes()


def sha256(path: Path) -> str:
    """Compute the checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises FileNotFoundError, or ValueError that names the file."""
    text = read_file(path)
    try:
        value = json.loads(text.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, not {type(value).__name__}")
    return value


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file. Raises FileNotFoundError, or ValueError that names the file."""
    text = read_file(path)
    try:
        return tomllib.loads(text.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None


def settings_from_json(cls: type[Settings], values: dict[str, Any], source: object) -> Settings:
    """An instance of a dataclass from a JSON object.

    Raises ValueError naming `source` and the setting that is unknown, missing, of the wrong type or
    impossible.
    """
    fields = {field.name: field for field in dataclasses.fields(cast(Any, cls))}
    for name, value in values.items():
        if name not in fields:
            raise ValueError(f"{source}: unknown setting {name!r}; the known ones are {', '.join(fields)}")
        kind: Any = list if get_origin(fields[name].type) is list else fields[name].type
        if not fits(value, kind):
            kinds = [kind] if isinstance(kind, type) else get_args(kind)
            wanted = " or ".join(getattr(each, "__name__", str(each)) for each in kinds)
            raise ValueError(f"{source}: {name} must be {wanted}, not {value!r}")
    for name, field in fields.items():
        if name not in values and field.default is dataclasses.MISSING:
            raise ValueError(f"{source}: the setting {name!r} is missing")
    try:
        return cls(**values)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def fits(value: object, kind: Any) -> bool:
    """Whether a value read from JSON may stand in a field of this type."""
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float if kind is float else kind)
