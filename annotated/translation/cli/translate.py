"""`annotated translate`: translate lines of text."""

import argparse
import csv
import io
import json
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import chain, count, islice, repeat
from pathlib import Path
from typing import Any, BinaryIO

import torch
from tqdm import tqdm

from annotated.translation.cli.common import load_translator, search_settings, trained_columns, with_location
from annotated.translation.data.formats import TABLES, json_objects, table_suffix
from annotated.translation.data.tables import select_columns
from annotated.translation.data.text_files import iterate_lines
from annotated.translation.files import decode_lines
from annotated.translation.messages import print_message
from annotated.translation.translator import Translator

# Lines for each thread that are translated together: at first, and at most later.
FIRST_GROUP, LARGEST_GROUP = 16, 1000
READ_BYTES = 2**20  # read at a time, at most


def translate(args: argparse.Namespace) -> None:
    """Translate files or standard input; see `annotated translate --help`."""
    with ExitStack() as stack:
        if tables := [path for path in args.files if table_suffix(path)]:
            if tables != args.files or len(tables) > 1 or "n_best" in args:
                raise ValueError("a table is translated alone, and without --n-best")
        elif args.columns:
            raise ValueError(f"--columns is for a table: {', '.join(TABLES)}")
        files = [] if tables else [open_input(path, stack) for path in args.files]
        search = search_settings(args)
        translator = load_translator(args)
        if isinstance(sys.stdout, io.TextIOWrapper):  # not where a notebook or a test collects it
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        if tables:
            columns = [args.columns] if args.columns else trained_columns(args.model, "own")[:1]
            translate_table(tables[0], columns, translator, search)
            return
        visible = sys.stdout.isatty() or any(file.isatty() for file in files)  # the lines show the progress
        bar = stack.enter_context(tqdm(unit="line", disable=visible or None))
        number = 1  # of the next line, counted over all files
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
    kind = table_suffix(path)
    table = TABLES[kind](path)
    labels, [source], header_line, rows = select_columns(
        table, columns or None, str(path), translator.pair, count=1
    )
    is_json = kind in (".json", ".jsonl")
    is_array = is_json and next(filter(str.strip, iterate_lines(path))).lstrip().startswith("[")
    starts = chain(["[\n"], repeat(",\n")) if is_array else repeat("")
    names = {name for *_, fields in json_objects(path) for name in fields} if is_json else {*labels}
    numbered = (f"translation_{i}" for i in count(2))
    new_name = next(name for name in chain(["translation"], numbered) if name not in names)
    objects = json_objects(path)
    lines = enumerate(iterate_lines(path), start=1)
    quoting: Any = csv.QUOTE_ALL if table.quoted else csv.QUOTE_MINIMAL
    writer = csv.writer(sys.stdout, delimiter=table.separator, lineterminator="\n", quoting=quoting)

    def write_row(number: int, cells: Sequence[Any], new_cell: str) -> None:
        if is_json:
            _, text, fields = next(objects)
            begin = next(starts) + text.strip()[:-1].rstrip() + (", " if fields else "")
            new_text = json.dumps(new_cell, ensure_ascii=False)
            print(f'{begin}"{new_name}": {new_text}}}', end="" if is_array else "\n")
        elif kind == ".tsv" and not table.quoted:
            print(next(line for i, line in lines if i == number), new_cell, sep="\t")
        else:
            writer.writerow([*cells, new_cell])

    with path.open("rb") as file:
        if kind in (".csv", ".tsv") and file.read(2) in (b"\xef\xbb", b"\xff\xfe", b"\xfe\xff"):
            sys.stdout.write("\ufeff")  # the mark by which spreadsheets know UTF-8
    if header_line or kind == ".parquet":
        write_row(header_line, labels, new_name)
    while group := list(islice(rows, LARGEST_GROUP)):
        with with_location(f"{path}: "):
            numbers, texts = zip(*((number, cells[source] or "") for number, cells in group), strict=True)
            translations = translator.translate(texts, **search, numbers=numbers)
        for (number, cells), translation in zip(group, translations, strict=True):
            write_row(number, cells, translation)
    print(end="\n]\n" if is_array else "", flush=True)


# ---- lines of files and pipes


def open_input(path: Path, stack: ExitStack) -> BinaryIO:
    """Open a file, or standard input for `-`.

    Raises ValueError for the file that standard output goes to: it would grow as long as it is read.
    """
    file: BinaryIO = sys.stdin.buffer if path == Path("-") else stack.enter_context(path.open("rb"))
    with suppress(OSError):  # a notebook or a test may give what is not a file
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
