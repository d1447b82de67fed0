"""Read sentence pairs from files, one line at a time.

A line ends at LF and nowhere else (at CR in a file without LF): NEL, U+2028, vertical tabs and form feeds are
characters of a sentence. Sentences are normalized (`tokenizers.normalize`), so that stray carriage
returns, spaces and byte order marks neither reach a model nor hide that two sentences are the same.
"""

import codecs
import gzip
import io
import zlib
from array import array
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from os import PathLike
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from tqdm import tqdm

from annotated.translation.data.packed import TEXT_TYPE, PackedRows, map_file
from annotated.translation.data.pairs import ParallelText
from annotated.translation.files import decode_lines
from annotated.translation.messages import print_message
from annotated.translation.tokenizers import normalize

Name = str | PathLike[str]  # the name of a file
Row = tuple[int, str | None, str | None]  # line number, source, target

# The first bytes of a gzip file, and those of Office's files, Parquet and PDF.
GZIP_START = b"\x1f\x8b"
BINARY_STARTS = b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"PAR1\x15", b"%PDF-"
MISSING_LINE: Any = object()  # stands for a line that one of two files lacks


# ---- pairs


def read_parallel(src_path: Name, tgt_path: Name, name: str | None = None) -> ParallelText:
    """Read two files, plain or gzip, of which line i of one translates line i of the other.

    Pairs with an empty side are dropped and counted. Raises ValueError if the files differ in their number of
    lines, have no pair, or are not UTF-8.
    """
    where = f"{src_path} and {tgt_path}"
    rows = align(iterate_lines(src_path), iterate_lines(tgt_path), where)
    return collect(rows, name or Path(src_path).name, where)


def align(src: Iterable[str | None], tgt: Iterable[str | None], where: str) -> Iterator[Row]:
    """Number the pairs of two sources of sentences. Raises ValueError if one has more of them."""
    for number, (source, target) in enumerate(zip_longest(src, tgt, fillvalue=MISSING_LINE), start=1):
        if source is MISSING_LINE or target is MISSING_LINE:
            side = "source" if source is MISSING_LINE else "target"
            ends = f"the {side} ends after {number - 1:,} lines, the other goes on"
            raise ValueError(f"{where}: {ends}; line by line, one must translate the other")
        yield number, source, target


def collect(pairs: Iterable[Row], name: str, where: str) -> ParallelText:
    """Normalize pairs, and drop and count those with an empty side; the text stays on the disk."""
    lines = array("q")
    sizes = array("q"), array("q")
    with_no_break_space = 0
    with TemporaryFile() as src, TemporaryFile() as tgt:
        for line, *pair in progress(f"reading {name}", "pairs", items=pairs):
            lines.append(line)
            with_no_break_space += any(space in (pair[1] or "") for space in "\u00a0\u202f")
            for sentence, file, lengths in zip(pair, (src, tgt), sizes, strict=True):
                lengths.append(file.write(normalize(sentence or "").encode(errors="surrogatepass")))
        if not lines:
            why = "it has names alone, or is an iterator, which gives its pairs only once"
            raise ValueError(f"{where}: no sentence pairs; {why}")
        rows = PackedRows(map_file(src, TEXT_TYPE), sizes[0]), PackedRows(map_file(tgt, TEXT_TYPE), sizes[1])
    if with_no_break_space:
        targets = f"{with_no_break_space:,} of {len(lines):,} targets have no-break spaces"
        advice = "which a model reads and writes as plain ones; placeholders keep them (see Recipes)"
        print_message(f"{name}: {targets}, {advice}")
    empty = np.flatnonzero(np.minimum(*sizes) == 0).tolist()
    return ParallelText(rows[0], rows[1], lines, name, where=where).without({"an empty side": empty})


def progress(text: str, unit: str, total: int | None = None, items: Any = None) -> tqdm:
    """Show a progress bar, on a terminal, for work that takes more than two seconds."""
    return tqdm(items, text, total, unit=f" {unit}", leave=False, delay=2, disable=None)


# ---- lines


def read_lines(path: Name) -> list[str]:
    """Read the lines of a file in UTF-8, plain or gzip. Raises FileNotFoundError, or ValueError."""
    return list(iterate_lines(path))


def iterate_lines(path: Name) -> Iterator[str]:
    """Iterate over the lines of a file, as `read_lines` returns them; a mark at its start tells UTF-16."""
    with open(path, "rb") as file:
        begin = file.peek(2)
        if begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # spreadsheets write it
            text = io.TextIOWrapper(file, "utf-16", newline="\n")
            yield from decode_lines((line.encode() for line in text), str(path))
            return
        if begin.startswith(BINARY_STARTS):
            advice = "save it as .csv in UTF-8, or name it .xlsx or .parquet if it is"
            raise ValueError(f"{path} is no text; {advice}")
        packed = Path(path).suffix.lower() == ".gz" or begin.startswith(GZIP_START)
        try:
            yield from decode_lines(gzip.GzipFile(fileobj=file) if packed else file, str(path))
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            advice = "copy it anew, or name it without .gz"
            raise ValueError(f"{path} is not a whole gzip file: {error}; {advice}") from None
