"""Parallel text: sentences and their translations, line by line, and how they are read from files.

A line ends at LF and nowhere else: NEL, U+2028, vertical tabs and form feeds are characters of a sentence.
One CR before the LF (as Windows writes) and a byte order mark at the start of a file are dropped.
"""

import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Generic, TypeVar

from annotated.files import naming

Name = str | PathLike[str]  # of a file
Sentence = TypeVar("Sentence")

GZIP = b"\x1f\x8b"  # with which such a file begins, whatever its name


@dataclass(frozen=True)
class Pairs(Generic[Sentence]):
    """Sentence pairs: `src[i]` is translated by `tgt[i]`.

    `lines[i]` is the line, from 1, of the source file in which pair i stood; `dropped` counts the pairs that
    were left out, by reason; `where` is what errors call the text, if not `name`. Raises ValueError where the
    three lists differ in length.
    """

    src: list[Sentence]
    tgt: list[Sentence]
    lines: list[int]
    name: str
    dropped: dict[str, int] = field(default_factory=dict)
    where: str = ""

    def __post_init__(self) -> None:
        if not len(self.src) == len(self.tgt) == len(self.lines):
            raise ValueError(
                f"{self.name}: {len(self.src):,} source sentences, {len(self.tgt):,} target sentences and "
                f"{len(self.lines):,} line numbers; all three must be as many"
            )

    def __len__(self) -> int:
        return len(self.src)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, {len(self):,} pairs)"

    def report(self) -> str:
        """Lines for a person: `train: 28,990 pairs`, below it `  dropped 7: an empty side, ...`."""
        reasons = (f"  dropped {count:,}: {reason}" for reason, count in self.dropped.items() if count)
        return "\n".join([f"{self.name}: {len(self):,} pair{'s' * (len(self) != 1)}", *reasons])


class ParallelText(Pairs[str]):
    """Sentence pairs as text."""

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return zip(self.src, self.tgt, strict=True)

    def take(self, indices: Iterable[int], name: str | None = None) -> "ParallelText":
        """The pairs at `indices`, in that order, with their line numbers and nothing counted as dropped."""
        chosen = list(indices)
        src, tgt = ([side[i] for i in chosen] for side in (self.src, self.tgt))
        return ParallelText(src, tgt, [self.lines[i] for i in chosen], name or self.name, where=self.where)

    def without(self, faults: Mapping[str, Sequence[int]]) -> "ParallelText":
        """The pairs but those at the indices of each fault, counted. Raises ValueError if none is left."""
        counts = {self.described(name, where): len(where) for name, where in faults.items() if where}
        left = self.take(sorted({*range(len(self))}.difference(*faults.values())))
        if not left:
            why = "; ".join(f"{count:,} {reason}" for reason, count in counts.items())
            raise ValueError(f"{self.where or self.name}: no pair is left: {why}")
        return replace(left, dropped=self.dropped | counts)

    def described(self, reason: str, where: Sequence[int]) -> str:
        """Say why the pairs at those indices are left out, with the first of them as an example."""
        first, at = where[0], "first in" if len(where) > 1 else "in"
        src, tgt = shortened(self.src[first]), shortened(self.tgt[first])
        return f"{reason}, {at} line {self.lines[first]:,}: {src!r} | {tgt!r}"


@dataclass(frozen=True)
class Corpus:
    """A corpus in its splits: `corpus["train"]`, `corpus["val"]`, ..."""

    name: str
    src_language: str | None  # None where nobody has named it
    tgt_language: str | None
    splits: dict[str, ParallelText]

    @property
    def pair(self) -> str | None:
        """The languages as `load_corpus` takes them, such as "de-en"."""
        return f"{self.src_language}-{self.tgt_language}" if self.src_language else None

    def __repr__(self) -> str:
        splits = ", ".join(f"{name} {len(text):,}" for name, text in self.splits.items())
        return f"Corpus({self.name}, {self.pair or 'languages unknown'}, pairs: {splits})"

    def __getitem__(self, split: str) -> ParallelText:
        if split not in self.splits:
            raise ValueError(f"{self.name} has no split {split!r}; its splits are {', '.join(self.splits)}")
        return self.splits[split]


def read_parallel(src_path: Name, tgt_path: Name, name: str | None = None) -> ParallelText:
    """Two files, plain or .gz, line i of the one translated by line i of the other.

    A pair with an empty side is dropped and counted in `dropped`. Raises FileNotFoundError; ValueError
    naming the files where they have different numbers of lines or no pair at all, and the file and line
    where it is not UTF-8.
    """
    src, tgt = (list(enumerate(read_lines(path), start=1)) for path in (src_path, tgt_path))
    return align(src, tgt, name or Path(src_path).name, (str(src_path), str(tgt_path)))


def read_tsv(path: Name, name: str | None = None) -> ParallelText:
    """A file, plain or .gz, with `source<TAB>target` in each line.

    Further columns (an attribution) are not read. Pairs with an empty side, and wholly empty lines, are
    dropped and counted. Raises as `read_parallel` does, and ValueError naming the line that has no second
    column, or where the pairs begin only with the second: most lines have a number, then two more columns.
    """
    rows = [line.split("\t") for line in read_lines(path)]
    for number, columns in enumerate(rows, start=1):
        if len(columns) < 2 and columns[0].strip():
            raise ValueError(f"{path}, line {number}: no tab; each line must be source<TAB>target")
    if 2 * sum(len(columns) > 2 and columns[0].strip().isdigit() for columns in rows) > len(rows):
        raise ValueError(f"{path}: the first column holds numbers; the first two must be source and target")
    pairs = ((number, row[0], "".join(row[1:2])) for number, row in enumerate(rows, start=1))
    return filled(pairs, name or Path(path).name, str(path))


def align(
    src: Sequence[tuple[int, str]], tgt: Sequence[tuple[int, str]], name: str, where: tuple[str, str]
) -> ParallelText:
    """Pair two lists of (line number, sentence), called `where` in errors, as `read_parallel` does."""
    if len(src) != len(tgt):
        raise ValueError(
            f"{where[0]} has {len(src):,} lines, but {where[1]} has {len(tgt):,}; "
            "line i of the one must be the translation of line i of the other"
        )
    pairs = ((number, one, other) for (number, one), (_, other) in zip(src, tgt, strict=True))
    return filled(pairs, name, " and ".join(where))


def filled(pairs: Iterable[tuple[int, str, str]], name: str, where: str) -> ParallelText:
    """The pairs (line number, source, target) with both sides filled; the others are counted."""
    rows = list(pairs)
    if not any(src.strip() and tgt.strip() for _, src, tgt in rows):
        raise ValueError(f"{where}: no sentence pair with both sides filled")
    lines, src, tgt = (list(column) for column in zip(*rows, strict=True))
    text = ParallelText(src, tgt, lines, name, where=where)
    return text.without(
        {"an empty side": [i for i, pair in enumerate(text) if not all(map(str.strip, pair))]}
    )


def read_lines(path: Name) -> list[str]:
    """The lines of a UTF-8 file, plain or compressed by gzip.

    Raises FileNotFoundError, ValueError that names file and line, OSError for what the memory cannot hold.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; a file with one sentence a line is wanted")
    with naming(path):
        data = path.read_bytes()
        if path.suffix == ".gz" or data.startswith(GZIP):
            try:
                data = gzip.decompress(data)
            except (OSError, EOFError, zlib.error) as error:
                raise ValueError(f"{path} is not a whole gzip file: {error}") from None
        return split_lines(data, str(path))


def split_lines(data: bytes, name: str, after: int = 0) -> list[str]:
    """Bytes to lines, cut at LF alone; `name` is what an error calls them, `after` how many came before them.

    Raises ValueError for bytes that are not UTF-8.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = after + data.count(b"\n", 0, error.start) + 1
        what, encoding = "text in Latin-1, as on older Windows,", "latin1"
        if b"\0" in data:
            what, encoding = "there are zero bytes as in UTF-16, which, if this is text,", "utf16"
        raise ValueError(
            f"{name}, line {line}: byte 0x{data[error.start]:02x} is not UTF-8; {what} is converted by "
            f"iconv -f {encoding} -t utf8"
        ) from None
    lines = (text if after else text.removeprefix("\ufeff")).split("\n")
    if not lines[-1]:
        lines.pop()  # what follows the last LF is not a line
    return [line.removesuffix("\r") for line in lines]


def shortened(sentence: str, length: int = 40) -> str:
    """Return the sentence, or its beginning and three dots, in at most so many characters."""
    return sentence if len(sentence) <= length else sentence[: length - 3] + "..."
