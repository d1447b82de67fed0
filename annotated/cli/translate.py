"""`annotated translate` and `annotated evaluate`: what a model makes of lines of text, and of a corpus."""

import argparse
import dataclasses
import io
import os
import stat
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from annotated.cli.flags import settings_from
from annotated.cli.options import Engine
from annotated.cli.recipes import Search
from annotated.cli.train import choose_device, own_files
from annotated.data import Corpus, load_corpus, own_text
from annotated.data.corpora import languages
from annotated.data.reading import split_lines
from annotated.files import json_text, naming, write_as_shell
from annotated.search.limits import Limits
from annotated.training.distributed import say
from annotated.translation.evaluate import score_split
from annotated.translation.model_folder import find_model, training_settings
from annotated.translation.translator import Translator

FEWEST, MOST = 16, 1000  # lines for each thread that are translated together: at first, and at most later
AT_ONCE = 2**20  # bytes read at a time
STANDARD_INPUT = "standard input"


@contextmanager
def telling(where: str = "") -> Iterator[None]:
    """Say warnings in a line each; let them and errors begin with `where` in the input they belong."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: say(f"annotated: {where}{message}")
        try:
            yield
        except ValueError as error:
            raise ValueError(f"{where}{error}") from None


def standard(name: str) -> Any:
    """Return standard input or output by its name in `sys`. Raises ValueError if the shell has closed it."""
    stream = getattr(sys, name)
    if stream is None:
        raise ValueError(f"standard {name.removeprefix('std')}put is closed")
    return stream


def load_translator(args: argparse.Namespace) -> Translator:
    """Load the translator that the flags name, with the engine and the limits that they set."""
    options = settings_from(Engine, args) | settings_from(Limits, args)
    return Translator.load(args.model, choose_device(args), **options)


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
                with telling("" if name == STANDARD_INPUT else f"{name}: "):
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
    """Open a file, or standard input for `-`; yield what messages call it, and the file.

    Raises ValueError for a file that standard output is too: it would grow as long as it is read.
    """
    typed = str(path) == "-"
    name = STANDARD_INPUT if typed else str(path)
    with nullcontext(standard("stdin").buffer) if typed else path.open("rb") as file:
        with suppress(OSError):  # what a notebook or a test gives or collects is no file
            os.set_blocking(file.fileno(), True)  # else a pause of the writer would look like the end
            here, there = (os.fstat(stream.fileno()) for stream in (file, sys.stdout))
            if stat.S_ISREG(here.st_mode) and os.path.samestat(here, there):
                raise ValueError(f"{name} is the file that is written to")
        yield name, file


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


# ---- evaluate


@telling()
def evaluate(args: argparse.Namespace) -> None:
    """Score a model; see `annotated evaluate --help`."""
    standard("stdout")
    model = find_model(args.model)
    read = [args.src, args.tgt, args.path, args.config, args.variants, *model.iterdir()]
    check_target("--save", args.save, read)
    check_target("--json", args.json, [*read, args.save])
    translator = load_translator(args)
    corpus, split = scored_corpus(args)
    options = {**settings_from(Search, args), "tokenize": args.bleu_tokenize, "progress": True}
    results, found = score_split(translator, corpus, split, args.variant == "tok", **options)
    with ExitStack() as outputs:  # each is written, whatever becomes of the others
        if args.json is not None:
            outputs.callback(write_as_shell, args.json, json_text(dataclasses.asdict(results)))
        if args.save is not None:
            outputs.callback(write_as_shell, args.save, "".join(line + "\n" for line in found))
        with naming("standard output"):
            print(results, flush=True)


def scored_corpus(args: argparse.Namespace) -> tuple[Corpus, str]:
    """Read the user's own files, or a corpus by its name; return that and the split to score.

    Where no flag says otherwise, the text is that of the training, as the model's folder tells it.
    """
    trained = training_settings(find_model(args.model))
    pair, corpus = trained.get("pair"), args.corpus or trained.get("corpus") or "multi30k"
    if pair and args.pair not in (None, pair):
        raise ValueError(f"{args.model} was trained to translate {pair}, not {args.pair}")
    pair = args.pair or pair
    columns = args.columns and args.columns.split(",")
    files = own_files(args.src, args.tgt, "")
    if files is not None:
        return Corpus("own", *languages(pair), {"own": own_text(files, "own", columns)}), "own"
    if corpus == "own":
        what = "give --src and --tgt, of text that it has not read, or --corpus"
        raise ValueError(f"{args.model} was trained on files of your own: {what}")
    if corpus == trained.get("corpus", corpus):
        args.path, args.variant = (getattr(args, n) or trained.get(n) for n in ("path", "variant"))
    return load_corpus(corpus, pair or "en-de", args.path, args.variant, columns), args.split


def same_file(one: Path, other: Path) -> bool:
    """Tell whether two names, links among them, are of one file, be it there or not."""
    return one.resolve() == other.resolve() or (one.exists() and other.exists() and one.samefile(other))


def check_target(flag: str, path: Path | None, others: list[Path | None]) -> None:
    """Raise ValueError for a file that cannot be written, as far as can be seen, or is one of the others."""
    if path is None:
        return
    if path.is_dir():
        raise ValueError(f"{flag} {path} is a folder; name a file")
    if not path.parent.is_dir():
        raise ValueError(f"{flag} {path}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"{flag} {path} may not be written")
    if path.is_file() or not path.exists():  # two may share a device
        for other in others:
            if other is not None and same_file(other, path):
                raise ValueError(f"{flag} {path} would replace {other}, another file of this command")
