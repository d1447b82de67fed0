"""Rows of token ids or of text, packed into one array that processes can share."""

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from operator import eq
from typing import Any, ClassVar, Self

import numpy as np
from tqdm import tqdm

CHUNK = 10_000  # rows that are worked on together


class Rows(Sequence[Any]):
    """Rows in one array: a few bytes more than their content, and shared where that is memory-mapped.

    Attributes:
        data: the content of all rows.
        starts, lengths: for each row, its place in `data` and its size there, int64 (rows,).
    """

    gap: ClassVar[int] = 0  # entries between two rows

    def __init__(self, data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> None:
        self.data = np.asarray(data)  # slices of a memmap are slow
        self.starts, self.lengths = starts, lengths

    @classmethod
    def packed(cls, data: np.ndarray, lengths: np.ndarray) -> Self:
        """Wrap the content of rows that follow one another."""
        sizes = lengths + cls.gap
        return cls(data, np.cumsum(sizes) - sizes, lengths)

    @staticmethod
    def decode(row: np.ndarray) -> Any:
        """Return a row as a Python object."""
        raise NotImplementedError

    def take(self, indices: np.ndarray) -> Self:
        """Select rows by their numbers, or by a mask; their content is not copied."""
        return type(self)(self.data, self.starts[indices], self.lengths[indices])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            places = zip(self.starts[index].tolist(), self.lengths[index].tolist(), strict=True)
            return [self.decode(self.data[start : start + length]) for start, length in places]
        return self.decode(self.data[self.starts[index] :][: self.lengths[index]])

    def __iter__(self) -> Any:
        for start in range(0, len(self), CHUNK):
            yield from self[start : start + CHUNK]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    def __add__(self, other: Iterable[Any]) -> list[Any]:
        return [*self, *other]


class TokenRows(Rows):
    """Rows of token ids, int32."""

    @staticmethod
    def decode(row: np.ndarray) -> list[int]:
        return row.tolist()

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Self:
        """Copy rows of ids."""
        ids, lengths = array("i"), array("q")
        for row in rows:
            ids.extend(row)
            lengths.append(len(row))
        return cls.packed(np.asarray(ids), np.asarray(lengths))


class TextRows(Rows):
    """Sentences in UTF-8, uint8, a line feed after each."""

    gap = 1

    @staticmethod
    def decode(row: np.ndarray) -> str:
        return row.tobytes().decode(errors="surrogatepass")

    @classmethod
    def of(cls, sentences: Iterable[str]) -> Self:
        """Copy sentences."""
        data, lengths = bytearray(), array("q")
        for sentence in sentences:
            line = sentence.encode(errors="surrogatepass")
            data += line
            data += b"\n"
            lengths.append(len(line))
        return cls.packed(np.frombuffer(data, np.uint8), np.asarray(lengths))


def progress(text: str, unit: str, total: int | None = None, items: Any = None) -> tqdm:
    """Open a bar for work of more than two seconds, on a terminal."""
    return tqdm(items, text, total, unit=f" {unit}", leave=False, delay=2, disable=None)


def checksum(sentences: Sequence[str]) -> str:
    """Compute the SHA-256 of sentences, each with a line feed."""
    digest = hashlib.sha256()
    rows: Any = sentences
    if (
        isinstance(rows, TextRows)
        and len(rows.data) == (rows.lengths + 1).sum()
        and (np.diff(rows.starts) > 0).all()
    ):  # all of the text, in its order
        digest.update(rows.data.data)
    else:
        for sentence in sentences:
            digest.update(sentence.encode(errors="surrogatepass") + b"\n")
    return digest.hexdigest()
