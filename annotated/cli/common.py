"""What the commands share: where they compute, what they tell the user, which model and text they take."""

import argparse
import dataclasses
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from annotated.cli.options import Engine
from annotated.data import ParallelText, read_parallel, read_tsv
from annotated.training.devices import find_device, say
from annotated.translation.limits import Limits
from annotated.translation.translator import Translator


def choose_device(args: argparse.Namespace) -> torch.device:
    """Set threads and seed, and return the device. Raises ValueError for a device that is not there."""
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.seed is not None:  # else a recipe has its own
        torch.manual_seed(args.seed)
    return find_device(args.device)


def settings_from(cls: type, args: argparse.Namespace) -> dict[str, Any]:
    """Collect the fields of a settings class that the command line or its file gave."""
    given = vars(args)
    return {field.name: given[field.name] for field in dataclasses.fields(cls) if field.name in given}


def load_translator(args: argparse.Namespace) -> Translator:
    """Load the translator that the flags name, with the engine and the limits that they set."""
    options = settings_from(Engine, args) | settings_from(Limits, args)
    return Translator.load(args.model, choose_device(args), **options)


@contextmanager
def plain_warnings(where: str = "") -> Iterator[None]:
    """Tell the user what is warned of in one line: `where` in the input, not the place in our code."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: say(f"annotated: {where}{message}")
        yield


def standard(name: str) -> Any:
    """Return standard input or output by its name in `sys`. Raises ValueError if the shell has closed it."""
    stream = getattr(sys, name)
    if stream is None:
        raise ValueError(f"standard {name.removeprefix('std')}put is closed")
    return stream


def own_pairs(src: Path | None, tgt: Path | None, flag: str, name: str) -> ParallelText | None:
    """Read the user's pair of files, or one .tsv file that holds both sides; None if none is given."""
    if src is None and tgt is None:
        return None
    for path in (src, tgt):
        if tgt is not None and path is not None and ".tsv" in path.suffixes:
            raise ValueError(f"{path} holds both sides: give it as --{flag}src, without --{flag}tgt")
    if src is not None and tgt is not None:
        if src.resolve() == tgt.resolve():
            raise ValueError(f"--{flag}src and --{flag}tgt are one file, {src}")
        return read_parallel(src, tgt, name)
    if src is not None and ".tsv" in src.suffixes:
        return read_tsv(src, name)
    note = ""
    if src is not None and ".csv" in src.suffixes:
        note = (
            "; columns of a .csv are read in Python: annotated.train(zip(frame[SOURCE], frame[TARGET]), ...)"
        )
    raise ValueError(f"--{flag}src and --{flag}tgt belong together, unless the first is a .tsv file{note}")
