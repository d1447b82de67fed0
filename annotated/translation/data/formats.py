"""Formats of tables: how the rows of each are read. Every cell is text, as it was written.

The separator of a .csv file is the one of `, ; | TAB` that cuts its rows into equally many cells, or the one
that a first line such as `sep=;` names, as Excel writes it.
"""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple
from zipfile import BadZipFile

from annotated.optional import require
from annotated.translation.data.pairs import shortened
from annotated.translation.data.text_files import Name, iterate_lines
from annotated.translation.files import dict_of_unique
from annotated.translation.messages import print_message

SAMPLE_ROWS = 1000  # rows by which the separator, quotes and names are recognized
QUOTED = re.compile('"((?:[^"]|"")*)"')
ITEM_SEPARATOR = re.compile(r"[\s,]*")  # two items of an array


TableRow = tuple[int, Sequence[Any]]  # the line of a row, from 1, and its cells


class CellError(str):
    """What a spreadsheet shows for an error, such as #N/A."""

    advice = "mend it, or delete the row"


class UnsavedFormula(str):
    """A formula whose value is not in the file, as programs write it that compute none."""

    advice = "open the file in a spreadsheet program and save it there"


class Table(NamedTuple):
    """The rows of a table, the names of its columns, and what separates those.

    If `names` is None, the first row may hold them; in some formats it is expected to.
    """

    rows: Iterator[TableRow]
    names: Sequence[str] | None = None
    header_expected: bool = False
    separator: str = ","
    quoted: bool = False  # all cells of a .tsv file stand in quotes, which were removed
    advice: str = "it needs one for each language"  # where its rows have too few columns or differ

    @property
    def takes_first_columns(self) -> bool:
        """Whether the first columns are meant where nothing names any, as in a .tsv file."""
        return self.names is None and not self.header_expected


def table_suffix(path: Name) -> str:
    """Return the suffix, without .gz, by which a file holds both sides, such as .csv; "" for other files."""
    suffix = Path(Path(path).name.lower().removesuffix(".gz")).suffix
    return suffix if suffix in TABLES else ""


def read_tsv(path: Name) -> Table:
    """Read a .tsv file. Quotes are removed where all cells have them, or where they protect doubled ones.

    Pandas and spreadsheets write such quotes; others are characters of the text.
    """
    lines = enumerate(iterate_lines(path), start=1)
    head = list(islice(lines, SAMPLE_ROWS))
    cells = [cell for _, line in head for cell in line.split("\t") if cell and not cell.isdigit()]
    quoted = all(map(QUOTED.fullmatch, cells))

    def unquote(cell: str) -> str:
        match = QUOTED.fullmatch(cell)
        return match[1].replace('""', '"') if match and (quoted or '""' in match[1]) else cell

    rows = ((i, [unquote(cell) for cell in line.split("\t")]) for i, line in chain(head, lines))
    filled = ((i, cells if any(map(str.strip, cells)) else []) for i, cells in rows)
    advice = "cut at tabs: put a cell with a tab in quotes, in a .csv file, or delete lines above the names"
    return Table(filled, separator="\t", quoted=quoted, advice=advice)


def read_csv(path: Name) -> Table:
    """Read a .csv file; a row may have several lines, of which the first is its number."""
    lines = iterate_lines(path)
    head = list(islice(lines, SAMPLE_ROWS))
    declared = bool(head and re.fullmatch("(?i)sep=.", head[0]))
    separator = head[0][4:] if declared else find_separator(head, str(path))

    def rows() -> Iterator[tuple[int, list[str]]]:
        text = (f"{line}\n" for line in chain(head[declared:], lines))
        reader = csv.reader(text, delimiter=separator, strict=True)
        while True:
            line = declared + reader.line_num + 1
            try:
                yield line, next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                advice = "is a quotation mark not closed, or inside of quotes not doubled?"
                raise ValueError(f"{path}, in the row of line {line:,}: {error}; {advice}") from None

    quotes = "put a cell with a separator or a line break in quotes"
    advice = f"{quotes}, delete lines above the names, or name the separator in a first line, as in sep=^"
    return Table(rows(), header_expected=True, separator=separator, advice=advice)


def find_separator(lines: Sequence[str], where: str) -> str:
    """Find the separator by which most rows are as wide as the first. Raises ValueError unless it is one.

    Where nothing could separate, there is one column.
    """
    shares = {}  # share of the rows that are as wide as the first, by separator
    for separator in ",;\t|":
        widths: list[int] = []
        with suppress(csv.Error):  # `read_csv` tells the row of such an error
            widths.extend(len(row) for row in csv.reader(lines, delimiter=separator) if row)
        if widths and widths[0] > 1:
            shares[separator] = widths.count(widths[0]) / len(widths)
    best = [separator for separator, share in shares.items() if share == max(shares.values())]
    if len(best) > 1:
        which = " and ".join(map(repr, best))
        raise ValueError(f"{where}: {which} could separate columns; name one in a first line, as in sep=;")
    if not best and any(separator in line for line in lines for separator in ",;\t|"):
        first = shortened(next(filter(str.strip, lines)))
        advice = "delete lines above the names, or name what separates columns in a first line, as in sep=;"
        raise ValueError(f"{where}: , ; | and tabs do not cut the first row, {first!r}; {advice}")
    return best[0] if best else ","


def read_json(path: Name) -> Table:
    """Read the objects of a JSON file; the first of them name the columns."""
    rows = ((line, flatten(fields)) for line, _, fields in json_objects(path))
    head = list(islice(rows, SAMPLE_ROWS))
    names = list(dict.fromkeys(chain.from_iterable(row for _, row in head)))
    return Table(((i, [row.get(name) for name in names]) for i, row in chain(head, rows)), names)


def json_objects(path: Name) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Read the objects of a .jsonl file or of an array; yields the line, text and fields of each.

    In the fields, numbers stay as they are written.
    """
    lines = enumerate(iterate_lines(path), start=1)
    first = next(((i, line) for i, line in lines if line.strip()), None)
    if first is None:
        raise ValueError(f"{path}: there are no rows")
    advice = "there must be an object in each line, or one array of objects"

    def parse(line: int, text: str) -> Any:
        as_written: dict[str, Any] = {"parse_int": str, "parse_float": str, "parse_constant": lambda _: None}
        try:
            return json.loads(text, **as_written, object_pairs_hook=dict_of_unique)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {line:,}: {error}; {advice}") from None

    items: Iterable[tuple[int, str]] = chain([first], lines)
    if first[1].lstrip().startswith("["):
        whole = "\n" * (first[0] - 1) + "\n".join(line for _, line in items)
        items = cut_array(whole, len(parse(1, whole)))
    for line, text in items:
        if not text.strip():
            continue
        if not isinstance(fields := parse(line, text), dict):
            raise ValueError(f"{path}, line {line:,}: {fields!s:.40} is not an object; {advice}")
        yield line, text, fields


def cut_array(text: str, length: int) -> Iterator[tuple[int, str]]:
    """Cut a valid array of JSON into its items: the line where each begins, and its text."""
    decoder = json.JSONDecoder()
    line, begin, end = 1, 0, text.index("[") + 1
    for _ in range(length):
        last, begin = begin, ITEM_SEPARATOR.match(text, end).end()  # type: ignore[union-attr]
        line += text.count("\n", last, begin)
        _, end = decoder.raw_decode(text, begin)
        yield line, text[begin:end].replace("\n", " ")


def flatten(fields: dict[str, Any]) -> dict[str, Any]:
    """Name the fields of objects in an object as translation.de; true is the text true."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner_name}": inner for inner_name, inner in flatten(value).items()}
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
    """Read the sheet in front of an .xlsx file, and tell of others that hold cells.

    Whole numbers without a format are read as they look.
    """
    openpyxl = require("openpyxl", extra="data")
    is_datetime = openpyxl.styles.numbers.is_datetime
    try:
        book, formulas = (openpyxl.load_workbook(path, read_only=True, data_only=it) for it in (True, False))
    except (openpyxl.utils.exceptions.InvalidFileException, KeyError, ValueError, BadZipFile) as error:
        raise ValueError(f"{path} cannot be read as .xlsx: {error}") from None

    front = f"the sheet in front, {book.active.title!r}, is read"

    def shown(cell: Any, formula: Any) -> Any:
        if cell.data_type == "e":
            return CellError(cell.value)
        if cell.value is None and cell.data_type == "n" and formula.data_type == "f":
            return UnsavedFormula(getattr(formula.value, "text", formula.value))
        if isinstance(cell.value, bool):
            return str(cell.value).upper()
        if isinstance(cell.value, datetime) and is_datetime(cell.number_format) == "date":
            return cell.value.date()
        plain = isinstance(cell.value, int) and cell.number_format in ("General", "@")
        return str(cell.value) if plain else cell.value

    def has_cells(sheet: Any) -> bool:
        return any(value is not None for row in sheet.iter_rows(values_only=True) for value in row)

    def rows() -> Iterator[tuple[int, list[Any]]]:
        width = 0
        with closing(book), closing(formulas):
            if book.active not in book.worksheets:
                raise ValueError(f"{path}: the sheet in front holds a chart; bring the table to the front")
            for sheet in (*book.worksheets, *formulas.worksheets):
                sheet.reset_dimensions()  # some programs save wrong ones
            others = [sheet for sheet in formulas.worksheets if sheet != formulas.active and has_cells(sheet)]
            if others:
                names = shorten(", ".join(repr(sheet.title) for sheet in others), 400)
                left = f"the rows of {names} are left out, also of a translated table"
                advice = "to have them, copy them into that sheet, or bring another to the front"
                print_message(f"{path}: only {front}; {left}; {advice}")
            written = enumerate(formulas.active.iter_rows(), start=1)
            for line, cells in enumerate(book.active.iter_rows(), start=1):
                empty = any(cell.value is None for cell in cells)  # else no formula is read, which takes time
                originals = next(row for i, row in written if i == line) if empty else cells
                row = list(map(shown, cells, originals))
                while row and row[-1] is None:
                    row.pop()
                width = width or len(row)
                yield line, [*row, *[None] * (width - len(row))] if row else []

    advice = f"{front}: bring the table to the front, or delete what stands above or beside its columns"
    return Table(rows(), header_expected=True, advice=advice)


TABLES: dict[str, Callable[[Name], Table]] = {
    ".tsv": read_tsv, ".csv": read_csv, ".json": read_json, ".jsonl": read_json, ".parquet": read_parquet,
    ".xlsx": read_xlsx,
}  # fmt: skip
