"""`annotated evaluate`."""

import argparse
import dataclasses
import os
from contextlib import ExitStack
from pathlib import Path

from annotated.cli.common import load_translator, own_pairs, plain_warnings, settings_from, standard
from annotated.cli.recipes import Search
from annotated.data import Corpus, load_corpus
from annotated.data.corpora import languages
from annotated.files import json_text, naming, write_as_shell
from annotated.translation.model_folder import find_model, training_settings
from annotated.translation.scoring import score_split


@plain_warnings()
def evaluate(args: argparse.Namespace) -> None:
    """Score a model; see `annotated evaluate --help`."""
    standard("stdout")
    read = [args.src, args.tgt, args.path, args.config]
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
    text = own_pairs(args.src, args.tgt, "", "own")
    if text is not None:
        return Corpus("own", *languages(pair), {"own": text}), "own"
    if corpus == "own":
        raise ValueError(
            f"{args.model} was trained on files of your own: give --src and --tgt, of text that it has not "
            "read, or --corpus"
        )
    if corpus == trained.get("corpus", corpus):
        args.path, args.variant = (getattr(args, n) or trained.get(n) for n in ("path", "variant"))
    return load_corpus(corpus, pair or "en-de", args.path, args.variant), args.split


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
            if other is not None and other.resolve() == path.resolve():
                raise ValueError(f"{flag} {path} would replace {other}, another file of this command")
