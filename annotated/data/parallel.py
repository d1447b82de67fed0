"""Parallel text: sentence pairs with their line numbers, and how they are read from files.

A line ends at LF and nowhere else (at CR in a file without LF): NEL, U+2028, vertical tabs and form feeds are
characters of a sentence. Sentences are normalized (`annotated.tokenizers.text`), so that stray carriage
returns, spaces and byte order marks neither reach a model nor hide that two sentences are the same.
"""

import gzip
import re
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Generic, TypeVar

from annotated.tokenizers.text import normalize

Name = str | PathLike[str]  # of a file
Sentence = TypeVar("Sentence")

GZIP = b"\x1f\x8b"  # the first bytes of a gzip file
TABLES = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}  # suffixes, loaders


@dataclass(frozen=True)
class Pairs(Generic[Sentence]):
    """Sentence pairs: `tgt[i]` is the translation of `src[i]`.

    Attributes:
        src, tgt: the sentences.
        lines: for each pair, its line in the source file, from 1.
        name: name of the text, such as its split.
        dropped: number of pairs left out, by reason.
        where: place of the text for error messages, if not `name`.
    """

    src: Sequence[Sentence]
    tgt: Sequence[Sentence]
    lines: list[int]
    name: str
    dropped: dict[str, int] = field(default_factory=dict)
    where: str = ""

    def __post_init__(self) -> None:
        if not len(self.src) == len(self.tgt) == len(self.lines):
            raise ValueError(
                f"{self.name}: {len(self.src):,} source sentences, {len(self.tgt):,} target sentences and "
                f"{len(self.lines):,} line numbers; there must be as many of each"
            )

    def __len__(self) -> int:
        return len(self.src)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, {len(self):,} pairs)"

    def report(self) -> str:
        """Return a summary: `train: 28,990 pairs`, then `  dropped 7: an empty side, ...` for each reason."""
        reasons = (f"  dropped {count:,}: {reason}" for reason, count in self.dropped.items() if count)
        return "\n".join([f"{self.name}: {len(self):,} pair{'s' * (len(self) != 1)}", *reasons])


class ParallelText(Pairs[str]):
    """Sentence pairs as text."""

    src: list[str]
    tgt: list[str]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return zip(self.src, self.tgt, strict=True)

    def take(self, indices: Iterable[int], name: str | None = None) -> "ParallelText":
        """Return the pairs at `indices`, in that order, with their line numbers and nothing dropped."""
        chosen = list(indices)
        src, tgt = ([side[i] for i in chosen] for side in (self.src, self.tgt))
        return ParallelText(src, tgt, [self.lines[i] for i in chosen], name or self.name, where=self.where)

    def without(self, faults: Mapping[str, Sequence[int]]) -> "ParallelText":
        """Drop and count the pairs at the indices of each fault. Raises ValueError if no pair is left."""
        counts = {self.described(name, where): len(where) for name, where in faults.items() if where}
        left = self.take(sorted({*range(len(self))}.difference(*faults.values())))
        if not left:
            why = "; ".join(f"{count:,} {reason}" for reason, count in counts.items())
            raise ValueError(f"{self.where or self.name}: no pair is left: {why}")
        return replace(left, dropped=self.dropped | counts)

    def described(self, reason: str, where: Sequence[int]) -> str:
        """Return a reason for dropping the pairs at indices `where`, with the first of them as an example."""
        first, at = where[0], "first in" if len(where) > 1 else "in"
        src, tgt = shortened(self.src[first]), shortened(self.tgt[first])
        return f"{reason}, {at} line {self.lines[first]:,}: {src!r} | {tgt!r}"


@dataclass(frozen=True)
class Corpus:
    """The splits of a corpus: `corpus["train"]`, `corpus["val"]`, ..."""

    name: str
    src_language: str | None  # None if unknown
    tgt_language: str | None
    splits: dict[str, ParallelText]

    @property
    def pair(self) -> str | None:
        """The two languages, such as "de-en"; None if they are unknown."""
        return f"{self.src_language}-{self.tgt_language}" if self.src_language else None

    def __repr__(self) -> str:
        splits = ", ".join(f"{name} {len(text):,}" for name, text in self.splits.items())
        return f"Corpus({self.name}, {self.pair or 'languages unknown'}, pairs: {splits})"

    def __getitem__(self, split: str) -> ParallelText:
        if split not in self.splits:
            raise ValueError(f"{self.name} has no split {split!r}; its splits are {', '.join(self.splits)}")
        return self.splits[split]


def read_parallel(src_path: Name, tgt_path: Name, name: str | None = None) -> ParallelText:
    """Read two files, plain or gzip, of which line i of one translates line i of the other.

    Pairs with an empty side are dropped and counted. Raises FileNotFoundError; ValueError if the files differ
    in their number of lines, have no pair, or are not UTF-8.
    """
    src, tgt = (read_lines(path) for path in (src_path, tgt_path))
    return align(
        src, tgt, range(1, len(src) + 1), name or Path(src_path).name, (str(src_path), str(tgt_path))
    )


def read_pairs(path: Name, columns: Sequence[str] | None = None, name: str | None = None) -> ParallelText:
    """Read a file that holds both sides: .tsv without names, .csv, .jsonl or .parquet with names of columns.

    Each may be compressed by gzip (not .parquet). `columns` are the names of source and target; without them,
    the file must have two columns. Raises as `read_tsv` does.
    """
    suffixes = [suffix for suffix in Path(path).suffixes if suffix != ".gz"]
    loader = TABLES.get(suffixes[-1]) if suffixes else None
    if loader is None:
        return read_tsv(path, name)
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: no such file")
    datasets = import_datasets()
    with tempfile.TemporaryDirectory() as cache:
        try:
            table = datasets.load_dataset(loader, data_files=str(path), split="train", cache_dir=cache)
        except (ValueError, OSError, datasets.exceptions.DatasetGenerationError) as error:
            raise ValueError(f"{path} cannot be read as {loader}: {error.__cause__ or error}") from None
        return table_pairs(table, columns, name or Path(path).name, str(path))


def import_datasets() -> Any:
    """Import `datasets`; its progress bars are for terminals. Raises ImportError with a way to install it."""
    try:
        import datasets
    except ImportError:
        raise ImportError('datasets is missing: pip install ".[data]" in the clone') from None
    if sys.stderr is None or not sys.stderr.isatty():
        datasets.disable_progress_bars()
    return datasets


def table_pairs(table: Any, columns: Sequence[str] | None, name: str, where: str) -> ParallelText:
    """Make parallel text of two columns, or fields such as translation.de, of a `datasets.Dataset`.

    Raises ValueError if there is no such column, naming those that there are.
    """
    table = table.flatten()
    names = table.column_names
    wanted = [
        next((name for name in names if name == column or name.endswith(f".{column}")), column)
        for column in columns or (names if len(names) == 2 else ())
    ]
    if len(wanted) != 2 or not {*wanted} <= {*names}:
        raise ValueError(f"{where}: name the columns of source and target; there are {', '.join(names)}")
    src, tgt = (table[column] for column in wanted)
    rows = ((i, one, other) for i, (one, other) in enumerate(zip(src, tgt, strict=True), start=1))
    return filled(rows, name, where)


def read_tsv(path: Name, name: str | None = None) -> ParallelText:
    """Read a file, plain or gzip, with `source<TAB>target` in each line.

    Further columns are ignored. Quotes around a side are removed where all sides have them or where they
    protect doubled quotes, as pandas and spreadsheets write. Pairs with an empty side are dropped.

    Raises as `read_parallel` does, and ValueError for a line without a tab, or a first column of numbers.
    """
    rows = [line.split("\t")[:3] for line in read_lines(path)]
    for number, row in enumerate(rows, start=1):
        if len(row) < 2 and row[0].strip():
            raise ValueError(f"{path}, line {number}: no tab; each line must be source<TAB>target")
    if 2 * sum(len(row) > 2 and row[0].strip().isdigit() for row in rows) > len(rows):
        raise ValueError(f"{path}: the first column holds numbers; the first two must be source and target")
    sides = [row[:2] if len(row) > 1 else ["", ""] for row in rows]
    always = all(QUOTED.fullmatch(side) for row in sides for side in row if side)
    pairs = ((i, unquote(src, always), unquote(tgt, always)) for i, (src, tgt) in enumerate(sides, start=1))
    return filled(pairs, name or Path(path).name, str(path))


QUOTED = re.compile('"((?:[^"]|"")*)"')


def unquote(side: str, always: bool) -> str:
    """Remove the quotes of CSV around a side; unless `always`, only if it has doubled quotes inside."""
    quoted = QUOTED.fullmatch(side)
    return quoted[1].replace('""', '"') if quoted and (always or '""' in quoted[1]) else side


def align(
    src: Sequence[str], tgt: Sequence[str], lines: Iterable[int], name: str, where: tuple[str, str]
) -> ParallelText:
    """Pair sentences, of sources called `where` in errors, as `read_parallel` does."""
    if len(src) != len(tgt):
        raise ValueError(
            f"{where[0]} has {len(src):,} lines, but {where[1]} has {len(tgt):,}; "
            "line i of one must be the translation of line i of the other"
        )
    return filled(zip(lines, src, tgt, strict=True), name, " and ".join(where))


def filled(pairs: Iterable[tuple[int, str | None, str | None]], name: str, where: str) -> ParallelText:
    """Normalize pairs (line number, source, target), and drop and count those with an empty side."""
    lines: list[int] = []
    sources: list[str] = []
    targets: list[str] = []
    for line, src, tgt in pairs:
        lines.append(line)
        for sentence, side in ((src or "", sources), (tgt or "", targets)):
            normalized = normalize(sentence)
            side.append(sentence if sentence == normalized else normalized)  # most are: no second copy
    if not lines:
        raise ValueError(f"{where}: no sentence pairs (an iterator gives its pairs only once)")
    if not any(map(all, zip(sources, targets, strict=True))):
        raise ValueError(f"{where}: no sentence pair with both sides filled")
    text = ParallelText(sources, targets, lines, name, where=where)
    return text.without({"an empty side": [i for i, pair in enumerate(text) if not all(pair)]})


def read_lines(path: Name) -> list[str]:
    """Read the lines of a file in UTF-8, plain or gzip. Raises FileNotFoundError, or ValueError."""
    path = Path(path)
    data = path.read_bytes()
    if path.suffix == ".gz" or data.startswith(GZIP):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path} is not a whole gzip file: {error}") from None
    if b"\n" not in data:
        data = data.replace(b"\r", b"\n")
    return split_lines(data, str(path))


def split_lines(data: bytes, name: str, after: int = 0) -> list[str]:
    """Split UTF-8 bytes at LF and drop CRs before it; `after` lines came before, in a file called `name`.

    Raises ValueError for bytes that are not UTF-8.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = after + data.count(b"\n", 0, error.start) + 1
        encoding = "utf16" if b"\0" in data else "latin1"
        raise ValueError(
            f"{name}, line {line}: byte 0x{data[error.start]:02x} is not UTF-8; if the file is {encoding}, "
            f"convert it with iconv -f {encoding} -t utf8"
        ) from None
    lines = (text if after else text.removeprefix("\ufeff")).split("\n")
    if not lines[-1]:
        lines.pop()  # what follows the last LF is not a line
    return [line.rstrip("\r") for line in lines]


def shortened(sentence: str, length: int = 40) -> str:
    """Return a sentence, or its beginning and three dots, in at most `length` characters."""
    return sentence if len(sentence) <= length else sentence[: length - 3] + "..."
