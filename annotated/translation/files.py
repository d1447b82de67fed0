"""Files and folders that appear under their names only when they are whole; lines, JSON, TOML."""

import hashlib
import io
import json
import os
import shutil
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from filelock import FileLock

Dataclass = TypeVar("Dataclass")
PARTIAL = ".partial"


@contextmanager
def partial_path(path: Path) -> Iterator[Path]:
    """Yield a path of the same name in a new hidden folder, which is deleted after the block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(PARTIAL, f".{path.name}.", path.parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder) / path.name


def remove_partials(folder: Path, name: str = "*") -> None:
    """Delete what killed processes left in a folder under hidden names. Nobody may be writing there."""
    for partial in folder.glob(f".{name}.*{PARTIAL}"):
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path to write a file to; it takes `path`'s place, whole, only if the block succeeds.

    For files of our own: a device, a pipe or a link at `path` would be replaced too.
    """
    with partial_path(path) as partial:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())  # the name must not reach the disk before the content
        partial.replace(path)


@contextmanager
def creating_folder(path: Path) -> Iterator[Path]:
    """Yield a folder to fill; it takes `path`'s name, whole, only if the block succeeds.

    Raises FileExistsError if there is something at `path`, or an OSError if that came meanwhile.
    """
    path = Path(path).expanduser()
    if os.path.lexists(path):  # a link to nowhere cannot become a folder
        raise FileExistsError(f"{path} exists already; choose another name")
    with partial_path(path) as new:
        new.mkdir()
        yield new
        new.rename(path)


def cached_folder(cache: str | Path, kind: str, key: str, fill: Callable[[Path], None]) -> Path:
    """Return a folder in `cache` that was filled once for this key, whichever process asked first."""
    digest = hashlib.sha256(key.encode()).hexdigest()
    folder = Path(cache).absolute() / f"{kind}-{digest}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            remove_partials(folder.parent, folder.name)
            with creating_folder(folder) as partial:
                fill(partial)
    return folder


def remove_folder(path: Path) -> None:
    """Delete a folder, so that a process killed midway leaves nothing under its name."""
    with partial_path(path) as partial:
        path.rename(partial)


def write_json(path: Path, value: object) -> None:
    """Write JSON to a file of our own, whole or not at all."""
    with replacing(path) as partial:
        partial.write_text(json_text(value), encoding="utf-8")


def json_text(value: object) -> str:
    """Lay out JSON so that a person can read it."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises FileNotFoundError, or ValueError that names the file."""
    if path.exists() and not path.is_file():  # a pipe or a device may have no end
        raise ValueError(f"{path} is not a file")
    try:
        value = json.loads(path.read_bytes(), object_pairs_hook=dict_of_unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, not {type(value).__name__}")
    return value


def dict_of_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object of its names and values. Raises ValueError for a name that stands in it twice."""
    if len(values := dict(pairs)) < len(pairs):
        raise ValueError("a name stands in it twice")
    return values


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file. Raises FileNotFoundError, or ValueError that names the file."""
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None


def check_output(path: Path | None, others: Iterable[Path | None]) -> None:
    """Raise OSError or ValueError now for a file that cannot be written, or is one of `others`."""
    if path is None:
        return
    existed = path.exists()
    path.open("a").close()
    if not existed:
        path.unlink()
    for other in filter(None, others):
        if path.resolve() == other.resolve() or (existed and other.exists() and path.samefile(other)):
            raise ValueError(f"{path} would be replaced, another file of this command")


def sha256(path: Path) -> str:
    """Compute the checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def decode_lines(lines: Iterable[bytes], name: str, after: int = 0) -> Iterator[str]:
    """Decode lines of UTF-8, without their ends; `after` others came before them in the file `name`.

    Raises ValueError with the number of a line that is not UTF-8.
    """
    lines = iter(lines)
    head = list(islice(lines, 16))
    begin = b"".join(head)
    if not after and 2 * begin.count(0) >= max(4, len(head)):  # in UTF-16, each line end has one
        order = "le" if begin[1::2].count(0) >= begin[::2].count(0) else "be"
        advice = f"convert it with iconv -f utf-16{order} -t utf8 < FILE > NEW"
        raise ValueError(f"{name} looks like UTF-16; {advice}")
    for number, line in enumerate(chain(head, lines), start=after + 1):
        if number == 1 and b"\n" not in line and b"\r" in line:
            yield from decode_lines(io.BytesIO(line.replace(b"\r", b"\n")), name)
            return
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            advice = "if it is Windows-1252, convert it with iconv -f cp1252 -t utf8 < FILE > NEW"
            raise ValueError(f"{name}, line {number}: {error}; {advice}") from None
        yield text.rstrip("\r\n")


def settings_from_json(cls: type[Dataclass], values: dict[str, Any], source: object) -> Dataclass:
    """Make a dataclass of a JSON object. Raises ValueError that names `source` and the wrong setting."""
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{source}: {error}") from None
