"""`annotated train`, and what other commands share with it: the device, a text of the user's own."""

import argparse
import os
from functools import partial
from pathlib import Path

import torch

import annotated
from annotated.cli.flags import settings_from
from annotated.cli.options import TrainingData
from annotated.data import Corpus, load_corpus, own_corpus
from annotated.data.own import Text
from annotated.data.reading import TABLES
from annotated.training.config import TrainingConfig
from annotated.training.distributed import (
    DistributedError,
    broadcast,
    find_device,
    process_group,
    raise_on_all_ranks,
    say,
)
from annotated.training.train import Stopped
from annotated.transformer.config import TransformerConfig


def train(args: argparse.Namespace) -> int:
    """Train a model; see `annotated train --help`. Returns the exit code, 130 after Ctrl-C."""
    device = choose_device(args)
    try:
        with process_group(device):
            # A function of its own: a process that leaves the group while it still holds the model may hang.
            return run_training(broadcast(args), device)
    except DistributedError as error:
        if int(os.environ.get("LOCAL_RANK", 0)):  # the first process of this machine says it
            return 2
        raise ValueError(error) from None


def run_training(args: argparse.Namespace, device: torch.device) -> int:
    """Train as one of the processes that `train` has joined."""
    with raise_on_all_ranks():
        name_corpus(args)
    names = ("preset", "tokenizer", "src_tokenizer", "tgt_tokenizer", "vocab", "keep_equal", "init_from")
    settings = {name: getattr(args, name) for name in (*names, "resume", "cache")}
    settings |= settings_from(TransformerConfig, args) | settings_from(TrainingConfig, args)
    corpus = partial(training_corpus, args)
    try:
        annotated.train(corpus, args.out, device=device, notes=remembered(args), **settings)
    except Stopped as stopped:
        say(str(stopped))
        return 130
    return 0


def remembered(args: argparse.Namespace) -> dict[str, object]:
    """The flags of the text, as JSON, for a run that is resumed; files by their full path."""
    values = settings_from(TrainingData, args)
    values.pop("keep_equal", None)  # an argument of annotated.train, which remembers it
    return {name: str(v.absolute()) if isinstance(v, Path) else v for name, v in values.items()}


def name_corpus(args: argparse.Namespace) -> None:
    """Set what the flags of the text imply: the corpus, and the languages of one that has them."""
    if args.src is None and args.tgt is None:
        if args.val_src is not None or args.val_tgt is not None:
            raise ValueError("--val-src goes with --src, which is missing")
        if args.corpus == "own":
            raise ValueError("--corpus own needs --src, and --tgt if that does not hold both sides")
        args.corpus, args.pair = args.corpus or "multi30k", args.pair or "en-de"
    elif args.corpus not in (None, "own"):
        raise ValueError(f"give one of the two, --corpus {args.corpus} or --src {args.src}, not both")
    else:
        args.corpus = "own"
        if args.keep_equal is None:
            kinds = {args.src_tokenizer or args.tokenizer, args.tgt_tokenizer or args.tokenizer}
            args.keep_equal = not kinds.isdisjoint(("chars", "spaces"))


def training_corpus(args: argparse.Namespace) -> Corpus:
    """Read the user's own files, or a corpus by name."""
    name_corpus(args)
    columns = args.columns and args.columns.split(",")
    text = own_files(args.src, args.tgt, "")
    if text is None:
        return load_corpus(args.corpus, args.pair, args.path, args.variant, columns, args.cache)
    val = own_files(args.val_src, args.val_tgt, "val-")
    return own_corpus(text, val, args.pair, args.keep_equal, columns, args.cache)


def own_files(src: Path | None, tgt: Path | None, flag: str) -> Text | None:
    """Return the user's pair of files, or one file that holds both sides; None if none is given."""
    if src is None and tgt is None:
        return None
    both = [path for path in (src, tgt) if path is not None and {".tsv", *TABLES} & {*path.suffixes}]
    if both and tgt is not None:
        raise ValueError(f"{both[0]} holds both sides: give it as --{flag}src, without --{flag}tgt")
    if both:
        return both[0]
    if src is None or tgt is None:
        suffixes = ", ".join((".tsv", *TABLES))
        raise ValueError(
            f"--{flag}src and --{flag}tgt belong together, unless the first is a {suffixes} file"
        )
    if src.resolve() == tgt.resolve():
        raise ValueError(f"--{flag}src and --{flag}tgt are one file, {src}")
    return src, tgt


def choose_device(args: argparse.Namespace) -> torch.device:
    """Set threads and seed, and return the device. Raises ValueError for a device that is not there."""
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.seed is not None:  # else a recipe has its own
        torch.manual_seed(args.seed)
    return find_device(args.device)
