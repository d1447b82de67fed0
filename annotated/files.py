"""Files that appear under their final name only when they are whole, and the JSON and TOML in them."""

import dataclasses
import json
import os
import shutil
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar, get_args, get_origin

Settings = TypeVar("Settings")


def partial_name(path: Path) -> Path:
    """The hidden neighbour of `path` that stands for it while it is incomplete."""
    return path.with_name(f".{path.name}.partial")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a neighbouring path to write a file to; it takes `path`'s place only if the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_name(path)
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())  # the name must not reach the disk before the content
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def creating_folder(path: Path, replace: bool = False) -> Iterator[Path]:
    """Yield a neighbouring folder to fill; it takes `path`'s name only if the block succeeds.

    Raises FileExistsError if there is something at `path`, for to make room for the new leaves a moment with
    neither; with `replace` that is accepted, and the old folder goes when the new one is whole.
    """
    if path.exists() and not replace:
        raise FileExistsError(f"{path} exists already")
    partial = partial_name(path)
    shutil.rmtree(partial, ignore_errors=True)  # left by a process that was killed
    partial.mkdir(parents=True)
    try:
        yield partial
        old = path.with_name(f".{path.name}.old")
        shutil.rmtree(old, ignore_errors=True)  # left by a process that was killed
        if path.exists():
            path.rename(old)  # at once: a folder half deleted must not stand under its name
        partial.rename(path)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def remove_folder(path: Path) -> None:
    """Delete a folder, so that a process killed midway leaves nothing under its name."""
    partial = partial_name(path)
    shutil.rmtree(partial, ignore_errors=True)
    path.rename(partial)
    shutil.rmtree(partial)


def write_json(path: Path, value: object) -> None:
    """Write JSON that a person can read, whole or not at all."""
    with replacing(path) as partial:
        partial.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict:
    """Read a JSON object. Raises FileNotFoundError, or ValueError that names the file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, not {type(value).__name__}")
    return value


def read_toml(path: Path) -> dict:
    """Read a TOML file. Raises FileNotFoundError, or ValueError that names the file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None


def settings_from_json(cls: type[Settings], values: dict, source: object) -> Settings:
    """An instance of a dataclass from a JSON object.

    Raises ValueError naming `source` and the setting that is unknown, missing, of the wrong type or
    impossible.
    """
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for name, value in values.items():
        if name not in fields:
            raise ValueError(f"{source}: unknown setting {name!r}; the known ones are {', '.join(fields)}")
        if not fits(value, fields[name].type):
            kind = fields[name].type
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


def fits(value: object, kind: type) -> bool:
    """Whether a value read from JSON may stand in a field of this type."""
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float if kind is float else kind)
