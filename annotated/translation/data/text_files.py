"""Read sentence pairs from files, one line at a time.

A line ends at LF and nowhere else (at CR in a file without LF): NEL, U+2028, vertical tabs and form feeds are
characters of a sentence. Sentences are normalized (`tokenizers.normalize`), so that stray carriage
returns, spaces and byte order marks neither reach a model nor hide that two sentences are the same.
"""

import gzip
import re
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import numpy as np
from tqdm import tqdm

from annotated.extras import require
from annotated.translation.data.packed import TEXT, PackedRows, map_file
from annotated.translation.data.pairs import ParallelText
from annotated.translation.files import decode_lines
from annotated.translation.tokenizers import normalize

Name = str | PathLike[str]  # of a file
Row = tuple[int, str | None, str | None]  # line number, source, target

GZIP = b"\x1f\x8b"  # the first bytes of a gzip file
# Suffixes of files that hold both sides, and the loaders of `datasets` that read them.
TABLES = {".tsv": None, ".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
QUOTED = re.compile('"((?:[^"]|"")*)"')
ENDED: Any = object()  # stands for the lines that one of two files lacks


# ---- pairs


def read_parallel(src_path: Name, tgt_path: Name, name: str | None = None) -> ParallelText:
    """Read two files, plain or gzip, of which line i of one translates line i of the other.

    Pairs with an empty side are dropped and counted. Raises ValueError if the files differ in their number of
    lines, have no pair, or are not UTF-8.
    """
    where = f"{src_path} and {tgt_path}"
    rows = align(iterate_lines(src_path), iterate_lines(tgt_path), where)
    return collect(rows, name or Path(src_path).name, where)


def read_pairs(path: Name, columns: Sequence[str] | None = None, name: str | None = None) -> ParallelText:
    """Read a file that holds both sides: .tsv without names, .csv, .jsonl or .parquet with names of columns.

    Each may be compressed by gzip (not .parquet). `columns` are the names of source and target; without them,
    the file must have two columns. Raises as `read_tsv` does.
    """
    loader = TABLES.get(table_suffix(path))
    if loader is None:
        if columns:
            raise ValueError(f"{path} has no names of columns; .csv, .jsonl and .parquet files have")
        return read_tsv(path, name)
    datasets = require("datasets", extra="data")
    with TemporaryDirectory() as cache:
        try:
            table = datasets.load_dataset(loader, data_files=str(path), split="train", cache_dir=cache)
        except (ValueError, OSError, datasets.exceptions.DatasetGenerationError) as error:
            raise ValueError(f"{path} cannot be read as {loader}: {error.__cause__ or error}") from None
        return table_pairs(table, columns, name or Path(path).name, str(path))


def table_suffix(path: Name) -> str:
    """Return the suffix, without .gz, by which a file holds both sides, such as .csv; "" for other files."""
    suffix = Path(Path(path).name.removesuffix(".gz")).suffix
    return suffix if suffix in TABLES else ""


def table_pairs(table: Any, columns: Sequence[str] | None, name: str, where: str) -> ParallelText:
    """Make parallel text of two columns, or fields such as translation.de, of a `datasets.Dataset`."""
    table = table.flatten()
    names = table.column_names
    wanted = [
        column if column in names else next((n for n in names if n.endswith(f".{column}")), column)
        for column in columns or (names if len(names) == 2 else ())
    ]
    if len(wanted) != 2 or not {*wanted} <= {*names}:
        raise ValueError(f"{where}: name the columns of source and target; there are {', '.join(names)}")
    for column in wanted:
        kind = getattr(table.features[column], "dtype", "lists")
        if kind not in ("string", "large_string", "null"):
            raise ValueError(f"{where}: column {column} holds {kind}, not text")
    return collect(align(table[wanted[0]], table[wanted[1]], where), name, where)


def read_tsv(path: Name, name: str | None = None) -> ParallelText:
    """Read a file, plain or gzip, with `source<TAB>target` in each line.

    Further columns are ignored. Quotes around a side are removed where all sides have them or where they
    protect doubled quotes, as pandas and spreadsheets write. Pairs with an empty side are dropped.

    Raises as `read_parallel` does, and ValueError for a line without a tab, or a first column of numbers.
    """
    count, numbered, quoted = 0, 0, True
    piped = None if Path(path).is_file() else read_lines(path)  # a pipe cannot be read twice
    for count, line in enumerate(iterate_lines(path) if piped is None else piped, start=1):
        row = line.split("\t")[:3]
        if len(row) < 2 and line.strip():
            raise ValueError(f"{path}, line {count}: no tab; each line must be source<TAB>target")
        numbered += len(row) > 2 and row[0].strip().isdigit()
        quoted = quoted and all(QUOTED.fullmatch(side) for side in row[:2] if side)
    if 2 * numbered > count:
        raise ValueError(f"{path}: the first column holds numbers; the first two must be source and target")

    def unquote(side: str) -> str:
        match = QUOTED.fullmatch(side)
        return match[1].replace('""', '"') if match and (quoted or '""' in match[1]) else side

    read_again = iterate_lines(path) if piped is None else piped
    rows = (line.split("\t")[:2] if "\t" in line else ["", ""] for line in read_again)
    pairs = ((i, unquote(src), unquote(tgt)) for i, (src, tgt) in enumerate(rows, start=1))
    return collect(pairs, name or Path(path).name, str(path))


def align(src: Iterable[str | None], tgt: Iterable[str | None], where: str) -> Iterator[Row]:
    """Number the pairs of two sources of sentences. Raises ValueError if one has more of them."""
    for number, (source, target) in enumerate(zip_longest(src, tgt, fillvalue=ENDED), start=1):
        if source is ENDED or target is ENDED:
            side = "source" if source is ENDED else "target"
            raise ValueError(f"{where}: the {side} ends after {number - 1:,} lines, the other goes on")
        yield number, source, target


def collect(pairs: Iterable[Row], name: str, where: str) -> ParallelText:
    """Normalize pairs, and drop and count those with an empty side; the text stays on the disk."""
    lines, sizes = array("q"), (array("q"), array("q"))
    with TemporaryFile() as src, TemporaryFile() as tgt:
        for line, *pair in progress(f"reading {name}", "pairs", items=pairs):
            lines.append(line)
            for sentence, file, lengths in zip(pair, (src, tgt), sizes, strict=True):
                lengths.append(file.write(normalize(sentence or "").encode(errors="surrogatepass")))
        if not lines:
            raise ValueError(f"{where}: no sentence pairs (an iterator gives its pairs only once)")
        rows = PackedRows(map_file(src, TEXT), sizes[0]), PackedRows(map_file(tgt, TEXT), sizes[1])
    empty = np.flatnonzero(np.minimum(*sizes) == 0).tolist()
    return ParallelText(rows[0], rows[1], lines, name, where=where).without({"an empty side": empty})


def progress(text: str, unit: str, total: int | None = None, items: Any = None) -> tqdm:
    """Open a bar for work of more than two seconds, on a terminal."""
    return tqdm(items, text, total, unit=f" {unit}", leave=False, delay=2, disable=None)


# ---- lines


def read_lines(path: Name) -> list[str]:
    """Read the lines of a file in UTF-8, plain or gzip. Raises FileNotFoundError, or ValueError."""
    return list(iterate_lines(path))


def iterate_lines(path: Name) -> Iterator[str]:
    """Iterate over the lines of a file, as `read_lines` returns them."""
    with open(path, "rb") as file:
        packed = Path(path).suffix == ".gz" or file.peek(2).startswith(GZIP)
        try:
            yield from decode_lines(gzip.GzipFile(fileobj=file) if packed else file, str(path))
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path} is not a whole gzip file: {error}") from None
