"""`annotated translate`: translate lines of text."""

import argparse
import csv
import io
import json
import os
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, BinaryIO

import torch
from tqdm import tqdm

from annotated.translation.cli.common import load_translator, search_settings, trained_columns, with_location
from annotated.translation.data.formats import TABLES, Table, json_objects, table_suffix
from annotated.translation.data.tables import SelectedColumns, select_columns
from annotated.translation.data.text_files import iterate_lines
from annotated.translation.files import decode_lines
from annotated.translation.messages import print_message
from annotated.translation.translator import Translator

# Number of lines that a thread translates together: of the first group, and of the largest.
FIRST_GROUP, LARGEST_GROUP = 16, 1000
READ_BYTES = 2**20  # the most bytes that are read at a time

TranslatedRow = tuple[int, Sequence[Any], str]  # line, cells and translation


def translate(args: argparse.Namespace) -> None:
    """Translate files or standard input; see `annotated translate --help`."""
    with ExitStack() as stack:
        if tables := [path for path in args.files if table_suffix(path)]:
            if tables != args.files or len(tables) > 1 or "n_best" in args:
                advice = "for candidates, save its column as a file of lines, such as .txt"
                raise ValueError(f"a table is translated alone, and without --n-best; {advice}")
        elif args.columns:
            raise ValueError(f"--columns is for a table: {', '.join(TABLES)}")
        files = [] if tables else [open_input(path, stack) for path in args.files]
        search = search_settings(args)
        translator = load_translator(args)
        if isinstance(sys.stdout, io.TextIOWrapper):  # a notebook or a test may have put another object there
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        if tables:
            columns = [args.columns] if args.columns else trained_columns(args.model, "own", count=1)
            translate_table(tables[0], columns, translator, search)
            return
        visible = sys.stdout.isatty() or any(file.isatty() for file in files)  # then they show the progress
        bar = stack.enter_context(tqdm(unit="line", disable=visible or None))
        number = 1  # that of the next line, counted over all files
        for path, file in zip(args.files, files, strict=True):
            name = "standard input" if path == Path("-") else str(path)
            for numbers, lines in stream_lines(file, name):
                bar.set_description(f"by {translator.engine}")
                with with_location("" if path == Path("-") else f"{name}: "):
                    if "n_best" in args:
                        results = translator.search(lines, **search, numbers=numbers)
                        decode = translator.tgt_tokenizer.decode
                        ranked = ((i, best) for i, n_best in enumerate(results, number) for best in n_best)
                        printed = [f"{i}\t{best.score:.4f}\t{decode(best.tokens)}" for i, best in ranked]
                    else:
                        printed = translator.translate(lines, **search, numbers=numbers)
                print("".join(line + "\n" for line in printed), end="", flush=True)
                number += len(lines)
                bar.update(len(lines))


def translate_table(path: Path, columns: list[str], translator: Translator, search: dict[str, Any]) -> None:
    """Write a table with a further column: .tsv and JSON as they are written, others as .csv."""
    suffix = table_suffix(path)
    table = TABLES[suffix](path)
    selected = select_columns(table, columns or None, where=str(path), pair=translator.pair, count=1)
    rows = translate_rows(path, selected, translator, search)
    if selected.header_line or suffix == ".parquet":
        names = selected.header_line, selected.labels, unused_name(selected.labels)
        rows = chain([names], rows)
    is_json = suffix in (".json", ".jsonl")
    with path.open("rb") as file:
        if not is_json and file.read(2) in (b"\xef\xbb", b"\xff\xfe", b"\xfe\xff"):
            sys.stdout.write("\ufeff")  # the mark by which spreadsheets know UTF-8
    if is_json:
        write_json(path, rows)
    elif suffix == ".tsv" and not table.quoted:
        write_tsv(path, rows)
    else:
        write_csv(table, rows)
    sys.stdout.flush()


def translate_rows(
    path: Path, selected: SelectedColumns, translator: Translator, search: dict[str, Any]
) -> Iterator[TranslatedRow]:
    """Translate the source column in groups of rows; yields the line, cells and translation of each row."""
    [source] = selected.indices
    while group := list(islice(selected.rows, LARGEST_GROUP)):
        numbers, rows = zip(*group, strict=True)
        with with_location(f"{path}: "):
            texts = [cells[source] or "" for cells in rows]
            translations = translator.translate(texts, **search, numbers=numbers)
        yield from zip(numbers, rows, translations, strict=True)


def write_json(path: Path, rows: Iterable[TranslatedRow]) -> None:
    """Write the objects of a JSON file as they stand there, each with its translation in a further field."""
    is_array = next(filter(str.strip, iterate_lines(path))).lstrip().startswith("[")
    start, separator, line_end, end = ("[\n", ",\n", "", "\n]\n") if is_array else ("", "", "\n", "")
    new_name = unused_name({name for *_, fields in json_objects(path) for name in fields})
    for (*_, translation), (_, text, fields) in zip(rows, json_objects(path), strict=True):
        begin = start + text.strip()[:-1].rstrip() + (", " if fields else "")
        print(f'{begin}"{new_name}": {json.dumps(translation, ensure_ascii=False)}}}', end=line_end)
        start = separator
    print(end=end)


def write_tsv(path: Path, rows: Iterable[TranslatedRow]) -> None:
    """Write the lines of a .tsv file as they stand there, each with its translation in a further cell."""
    lines = enumerate(iterate_lines(path), start=1)
    for number, _, translation in rows:
        print(next(line for i, line in lines if i == number), translation, sep="\t")


def write_csv(table: Table, rows: Iterable[TranslatedRow]) -> None:
    """Write rows of cells, each with its translation in a further cell, separated and quoted as the table."""
    quoting: Any = csv.QUOTE_ALL if table.quoted else csv.QUOTE_MINIMAL
    writer = csv.writer(sys.stdout, delimiter=table.separator, lineterminator="\n", quoting=quoting)
    writer.writerows([*cells, translation] for _, cells, translation in rows)


def unused_name(names: Collection[str]) -> str:
    """Name the further column: translation, or where the table has a column of that name, translation_2."""
    numbered = (f"translation_{i}" for i in count(2))
    return next(name for name in chain(["translation"], numbered) if name not in names)


# ---- lines of files and pipes


def open_input(path: Path, stack: ExitStack) -> BinaryIO:
    """Open a file, or standard input for `-`.

    Raises ValueError for the file that standard output goes to: it would grow as long as it is read.
    """
    file: BinaryIO = sys.stdin.buffer if path == Path("-") else stack.enter_context(path.open("rb"))
    with suppress(OSError):  # a notebook or a test may have put another object there
        os.set_blocking(file.fileno(), True)  # else a pause of the writer would look like the end
        source, target = os.fstat(file.fileno()), os.fstat(sys.stdout.fileno())
        if stat.S_ISREG(source.st_mode) and os.path.samestat(source, target):
            raise ValueError(f"{path} is the file that is written to")
    return file


def stream_lines(file: Any, name: str) -> Iterator[tuple[range, list[str]]]:
    """Read lines as they come, in groups, each at most twice as large as the last.

    Yields the numbers of a group's lines, and the lines. So what is typed, or comes slowly, is translated
    line by line, and the first lines of a large file soon.
    Raises ValueError naming the line that is not UTF-8.
    """
    if file.isatty():
        print_message("one sentence a line; Ctrl-D ends")
    threads = torch.get_num_threads()
    size = FIRST_GROUP * threads
    count = 0
    rest = b""
    ended = False
    while not ended:
        data = file.read1(READ_BYTES)
        ended = not data
        whole, newline, rest = (rest + data).rpartition(b"\n")
        lines = io.BytesIO(whole + newline + (rest if ended else b"")).readlines()
        while lines:
            group, lines = lines[:size], lines[size:]
            decoded = list(decode_lines(group, name, after=count))
            yield range(count + 1, count + 1 + len(decoded)), decoded
            count += len(group)
            size = min(2 * size, LARGEST_GROUP * threads)
