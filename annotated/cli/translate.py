"""`annotated translate`."""

import argparse
import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import torch
from tqdm import tqdm

from annotated.cli.common import load_translator, plain_warnings, settings_from, standard
from annotated.cli.recipes import Search
from annotated.data.parallel import split_lines
from annotated.files import naming
from annotated.training.devices import say
from annotated.translation.translator import Translator

FEWEST, MOST = 16, 1000  # lines for each thread that are translated together: at first, and at most later
AT_ONCE = 2**20  # bytes read at a time
STANDARD_INPUT = "standard input"


def translate(args: argparse.Namespace) -> None:
    """Translate files or standard input; see `annotated translate --help`."""
    if args.n_best is not None and args.n_best > args.beam:
        raise ValueError(f"--n-best {args.n_best} needs --beam {args.n_best} or more, not {args.beam}")
    target = standard("stdout")
    with ExitStack() as opened:
        files = [opened.enter_context(reading(path)) for path in args.files]
        translator = load_translator(args)
        if args.tokenized:
            translator.pass_tokenized()
        if isinstance(target, io.TextIOWrapper):  # not where a notebook or a test collects it
            target.reconfigure(encoding="utf-8", newline="\n")
        shown = target.isatty() or any(file.isatty() for _, file in files)  # the lines tell how far it is
        bar = opened.enter_context(tqdm(unit="line", disable=shown or None))
        if not bar.disable and all(file.seekable() for _, file in files):
            bar.total = sum(count_lines(file) for _, file in files)
        done = 0  # lines of all files
        for name, file in files:
            before = done
            for lines in parts(file, name):
                with telling_file(name):
                    found = translations(translator, lines, args, done, first_line=done - before + 1)
                with naming("standard output"):
                    for text in found:
                        print(text)
                    target.flush()  # what is done is kept, whatever comes
                done += len(lines)
                bar.update(len(lines))


def translations(
    translator: Translator, lines: list[str], args: argparse.Namespace, done: int, first_line: int
) -> list[str]:
    """Translate lines to what is printed of them; with --n-best, numbers go on after `done`."""
    search = settings_from(Search, args)
    if args.n_best is None:
        return translator.translate(lines, **search, first_line=first_line)
    found = translator.search(lines, **search, n_best=args.n_best, first_line=first_line)
    return [
        f"{number}\t{each.score:.4f}\t{translator.tgt_tokenizer.decode(each.tokens)}"
        for number, best in enumerate(found, done + 1)
        for each in best
    ]


@contextmanager
def reading(path: Path) -> Iterator[tuple[str, io.BufferedReader]]:
    """Open a file, or standard input for `-`; yield what messages call it, and the file."""
    if str(path) == "-":
        check_apart(standard("stdin").buffer, STANDARD_INPUT)
        yield STANDARD_INPUT, standard("stdin").buffer
    else:
        with path.open("rb") as file:
            check_apart(file, str(path))
            yield str(path), file


def check_apart(file: io.BufferedReader, name: str) -> None:
    """Raise ValueError for a file that standard output is too: it would grow as long as it is read."""
    with suppress(OSError):  # what a notebook or a test gives or collects is no file
        here, there = (os.fstat(stream.fileno()) for stream in (file, sys.stdout))
        if stat.S_ISREG(here.st_mode) and os.path.samestat(here, there):
            raise ValueError(f"{name} is the file that is written to")


@contextmanager
def telling_file(name: str) -> Iterator[None]:
    """Let warnings and errors about lines tell the file too, if there is one."""
    where = "" if name == STANDARD_INPUT else f"{name}: "
    try:
        with plain_warnings(where):
            yield
    except ValueError as error:
        raise ValueError(f"{where}{error}") from None


def count_lines(file: io.BufferedReader) -> int:
    """Count the lines that are left to read, and read none."""
    here = file.tell()
    count = sum(1 for _ in file)
    file.seek(here)
    return count


def parts(file: io.BufferedReader, name: str) -> Iterator[list[str]]:
    """Read lines as they come, without waiting for more; each part is at most twice as large as the last.

    So what is typed, or comes slowly, is translated line by line, and the first lines of a large file soon.
    Raises ValueError naming the line that is not UTF-8.
    """
    if file.isatty():
        say("one sentence a line; Ctrl-D ends")
    threads = torch.get_num_threads()
    size, read, rest, ended = FEWEST * threads, 0, b"", False
    while not ended:
        data = read_some(file)
        ended = not data
        whole, newline, rest = (rest + data).rpartition(b"\n")
        lines = io.BytesIO(whole + newline + (rest if ended else b"")).readlines()
        while lines:
            part, lines = lines[:size], lines[size:]
            yield split_lines(b"".join(part), name, after=read)
            read += len(part)
            size = min(2 * size, MOST * threads)


def read_some(file: io.BufferedReader) -> bytes:
    """Read what there is, and wait only if there is nothing; in a terminal, ask for it."""
    if not file.isatty():
        return file.read1(AT_ONCE)
    print("> ", end="", file=sys.stderr, flush=True)
    data = file.read1(AT_ONCE)
    if not data:
        say("")  # ends the line of the prompt
    return data
