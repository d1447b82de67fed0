"""Tables with a source and a target in each row, of which every cell is text, as it was written.

The first row holds names where they are usual ones, such as source and target or en and de, and in a .csv or
.xlsx file where it looks like names and no other row does.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from annotated.translation.data.formats import HEAD, TABLES, Table, read_tsv, table_suffix
from annotated.translation.data.pairs import ParallelText, languages, shortened
from annotated.translation.data.text_files import Name, collect
from annotated.translation.messages import print_message

# Usual names of columns, by the side that they stand for.
ROLES = {"source", "src", "input", "text"}, {"target", "tgt", "output", "translation"}
KNOWN = ROLES[0] | ROLES[1]
MANY = 20  # rows of text that show that a first one unlike them may be names
NAME, CODE = re.compile(r"[^\W\d_][\w.-]*"), re.compile("[a-z]{2}([-_][A-Za-z]{2,4})?")


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
    rows, names, usually, _ = table
    head = list(islice(rows, HEAD))
    filled = [cells for _, cells in head if cells]
    if not filled:
        raise ValueError(f"{where}: there are no rows")
    labels = [str(cell or "").strip() for cell in filled[0]] if names is None else list(names)
    codes = [code.casefold() for code in languages(pair) if code]
    spare = names is None and not usually
    places = find_columns(labels, columns, codes[:count], where, spare, count, names is not None)
    chosen = [labels[place].casefold() for place in places]
    numbers = all(str(column).isdecimal() and int(column) <= len(labels) for column in columns or ())
    line, lines = 0, iter(head)
    if names is None and (
        (columns and not numbers)
        or KNOWN.issuperset(chosen)
        or all(label in codes or CODE.fullmatch(label) for label in chosen)
        or (not columns and begins_with_names(filled, usually, where))
    ):
        line = next(number for number, cells in lines if cells)
    first = " and ".join(repr(labels[place]) for place in places)
    if columns and numbers and names is None and not line:
        print_message(f"{where}: columns by number, so the first row is text: {first}; names leave it out")
    if codes and (names is not None or line):
        if any(is_named(labels[p], codes[~i]) > is_named(labels[p], codes[i]) for i, p in enumerate(places)):
            raise ValueError(f"{where}: the columns are {first}, but the pair is {pair}")
        if columns is None and not KNOWN.issuperset(chosen) and not all(map(is_named, chosen, codes)):
            raise ValueError(f"{where}: are {first} {pair}? Give --columns, in Python columns, source first")
    if spare and columns is None and places[0] == 0 and len(labels) > 2:
        numbered = sum(str(cells[0]).strip().isdigit() for cells in filled)
        if 2 * numbered > len(filled):
            raise ValueError(f"{where}: column 1 holds numbers; give --columns, in Python columns, as in 2,3")

    def checked() -> Iterator[tuple[int, Sequence[Any]]]:
        for number, cells in chain(lines, rows):
            if cells and len(cells) != len(labels):
                widths = f"{len(cells)} columns, but the first row has {len(labels)}"
                advice = "a cell with a separator or a line break must stand in quotes, in a .csv file"
                raise ValueError(f"{where}, line {number:,}: {widths}; {advice}")
            cells = cells or [""] * len(labels)
            for place in places:
                if not isinstance(cell := cells[place], str | None):
                    kind = f"{cell!r:.40} ({type(cell).__name__}), not text; save it as text, a cell a row"
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
    named: bool,
) -> list[int]:
    """Find the places of columns; with `spare` columns, the first where nothing names them.

    Numbers are places, or names where there is no such place or the columns are surely `named`.

    Raises ValueError where they are not found.
    """

    def place(wanted: str | int) -> int | None:
        number = int(wanted) if str(wanted).isdecimal() else 0
        if 1 <= number <= len(labels) and not (named and str(wanted) in labels):
            return number - 1
        found = [i for i, label in enumerate(labels) if is_named(label, str(wanted))]
        return found[0] if len(found) == 1 else None

    found = [place(column) for column in columns or codes]
    places = [each for each in found if each is not None]
    roles = [[i for i, label in enumerate(labels) if label.casefold() in role] for role in ROLES[:count]]
    if columns is None and len(places) != count and all(len(role) == 1 for role in roles):
        return [place for [place] in roles]
    if columns is None and len(places) != count and (len(labels) == count or (spare and len(labels) > count)):
        return list(range(count))
    if len(labels) < count:
        cut = (
            "a .tsv file is cut at tabs, a .csv file at , ; | or tabs, or as a first line such as sep=^ says"
        )
        raise ValueError(f"{where}: the first row has only one column, {shortened(labels[0])!r}; {cut}")
    if not len(places) == len(found) == len({*places}) == count:
        shown = ", ".join([*map(quote, map(shortened, labels[:20])), *["..."][: len(labels) > 20]])
        lost = " or ".join(str(c) for c, at in zip(columns or (), found, strict=False) if at is None)
        lost = lost and f"there is not one column {lost}; "
        sides = "the source" if count == 1 else "source and target"
        advice = f"give --columns, in Python columns, names or numbers, from 1, of {sides}"
        raise ValueError(f"{where}: {lost}{advice}; there are {shown}")
    return places


def is_named(label: str, wanted: str) -> bool:
    """Tell whether a column has a name, such as de: it may also be called DE, translation.de or de_AT."""
    own, name = label.casefold(), wanted.casefold()
    return own == name or own.endswith(f".{name}") or (CODE.fullmatch(label) is not None and own[:2] == name)


def begins_with_names(rows: Sequence[Sequence[Any]], usually: bool, where: str) -> bool:
    """Decide whether the first row holds names, as it `usually` does. Raises ValueError if that is unsure."""

    def named(cells: Sequence[Any]) -> bool:
        return all(NAME.fullmatch(str(cell or "").strip()) for cell in cells)

    others = any(map(named, rows[1:]))
    if not named(rows[0]) or (not usually and (others or len(rows) < MANY)):
        return False
    if usually and not others:
        return True
    shown = quote(",".join(str(cell).strip() for cell in rows[0]))
    raise ValueError(
        f"{where}: the first row, {shown}, may be names or text; give --columns {shown} for names, "
        "or the numbers of the columns, such as --columns 1,2, for text (in Python columns)"
    )


# ---- what shows that text was not read as it was meant


def drop_faults(text: ParallelText, pair: str | None = None, keep_equal: bool | None = None) -> ParallelText:
    """Drop a row of column names and, unless `keep_equal`, pairs with equal sides; count them.

    Raises ValueError if most pairs have equal sides and `keep_equal` is None, or if the columns are in the
    other order than `pair`.
    """
    where = text.where or text.name
    header = tuple(side.casefold() for side in next(iter(text)))
    codes = tuple(code and code.casefold() for code in languages(pair))
    swapped = all(side in role for side, role in zip(header, ROLES[::-1], strict=True))
    if swapped:
        raise ValueError(f"{where}: the sides are named {header[0]} and {header[1]}; give the source first")
    if header[::-1] == codes != header:
        raise ValueError(f"{where}: the columns are {header[0]} and {header[1]}, but the pair is {pair}")
    named = header == codes or KNOWN.issuperset(header)
    equal = [i for i, (src, tgt) in enumerate(text) if src == tgt and not (named and i == 0)]
    if keep_equal:
        equal = []
    elif keep_equal is None and 2 * len(equal) > len(text):
        raise ValueError(
            f"{where}: {len(equal):,} of {len(text):,} pairs have equal sides; if they should, use "
            "--keep-equal, in Python keep_equal=True, and --no-keep-equal, keep_equal=False, leaves them out"
        )
    return text.without({"column names": [0] if named else [], "source and target equal": equal})


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
