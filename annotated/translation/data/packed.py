"""Sentences or token ids, packed into one array that processes can share, in memory or mapped from a file."""

import mmap
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from operator import eq
from pathlib import Path
from typing import Any

import numpy as np

CHUNK = 10_000  # rows that are worked on together
TEXT_TYPE, TOKEN_TYPE = "B", "i"  # types of an entry, in `array` and NumPy


class PackedRows(Sequence[Any]):
    """Rows in one array: a few bytes more than their content, and shared where that is memory-mapped.

    Attributes:
        data: the content of all rows: sentences in UTF-8, uint8, or token ids, int32.
        lengths, starts: for each row, its size and its place in `data`, int64 (rows,).
    """

    def __init__(self, data: Any, lengths: Any, starts: Any = None) -> None:
        """Wrap rows in `data`: each begins at its place in `starts`, by default where the last one ends."""
        self.data, self.lengths = np.asarray(data), np.asarray(lengths)
        self.starts = np.cumsum(self.lengths) - self.lengths if starts is None else starts

    @classmethod
    def of(cls, rows: Iterable[Any]) -> "PackedRows":
        """Pack rows; returns those that are packed already as they are."""
        if isinstance(rows, cls):
            return rows
        data, lengths = array(TEXT_TYPE), array("q")
        for row in rows:
            entries = encode_row(row)
            if not lengths:
                data = array(entries.typecode)
            data.extend(entries)
            lengths.append(len(entries))
        return cls(data, lengths)

    def take(self, indices: np.ndarray) -> "PackedRows":
        """Select rows by their numbers; their content is not copied."""
        return PackedRows(self.data, self.lengths[indices], self.starts[indices])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            spans = zip(self.starts[index].tolist(), self.lengths[index].tolist(), strict=True)
            rows = [decode_row(self.data[start : start + length]) for start, length in spans]
            release(self.data)
            return rows
        return decode_row(self.data[self.starts[index] :][: self.lengths[index]])

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), CHUNK):
            yield from self[start : start + CHUNK]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    def __add__(self, other: Iterable[Any]) -> list[Any]:
        return [*self, *other]


def encode_row(row: Any) -> "array[int]":
    """Return a sentence's bytes, or a row of token ids as it is."""
    if isinstance(row, str):
        return array(TEXT_TYPE, row.encode(errors="surrogatepass"))
    return array(TOKEN_TYPE, row)


def decode_row(entries: np.ndarray) -> Any:
    """Return the sentence or the list of token ids that `encode_row` was given."""
    text = entries.dtype == TEXT_TYPE
    return entries.tobytes().decode(errors="surrogatepass") if text else entries.tolist()


def map_file(file: Any, dtype: Any) -> np.ndarray:
    """Memory-map the content of an open file."""
    empty = file.seek(0, os.SEEK_END) == 0  # an empty file cannot be mapped
    return np.frombuffer(b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype)


def release(data: np.ndarray) -> None:
    """Give the memory of what was read of a memory-mapped file back to the system, where that is possible."""
    mapped = getattr(data.base, "obj", None)  # the map behind the memory view of `map_file`
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def save_rows(folder: Path, name: str, src: Iterable[Any], tgt: Iterable[Any], lines: Sequence[int]) -> None:
    """Write both sides of pairs, the rows' lengths, and the line numbers."""
    lengths = array("q"), array("q")
    for side, rows, sizes in zip(("src", "tgt"), (src, tgt), lengths, strict=True):
        with (folder / f"{name}.{side}").open("wb") as file:
            for row in rows:
                entries = encode_row(row)
                entries.tofile(file)
                sizes.append(len(entries))
    np.save(folder / f"{name}.npy", np.array([*lengths, lines]))


def load_rows(folder: Path, name: str, dtype: str) -> tuple[PackedRows, PackedRows, Sequence[int]]:
    """Memory-map what `save_rows` wrote: the sides, and the line numbers."""
    src, tgt, lines = np.load(folder / f"{name}.npy")
    with (folder / f"{name}.src").open("rb") as src_file, (folder / f"{name}.tgt").open("rb") as tgt_file:
        sides = PackedRows(map_file(src_file, dtype), src), PackedRows(map_file(tgt_file, dtype), tgt)
    return *sides, array("q", lines.tobytes())
