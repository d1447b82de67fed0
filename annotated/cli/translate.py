"""`annotated translate`: translate lines of text."""

import argparse
import io
import os
import stat
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO

import torch
from tqdm import tqdm

from annotated.devices import find_device, say
from annotated.files import decode_lines
from annotated.search.config import Limits, Search
from annotated.translator import Translator

FEWEST, MOST = 16, 1000  # lines for each thread that are translated together: at first, and at most later
READ_BYTES = 2**20  # read at a time, at most


def translate(args: argparse.Namespace) -> None:
    """Translate files or standard input; see `annotated translate --help`."""
    with ExitStack() as stack:
        files = [open_input(path, stack) for path in args.files]
        translator = load_translator(args)
        if isinstance(sys.stdout, io.TextIOWrapper):  # not where a notebook or a test collects it
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        visible = sys.stdout.isatty() or any(file.isatty() for file in files)  # the lines show the progress
        bar = stack.enter_context(tqdm(unit="line", disable=visible or None))
        number = 1  # of the next line, counted over all files
        for path, file in zip(args.files, files, strict=True):
            name = "standard input" if path == Path("-") else str(path)
            first = 1
            for lines in stream_lines(file, name):
                with located("" if path == Path("-") else f"{name}: "):
                    printed = translate_lines(translator, lines, args, first, number)
                print("".join(line + "\n" for line in printed), end="", flush=True)
                first += len(lines)
                number += len(lines)
                bar.update(len(lines))


def translate_lines(
    translator: Translator, lines: list[str], args: argparse.Namespace, first_line: int, number: int
) -> list[str]:
    """Translate lines to what is printed; with --n-best, rows whose lines count from `number` on."""
    options = {**search_settings(args), "first_line": first_line}
    if "n_best" not in args:
        return translator.translate(lines, **options)
    found, decode = translator.search(lines, **options), translator.tgt_tokenizer.decode
    return [
        f"{number + i}\t{hypothesis.score:.4f}\t{decode(hypothesis.tokens)}"
        for i, best in enumerate(found)
        for hypothesis in best
    ]


def load_translator(args: argparse.Namespace) -> Translator:
    """Load the translator that the flags name, with the engine and the limits that they set."""
    names = "engine", "quantization", *(field.name for field in fields(Limits))
    options = {name: getattr(args, name) for name in names if name in args}
    return Translator.load(args.model, find_device(args.device), **options)


def search_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of `Search` that the flags give."""
    return {field.name: getattr(args, field.name) for field in fields(Search) if field.name in args}


@contextmanager
def located(where: str = "") -> Iterator[None]:
    """Print warnings in a line each; prefix warnings and errors with their location."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: say(f"annotated: {where}{message}")
        try:
            yield
        except ValueError as error:
            raise ValueError(f"{where}{error}") from error


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


def stream_lines(file: Any, name: str) -> Iterator[list[str]]:
    """Read lines as they come, without waiting for more; each group is at most twice as large as the last.

    So what is typed, or comes slowly, is translated line by line, and the first lines of a large file soon.
    Raises ValueError naming the line that is not UTF-8.
    """
    if file.isatty():
        say("one sentence a line; Ctrl-D ends")
    threads = torch.get_num_threads()
    size, count, rest, ended = FEWEST * threads, 0, b"", False
    while not ended:
        data = file.read1(READ_BYTES)
        ended = not data
        whole, newline, rest = (rest + data).rpartition(b"\n")
        lines = io.BytesIO(whole + newline + (rest if ended else b"")).readlines()
        while lines:
            group, lines = lines[:size], lines[size:]
            yield list(decode_lines(group, name, after=count))
            count += len(group)
            size = min(2 * size, MOST * threads)
