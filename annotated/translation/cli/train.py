"""`annotated train`: train a model."""

import argparse
from functools import partial

from annotated.translation.cli.common import own_files, with_location
from annotated.translation.cli.flags import DEFAULT_CORPUS
from annotated.translation.data import Corpus, load_corpus, own_corpus
from annotated.translation.data.tables import split_columns
from annotated.translation.messages import print_message
from annotated.translation.processes import DistributedError, broadcast, read_number
from annotated.translation.training.config import TEXT_SETTINGS
from annotated.translation.training.run_folder import RunFolder
from annotated.translation.training.train import Stopped, default_preset, keeps_equal, train as train_model
from annotated.translation.training.trainer import TrainingError


def train(args: argparse.Namespace) -> int:
    """Train a model; see `annotated train --help`. Returns the exit code, 130 after Ctrl-C."""
    if args.variants and not ("variant" in args or args.init_from):
        raise ValueError("--variants has no effect without --variant, the name of one that it registers")
    name_corpus(args)
    apart = (*TEXT_SETTINGS, "command", "config", "threads", "traceback", "variants")
    settings = {name: value for name, value in vars(args).items() if name not in apart}
    if args.corpus == "own":
        settings["pair"] = args.pair
    try:
        with with_location():
            train_model(partial(training_corpus, args), **settings)
    except Stopped as stopped:
        print_message(str(stopped))
        return 130
    except KeyboardInterrupt:
        if not RunFolder(args.out).newest():
            print_message(f"no model is in {args.out} yet: the run was stopped before its first checkpoint")
        raise
    except (DistributedError, TrainingError) as error:
        if read_number("LOCAL_RANK", 0):  # the machine's first process prints the error
            return 2
        raise ValueError(error) from error
    return 0


def name_corpus(args: argparse.Namespace) -> None:
    """Set what the flags leave out: the corpus, its languages, whether pairs with equal sides are kept."""
    own_text = args.src is not None or args.tgt is not None
    args.preset = args.preset or default_preset(own_text, args.init_from)
    if not own_text:
        if args.keep_equal is not None:
            raise ValueError("--keep-equal is for --src; a corpus by name is kept as it is")
        if args.val_src is not None or args.val_tgt is not None:
            raise ValueError("--val-src goes with --src, which is missing")
        if not args.resume or args.config is not None:
            args.corpus = args.corpus or DEFAULT_CORPUS
    elif args.corpus not in (None, "own"):
        other = f"; one may be of the run in {args.out}: name another --out" if args.resume else ""
        raise ValueError(f"give one of the two, --corpus {args.corpus} or --src {args.src}, not both{other}")
    elif args.tokenized:
        raise ValueError("--tokenized is for --corpus multi30k; text of --src is read as it is")
    else:
        args.corpus = "own"
        if args.keep_equal is None:
            kinds = args.tokenizer, args.src_tokenizer, args.tgt_tokenizer
            args.keep_equal = keeps_equal(args.init_from, *kinds)


def training_corpus(args: argparse.Namespace) -> Corpus:
    """Read the user's own files, or a corpus by name, as the flags of the first process say."""
    args = broadcast(args)
    columns = split_columns(args.columns) if args.columns else None
    text = own_files(args.src, args.tgt, "")
    if text is None and args.corpus is None:
        advice = "to begin one, name its text, by --src or --corpus"
        raise ValueError(f"there is no run in {args.out} to go on with; {advice}")
    if text is None:
        return load_corpus(args.corpus, args.pair, args.tokenized, columns, args.cache)
    val = own_files(args.val_src, args.val_tgt, "val-")
    return own_corpus(text, val, args.pair, args.keep_equal, columns, args.cache)
