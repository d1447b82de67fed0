"""Sentences or token ids, packed into one array that processes can share."""

import mmap
from array import array
from collections.abc import Iterable, Iterator, Sequence
from operator import eq
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from tqdm import tqdm

CHUNK = 10_000  # rows that are worked on together


class PackedRows(Sequence[Any]):
    """Rows in one array: a few bytes more than their content, and shared where that is memory-mapped.

    Attributes:
        data: the content of all rows.
        lengths, starts: for each row, its size and its place in `data`, int64 (rows,).
    """

    typecode: ClassVar[str]  # of an entry, as in `array.array`

    def __init__(self, data: Any, lengths: Any, starts: Any = None) -> None:
        """Wrap rows in `data`: each begins at its place in `starts`, by default where the last one ends."""
        self.data, self.lengths = np.asarray(data), np.asarray(lengths)
        self.starts = np.cumsum(self.lengths) - self.lengths if starts is None else starts

    @classmethod
    def of(cls, rows: Iterable[Any]) -> Self:
        """Pack rows; returns those that are packed already as they are."""
        if isinstance(rows, cls):
            return rows
        data, lengths = array(cls.typecode), array("q")
        for row in rows:
            encoded = cls.encode(row)
            data.frombytes(encoded)
            lengths.append(len(encoded) // data.itemsize)
        return cls(data, lengths)

    @staticmethod
    def encode(row: Any) -> bytes:
        """Return the entries of a row."""
        raise NotImplementedError

    @staticmethod
    def decode(entries: np.ndarray) -> Any:
        """Return a row as a Python object."""
        raise NotImplementedError

    def take(self, indices: np.ndarray) -> Self:
        """Select rows by their numbers; their content is not copied."""
        return type(self)(self.data, self.lengths[indices], self.starts[indices])

    @classmethod
    def write(cls, path: Path, rows: Iterable[Any]) -> np.ndarray:
        """Write the content of rows, one after the other; returns their lengths."""
        lengths, size = array("q"), array(cls.typecode).itemsize
        with path.open("wb") as file:
            for row in rows:
                lengths.append(file.write(cls.encode(row)) // size)
        return np.asarray(lengths)

    @classmethod
    def load(cls, path: Path, lengths: np.ndarray) -> Self:
        """Memory-map what `write` wrote."""
        with path.open("rb") as file:
            return cls(map_file(file, cls.typecode), lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            places = zip(self.starts[index].tolist(), self.lengths[index].tolist(), strict=True)
            rows = [self.decode(self.data[start : start + length]) for start, length in places]
            release(self.data)
            return rows
        return self.decode(self.data[self.starts[index] :][: self.lengths[index]])

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), CHUNK):
            yield from self[start : start + CHUNK]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    def __add__(self, other: Iterable[Any]) -> list[Any]:
        return [*self, *other]


class PackedTokens(PackedRows):
    """Rows of token ids, int32."""

    typecode = "i"

    @staticmethod
    def encode(row: Sequence[int]) -> bytes:
        return array("i", row).tobytes()

    @staticmethod
    def decode(entries: np.ndarray) -> list[int]:
        return entries.tolist()


class PackedText(PackedRows):
    """Sentences in UTF-8, uint8."""

    typecode = "B"

    @staticmethod
    def encode(row: str) -> bytes:
        return row.encode(errors="surrogatepass")

    @staticmethod
    def decode(entries: np.ndarray) -> str:
        return entries.tobytes().decode(errors="surrogatepass")


def progress(text: str, unit: str, total: int | None = None, items: Any = None) -> tqdm:
    """Open a bar for work of more than two seconds, on a terminal."""
    return tqdm(items, text, total, unit=f" {unit}", leave=False, delay=2, disable=None)


def map_file(file: Any, dtype: Any) -> np.ndarray:
    """Memory-map the content of a file."""
    return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype)


def release(data: np.ndarray) -> None:
    """Give the memory of what was read of a memory-mapped file back to the system, where that is possible."""
    mapped = getattr(data.base, "obj", None)  # what the memory view of `map_file` looks at
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)
