"""Tables with a source and a target in each row: which columns those are, and whether the first row is text.

The first row holds names if they are usual ones, such as source and target or en and de. In a .csv or .xlsx
file it also does if it looks like names and no other row does.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from annotated.translation.data.formats import SAMPLE_ROWS, TABLES, Table, TableRow, read_tsv, table_suffix
from annotated.translation.data.pairs import ParallelText, languages, shortened
from annotated.translation.data.text_files import Name, collect
from annotated.translation.messages import print_message

Columns = Sequence[str | int] | None

# Usual names of columns, by the side that they stand for.
ROLES = {"source", "src", "input", "text"}, {"target", "tgt", "output", "translation"}
USUAL_NAMES = ROLES[0] | ROLES[1]
MIN_ROWS_FOR_HEADER = 20  # with fewer, a first row unlike the others may still be text
# What a table is asked about, by the number of columns that are read; Python's functions read two.
ADVICE = {
    1: "give --columns the name or the number, from 1, of the source",
    2: "give --columns, in Python columns, names or numbers, from 1, of source and target",
}
HEADER_CELL, LANGUAGE_CODE = re.compile(r"[^\W\d_][\w.-]*"), re.compile("[a-z]{2}([-_][a-z]{2,4})?")


def read_pairs(
    path: Name, columns: Columns = None, name: str | None = None, pair: str | None = None
) -> ParallelText:
    """Read a table: .tsv, .csv, .jsonl, .json (each may be compressed by gzip), .parquet or .xlsx.

    `columns` are the names or the numbers, from 1, of source and target. By default they are named as the
    languages of `pair`, or are the only two, or the first two of a .tsv file. Pairs with an empty side are
    dropped and counted, as is the row of the names.

    Raises ValueError, with its line, for a row of another width than the first, or a cell that is not text.
    """
    read = TABLES.get(table_suffix(path), read_tsv)
    return table_pairs(read(path), columns, name=name or Path(path).name, where=str(path), pair=pair)


def table_pairs(
    table: Table, columns: Columns, name: str, where: str, pair: str | None = None
) -> ParallelText:
    """Make parallel text of two columns, or fields such as translation.de, of a table."""
    labels, (src, tgt), header_line, rows = select_columns(table, columns, where=where, pair=pair)
    text = collect(((number, cells[src], cells[tgt]) for number, cells in rows), name, where)
    if not header_line:
        return text
    header = f"column names, in line {header_line:,}: {labels[src]!r} and {labels[tgt]!r}"
    return replace(text, dropped={header: 1, **text.dropped})


class SelectedColumns(NamedTuple):
    """The columns of a table that are read, and its rows."""

    labels: list[str]  # the names of all columns
    indices: list[int]  # the columns that are read
    header_line: int  # the line that names the columns, which is 0 where none does
    rows: Iterator[TableRow]  # the rows below that line, checked


def select_columns(
    table: Table, columns: Columns, where: str, pair: str | None, count: int = 2
) -> SelectedColumns:
    """Find source and target in a table, or with a `count` of 1 the source. Raises as `read_pairs` does."""
    rows = even_rows(table, where)
    head = list(islice(rows, SAMPLE_ROWS))
    filled = [cells for _, cells in head if cells]
    if not filled:
        raise ValueError(f"{where}: there are no rows")
    labels = list(table.names or [str(cell or "").strip() for cell in filled[0]])
    codes = [code.casefold() for code in languages(pair) if code]
    indices = find_columns(table, labels, columns, codes=codes[:count], where=where, count=count)
    selected = [labels[index] for index in indices]
    rows = chain(head, rows)
    header_line = 0
    if table.names is None and has_header(filled, selected, columns, codes, table.header_expected, where):
        header_line = next(number for number, cells in rows if cells)
    if pair and (table.names is not None or header_line):
        check_languages(selected, pair, asked=columns is not None, where=where)
    if columns is None and indices[0] == 0 and len(labels) > 2 and table.takes_first_columns:
        numbered = sum(str(cells[0]).strip().isdigit() for cells in filled)
        if 2 * numbered > len(filled):
            raise ValueError(f"{where}: column 1 holds numbers; {ADVICE[count]}")
    return SelectedColumns(labels, indices, header_line, checked_rows(rows, labels, indices, where))


def has_header(
    rows: Sequence[Any], selected: list[str], columns: Columns, codes: list[str], expected: bool, where: str
) -> bool:
    """Decide whether the first row holds names. Raises ValueError if that is unsure."""
    if any(not str(column).isdecimal() or int(column) > len(rows[0]) for column in columns or ()):
        return True  # a column was asked for by its name
    names = [name.casefold() for name in selected]
    if USUAL_NAMES.issuperset(names) or all(n in codes or LANGUAGE_CODE.fullmatch(n) for n in names):
        return True
    if not columns:
        return begins_with_names(rows, expected, where, count=len(selected))
    first = " and ".join(map(repr, map(shortened, selected)))
    print_message(f"{where}: columns by number, so the first row is text: {first}; names leave it out")
    return False


def even_rows(table: Table, where: str) -> Iterator[TableRow]:
    """Iterate over the rows of a table. Raises ValueError for one of another width than the first."""
    width = 0
    for number, cells in table.rows:
        width = width or len(cells)
        if cells and len(cells) != width:
            widths = f"{len(cells)} columns, but the first row has {width}"
            raise ValueError(f"{where}, line {number:,}: {widths}; {table.advice}")
        yield number, cells


def checked_rows(
    rows: Iterable[TableRow], labels: Sequence[str], indices: Sequence[int], where: str
) -> Iterator[TableRow]:
    """Iterate over rows with text in the columns at the indices; a row without cells has empty ones."""
    for number, cells in rows:
        cells = cells or [""] * len(labels)
        for index in indices:
            if type(cell := cells[index]) not in (str, type(None)):
                advice = getattr(cell, "advice", "save it as text, a cell a row")
                kind = f"{cell!r:.40} ({type(cell).__name__}), not text; {advice}"
                raise ValueError(f"{where}, line {number:,}: column {labels[index]} holds {kind}")
        yield number, cells


def find_columns(
    table: Table, labels: Sequence[str], columns: Columns, codes: Sequence[str], where: str, count: int
) -> list[int]:
    """Find the indices of the columns asked for, or of those named as languages or as source and target.

    A number counts columns from 1, unless it is the name of one. Raises ValueError if they are not found.
    """

    def find(column: str | int) -> int | None:
        number = int(column) if str(column).isdecimal() else 0
        if 1 <= number <= len(labels) and not (table.names is not None and str(column) in labels):
            return number - 1
        matches = [i for i, label in enumerate(labels) if is_named(label, str(column))]
        return matches[0] if len(matches) == 1 else None

    found = [find(column) for column in columns or codes]
    indices = [index for index in found if index is not None]
    if columns is None and len(indices) != count:
        roles = [[i for i, label in enumerate(labels) if label.casefold() in role] for role in ROLES[:count]]
        if all(len(role) == 1 for role in roles):
            return [index for [index] in roles]
        if len(labels) == count:
            return list(range(count))
        if table.takes_first_columns and len(labels) > count:
            first = "the first is" if count == 1 else "the first two are"
            print_message(f"{where}: of its {len(labels)} columns, {first} read; else {ADVICE[count]}")
            return list(range(count))
    if len(labels) < count:
        raise ValueError(f"{where}: there is only one column, {shortened(labels[0])!r}; {table.advice}")
    if not len(indices) == len(found) == len({*indices}) == count:
        shown = ", ".join([*map(quote, map(shortened, labels[:20])), *["..."][: len(labels) > 20]])
        lost = " or ".join(str(c) for c, i in zip(columns or (), found, strict=False) if i is None)
        lost = lost and f"there is not one column {lost}; "
        title = "delete lines above the names, or " * ("" in labels)
        raise ValueError(f"{where}: {lost}{title}{ADVICE[count]}; there are {shown}")
    return indices


def is_named(label: str, name: str) -> bool:
    """Tell whether a column has a name, such as de: it may also be called DE, translation.de or de_AT."""
    label, name = label.casefold(), name.casefold()
    with_region = label[:2] == name and LANGUAGE_CODE.fullmatch(label) is not None
    return label == name or label.endswith(f".{name}") or with_region


def check_languages(labels: Sequence[str], pair: str, asked: bool, where: str) -> None:
    """Raise ValueError for columns named as the other language, or, if not `asked` for, as neither."""
    codes = pair.casefold().split("-", 1)
    columns = " and ".join(map(repr, labels))
    for label, code, other in zip(labels, codes, codes[::-1], strict=False):
        if is_named(label, other) and not is_named(label, code):
            are = "columns are" if len(labels) > 1 else "column is"
            raise ValueError(f"{where}: the {are} {columns}, but the pair is {pair}")
    known = USUAL_NAMES.issuperset(map(str.casefold, labels))
    if not asked and not known and not all(map(is_named, labels, codes)):
        other = "name theirs by --pair, in Python pair, or " if len(labels) == 2 else ""
        raise ValueError(f"{where}: {columns} may be {pair} or not; {other}{ADVICE[len(labels)]}")


def begins_with_names(rows: Sequence[Sequence[Any]], expected: bool, where: str, count: int) -> bool:
    """Decide whether the first row holds names, as may be `expected`. Raises ValueError if that is unsure."""

    def named(cells: Sequence[Any]) -> bool:
        return all(HEADER_CELL.fullmatch(str(cell or "").strip()) for cell in cells)

    others_named = any(map(named, rows[1:]))
    if not named(rows[0]) or (not expected and (others_named or len(rows) < MIN_ROWS_FOR_HEADER)):
        return False
    if expected and not others_named:
        return True
    shown = quote(join_columns(str(cell).strip() for cell in rows[0]))
    sides = ("SOURCE, one of these,", "SOURCE,TARGET, two of these,")[count - 1]
    names, numbers = shown if len(rows[0]) == count else sides, ("1", "1,2")[count - 1]
    raise ValueError(
        f"{where}: the first row, {shown}, may be names or text; give --columns {names} for names, "
        f"or by number, such as --columns {numbers}, for text" + " (in Python columns)" * (count == 2)
    )


def join_columns(names: Iterable[str | int]) -> str:
    """Write names or numbers of columns as `--columns` takes them: a name with a comma is quoted."""
    row = io.StringIO()
    csv.writer(row, lineterminator="").writerow(names)
    return row.getvalue()


def split_columns(text: str) -> list[str]:
    """Read what `join_columns` writes."""
    return next(csv.reader([text], skipinitialspace=True))


# ---- what shows that text was not read as it was meant


def drop_faults(text: ParallelText, pair: str | None = None, keep_equal: bool | None = None) -> ParallelText:
    """Drop a row of column names and, unless `keep_equal`, pairs with equal sides; count them.

    Raises ValueError if most pairs have equal sides and `keep_equal` is None, or if the columns are in the
    other order than `pair`.
    """
    where = text.where or text.name
    first = tuple(side.casefold() for side in next(iter(text)))
    codes = tuple(code and code.casefold() for code in languages(pair))
    if all(side in role for side, role in zip(first, ROLES[::-1], strict=True)):
        raise ValueError(f"{where}: the sides are named {first[0]} and {first[1]}; give the source first")
    if first[::-1] == codes != first:
        raise ValueError(f"{where}: the columns are {first[0]} and {first[1]}, but the pair is {pair}")
    names = [0] if first == codes or USUAL_NAMES.issuperset(first) else []
    equal = [i for i, (src, tgt) in enumerate(text) if src == tgt and i not in names]
    if keep_equal:
        equal = []
    elif keep_equal is None and 2 * len(equal) > len(text):
        raise ValueError(
            f"{where}: {len(equal):,} of {len(text):,} pairs have equal sides; if they should, use "
            "--keep-equal, in Python keep_equal=True, and --no-keep-equal, keep_equal=False, leaves them out"
        )
    return text.without({"column names": names, "source and target equal": equal})


def check_sides(train: ParallelText, val: ParallelText) -> None:
    """Raise ValueError if source and target are swapped between `train` and `val`.

    That is assumed if each side of `val` shares more than twice as many words with the other side of `train`.
    """
    src, tgt, val_src, val_tgt = (
        {word for sentence in side[:100_000] for word in sentence.split()}
        for side in (train.src, train.tgt, val.src, val.tgt)
    )
    if len(val_src & tgt) > 2 * len(val_src & src) and len(val_tgt & src) > 2 * len(val_tgt & tgt):
        raise ValueError(f"source and target of {val.name} are swapped with respect to {train.name}")
