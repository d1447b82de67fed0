"""Files that appear under their final name only when they are whole, and JSON in them."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a neighbouring path to write a file to; it takes `path`'s place only if the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())  # the name must not reach the disk before the content
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def creating_folder(path: Path) -> Iterator[Path]:
    """Yield a neighbouring folder to fill; it takes `path`'s name only if the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # left by a process that was killed
    partial.mkdir()
    try:
        yield partial
        shutil.rmtree(path, ignore_errors=True)
        partial.rename(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_json(path: Path, value: object) -> None:
    """Write JSON that a person can read, whole or not at all."""
    with replacing(path) as partial:
        partial.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict:
    """Read a JSON object. Raises FileNotFoundError, or ValueError that names the file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, not {type(value).__name__}")
    return value
