"""Tables with a source and a target in each row, of which every cell is text, as it was written.

A CSV file's separator is one of `, ; | TAB`, by which its rows have one width, or named by a first line such
as `sep=;`, as Excel writes it. The first row holds names where they are usual ones, such as source and target
or en and de, and in a .csv or .xlsx file where it looks like names and no other row does.
"""

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

from annotated.extras import require
from annotated.translation.data.pairs import ParallelText, languages, shortened
from annotated.translation.data.text_files import Name, collect, iterate_lines

HEAD = 1000  # rows by which the separator, quotes and names are recognized
KNOWN = {"source", "target", "src", "tgt", "input", "output", "text", "translation"}  # as names of columns
QUOTED = re.compile('"((?:[^"]|"")*)"')
NAME, CODE = re.compile(r"[^\W\d_][\w.-]*"), re.compile("[a-z]{2}([-_][A-Za-z]{2,4})?")


class Table(NamedTuple):
    """The rows of a table with their lines, from 1, and the names of its columns.

    Names that are None may stand in the first row; they `usually` do in some formats.
    """

    rows: Iterator[tuple[int, Sequence[Any]]]
    names: Sequence[str] | None = None
    usually: bool = False


def read_pairs(
    path: Name, columns: Sequence[str | int] | None = None, name: str | None = None, pair: str | None = None
) -> ParallelText:
    """Read a table: .tsv, .csv, .jsonl, .json (each may be compressed by gzip), .parquet or .xlsx.

    `columns` are the names or the numbers, from 1, of source and target. By default they are named as the
    languages of `pair`, or are the only two, or the first two of a .tsv file. Pairs with an empty side are
    dropped and counted, as is the row of the names.

    Raises ValueError, with its line, for a row of another width than the first, or a cell that is not text.
    """
    read = TABLES.get(table_suffix(path), read_tsv)
    return table_pairs(read(path), columns, name or Path(path).name, str(path), pair)


def table_suffix(path: Name) -> str:
    """Return the suffix, without .gz, by which a file holds both sides, such as .csv; "" for other files."""
    suffix = Path(Path(path).name.lower().removesuffix(".gz")).suffix
    return suffix if suffix in TABLES else ""


def table_pairs(
    table: Table, columns: Sequence[str | int] | None, name: str, where: str, pair: str | None = None
) -> ParallelText:
    """Make parallel text of two columns, or fields such as translation.de, of a table."""
    labels, (src, tgt), line, rows = select_columns(table, columns, where, pair)
    text = collect(((number, cells[src], cells[tgt]) for number, cells in rows), name, where)
    names = f"column names, in line {line:,}: {labels[src]!r} and {labels[tgt]!r}"
    return replace(text, dropped={names: 1, **text.dropped} if line else text.dropped)


class Selection(NamedTuple):
    """The names of a table's columns, the places of those that were asked for, and its rows as text.

    The `line` is that of the row of names, 0 if there is none.
    """

    labels: list[str]
    places: list[int]
    line: int
    rows: Iterator[tuple[int, Sequence[Any]]]


def select_columns(
    table: Table, columns: Sequence[str | int] | None, where: str, pair: str | None, count: int = 2
) -> Selection:
    """Find source and target in a table, or with a `count` of 1 the source. Raises as `read_pairs` does."""
    rows, names, usually = table
    head = list(islice(rows, HEAD))
    filled = [cells for _, cells in head if cells]
    if not filled:
        raise ValueError(f"{where}: there are no rows")
    labels = [str(cell or "") for cell in filled[0]] if names is None else list(names)
    codes = [code.casefold() for code in languages(pair) if code]
    spare = names is None and not usually
    places = find_columns(labels, columns, codes[:count], where, spare, count)
    chosen = [labels[place].casefold() for place in places]
    numbers = columns is not None and all(str(column).isdigit() for column in columns)
    line, lines = 0, iter(head)
    if names is None and (
        (columns and not numbers)
        or KNOWN.issuperset(chosen)
        or all(label in codes or CODE.fullmatch(label) for label in chosen)
        or (usually and not columns and begins_with_names(filled, where))
    ):
        line = next(number for number, cells in lines if cells)
    first = " and ".join(repr(labels[place]) for place in places)
    if codes and (names is not None or line):
        if any(
            is_named(labels[p], codes[1 - i]) > is_named(labels[p], codes[i]) for i, p in enumerate(places)
        ):
            raise ValueError(f"{where}: the columns are {first}, but the pair is {pair}")
        if columns is None and not KNOWN.issuperset(chosen) and not all(map(is_named, chosen, codes)):
            raise ValueError(f"{where}: are the columns {first} {pair}? Give --columns, source first")
    if spare and columns is None and places[0] == 0 and len(labels) > 2:
        numbered = sum(str(cells[0]).strip().isdigit() for cells in filled)
        if 2 * numbered > len(filled):
            raise ValueError(f"{where}: the first column holds numbers; name two by --columns, such as 2,3")

    def checked() -> Iterator[tuple[int, Sequence[Any]]]:
        for number, cells in chain(lines, rows):
            if cells and len(cells) != len(labels):
                widths = f"{len(cells)} columns, but the first row has {len(labels)}"
                raise ValueError(f"{where}, line {number:,}: {widths}")
            cells = cells or [""] * len(labels)
            for place in places:
                if not isinstance(cell := cells[place], str | None):
                    kind = f"{cell!r:.40} ({type(cell).__name__}), not text; save that column as text"
                    raise ValueError(f"{where}, line {number:,}: column {labels[place]} holds {kind}")
            yield number, cells

    return Selection(labels, places, line, checked())


def find_columns(
    labels: Sequence[str],
    columns: Sequence[str | int] | None,
    codes: Sequence[str],
    where: str,
    spare: bool,
    count: int,
) -> list[int]:
    """Find the places of columns; with `spare` columns, the first where nothing names them.

    Raises ValueError where they are not found.
    """

    def place(wanted: str | int) -> int | None:
        if str(wanted).isdigit() and str(wanted) not in labels:
            return int(wanted) - 1 if 1 <= int(wanted) <= len(labels) else None
        named = [i for i, label in enumerate(labels) if is_named(label, str(wanted))]
        return named[0] if len(named) == 1 else None

    found = [place(column) for column in columns or codes]
    places = [each for each in found if each is not None]
    if columns is None and len(places) != count and (len(labels) == count or (spare and len(labels) > count)):
        return list(range(count))
    if len(labels) < count and spare:
        raise ValueError(f"{where}: there is no tab in the first line; each must be source<TAB>target")
    if not len(places) == len(found) == len({*places}) == count:
        shown = ", ".join(shortened(label) for label in labels)
        what = "names or numbers of source and target" if count == 2 else "name or number of the source"
        raise ValueError(f"{where}: give --columns, in Python columns, the {what}; the columns are {shown}")
    return places


def is_named(label: str, wanted: str) -> bool:
    """Tell whether a column has a name, such as de: it may also be called DE, translation.de or de_AT."""
    own, name = label.casefold(), wanted.casefold()
    return own == name or own.endswith(f".{name}") or (CODE.fullmatch(label) is not None and own[:2] == name)


def begins_with_names(rows: Sequence[Sequence[Any]], where: str) -> bool:
    """Decide whether the first of these rows holds names. Raises ValueError where others look like it."""

    def named(cells: Sequence[Any]) -> bool:
        return all(NAME.fullmatch(str(cell or "")) for cell in cells)

    if not named(rows[0]):
        return False
    if any(map(named, rows[1:])):
        shown = ",".join(map(str, rows[0]))
        raise ValueError(
            f"{where}: the first row, {shown}, may be names or text; give --columns {shown} for names, "
            "or the numbers of the columns, such as --columns 1,2, for text"
        )
    return True


# ---- formats


def read_tsv(path: Name) -> Table:
    """Read a .tsv file. Quotes are removed where all cells have them, or where they protect doubled ones.

    So write pandas and spreadsheets; elsewhere quotes are characters of the text.
    """
    lines = enumerate(iterate_lines(path), start=1)
    head = list(islice(lines, HEAD))
    cells = [cell for _, line in head for cell in line.split("\t") if cell and not cell.isdigit()]
    quoted = all(map(QUOTED.fullmatch, cells))

    def unquote(cell: str) -> str:
        match = QUOTED.fullmatch(cell)
        return match[1].replace('""', '"') if match and (quoted or '""' in match[1]) else cell

    rows = ((i, [unquote(cell) for cell in line.split("\t")]) for i, line in chain(head, lines))
    return Table((i, cells if any(map(str.strip, cells)) else []) for i, cells in rows)


def read_csv(path: Name) -> Table:
    """Read a .csv file; a row begins in the line that it is named by, and may have several."""
    lines = iterate_lines(path)
    head = list(islice(lines, HEAD))
    given = head[0][4:] if head and re.fullmatch("(?i)sep=.", head[0]) else ""
    separator = given or find_separator(head, str(path))

    def rows() -> Iterator[tuple[int, list[str]]]:
        begun = bool(given)
        text = (f"{line}\n" for line in chain(head[begun:], lines))
        reader = csv.reader(text, delimiter=separator, strict=True)
        while True:
            line = begun + reader.line_num + 1
            try:
                yield line, next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                advice = "a quotation mark inside of quotes must be doubled"
                raise ValueError(f"{path}, in the row of line {line:,}: {error}; {advice}") from None

    return Table(rows(), usually=True)


def find_separator(lines: Sequence[str], where: str) -> str:
    """Find the separator by which most rows are as wide as the first. Raises ValueError unless it is one."""
    fits = {}
    for separator in ",;\t|":
        widths = [len(row) for row in csv.reader(lines, delimiter=separator) if row]
        if widths and widths[0] > 1:
            fits[separator] = widths.count(widths[0]) / len(widths)
    best = [separator for separator, share in fits.items() if share == max(fits.values())]
    if lines and len(best) != 1:
        which = " and ".join(map(repr, best)) or "none of , ; | and tabs"
        raise ValueError(
            f"{where}: {which} could separate the columns; name one in a first line, as in sep=;"
        )
    return best[0] if best else ","


def read_json(path: Name) -> Table:
    """Read a .jsonl file, an object a line, or an array of objects. Numbers stay as they are written."""
    lines = ((i, line) for i, line in enumerate(iterate_lines(path), start=1) if line.strip())
    begin = next(lines, None)
    if begin is None:
        raise ValueError(f"{path}: there are no rows")

    def parse(line: int, text: str) -> Any:
        as_written: dict[str, Any] = {"parse_int": str, "parse_float": str, "parse_constant": lambda _: None}
        try:
            return json.loads(text, **as_written)
        except (ValueError, RecursionError) as error:
            form = "there must be an object in each line, or one array of objects"
            raise ValueError(f"{path}, line {line:,}: {error}; {form}") from None

    def objects() -> Iterator[tuple[int, dict[str, Any]]]:
        every, array = chain([begin], lines), begin[1].lstrip().startswith("[")
        whole = parse(1, "\n".join(line for _, line in every)) if array else ()
        for line, value in enumerate(whole, start=1) if array else ((i, parse(i, line)) for i, line in every):
            if not isinstance(value, dict):
                raise ValueError(f"{path}, line {line:,}: {value!s:.40} is not an object")
            yield line, flatten(value)

    rows = objects()
    head = list(islice(rows, HEAD))
    names = list(dict.fromkeys(chain.from_iterable(row for _, row in head)))
    return Table(((i, [row.get(name) for name in names]) for i, row in chain(head, rows)), names)


def flatten(fields: dict[str, Any]) -> dict[str, Any]:
    """Name the fields of objects in an object as translation.de; true is the text true."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": found for inner, found in flatten(value).items()}
        else:
            flat[name] = json.dumps(value) if isinstance(value, bool) else value
    return flat


def read_parquet(path: Name) -> Table:
    """Read a .parquet file, some rows at a time."""
    pyarrow, parquet = require("pyarrow", extra="data"), require("pyarrow.parquet", extra="data")
    try:
        file = parquet.ParquetFile(path)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
        raise ValueError(f"{path} cannot be read as Parquet: {error}") from None
    tables = (pyarrow.Table.from_batches([batch]).flatten() for batch in file.iter_batches())
    rows = (row for table in tables for row in zip(*(c.to_pylist() for c in table.columns), strict=True))
    return Table(enumerate(rows, start=1), file.schema_arrow.empty_table().flatten().column_names)


def read_xlsx(path: Name) -> Table:
    """Read the sheet of an .xlsx file that is in front; whole numbers without a format are as they look."""
    openpyxl = require("openpyxl", extra="data")
    try:
        sheet = openpyxl.load_workbook(path, read_only=True, data_only=True).active
    except (openpyxl.utils.exceptions.InvalidFileException, KeyError, ValueError, BadZipFile) as error:
        raise ValueError(f"{path} cannot be read as .xlsx: {error}") from None

    def shown(cell: Any) -> Any:
        if isinstance(cell.value, bool):
            return str(cell.value).upper()
        plain = isinstance(cell.value, int) and cell.number_format in ("General", "@")
        return str(cell.value) if plain else cell.value

    def rows() -> Iterator[tuple[int, list[Any]]]:
        width = 0
        for line, cells in enumerate(sheet.iter_rows(), start=1):
            row = [shown(cell) for cell in cells]
            while row and row[-1] is None:
                row.pop()
            width = width or len(row)
            yield line, [*row, *[None] * (width - len(row))] if row else []

    return Table(rows(), usually=True)


TABLES: dict[str, Callable[[Name], Table]] = {
    ".tsv": read_tsv, ".csv": read_csv, ".json": read_json, ".jsonl": read_json, ".parquet": read_parquet,
    ".xlsx": read_xlsx,
}  # fmt: skip
