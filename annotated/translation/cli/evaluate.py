"""`annotated evaluate`: score a model on a corpus."""

import argparse
import csv
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from annotated.metrics import bootstrap
from annotated.search.config import SearchConfig
from annotated.translation.cli.common import (
    load_translator,
    own_files,
    search_settings,
    trained_columns,
    with_location,
)
from annotated.translation.cli.flags import DEFAULT_CORPUS
from annotated.translation.data import Corpus, load_corpus, own_text
from annotated.translation.data.formats import table_suffix
from annotated.translation.data.pairs import languages
from annotated.translation.data.tables import drop_faults, split_columns
from annotated.translation.evaluation import score_split
from annotated.translation.files import check_output, json_text
from annotated.translation.messages import print_message
from annotated.translation.storage.model_folder import find_model, training_settings
from annotated.translation.tokenizers import normalize

SAVED = "", ".csv", ".tsv"


def evaluate(args: argparse.Namespace) -> None:
    """Score a model; see `annotated evaluate --help`."""
    model = find_model(args.model)
    inputs = [args.src, args.tgt, args.config, args.variants, *model.iterdir()]
    check_output(args.save, inputs)
    check_output(args.json, [*inputs, args.save])
    if args.save is not None and (args.save.suffix == ".gz" or table_suffix(args.save) not in SAVED):
        raise ValueError(f"--save {args.save} must be a .csv or .tsv file, or one of lines, such as .txt")
    search = SearchConfig(**search_settings(args))
    with with_location():
        translator = load_translator(args)
        corpus, split = scored_corpus(args)
        options = bool(args.tokenized), search, args.bleu_tokenize
        results, translations = score_split(translator, corpus, split, *options, progress=True)
        references = [normalize(line) for line in corpus[split].tgt]
        scores = {name: bootstrap(translations, references, metric=name) for name in args.metric}
    with ExitStack() as outputs:  # the last added is written first; each is, even if others fail
        if args.json is not None:
            values = asdict(results) | {name: asdict(score) for name, score in scores.items()}
            outputs.callback(args.json.write_text, json_text(values), "utf-8")
        if args.save is not None:
            rows = zip(corpus[split].src, references, translations, strict=True)
            outputs.callback(save_translations, args.save, rows)
        outputs.callback(print, results, *scores.values(), sep="\n", flush=True)


def save_translations(path: Path, rows: Iterable[tuple[str, str, str]]) -> None:
    """Write the translations, a line each, or a table of source, reference and translation."""
    with path.open("w", encoding="utf-8", newline="") as file:
        kind = path.suffix.lower()
        if kind not in (".csv", ".tsv"):
            file.writelines(f"{translation}\n" for *_, translation in rows)
            return
        writer = csv.writer(file, delimiter="," if kind == ".csv" else "\t", lineterminator="\n")
        writer.writerows([("source", "reference", "translation"), *rows])


def scored_corpus(args: argparse.Namespace) -> tuple[Corpus, str]:
    """Read the user's own files, or a corpus by its name; returns it and the split to score.

    Where no flag says otherwise, the text is that of the training, as the model's folder tells it.
    """
    trained = training_settings(find_model(args.model))
    pair = trained.get("pair")
    corpus = args.corpus or trained.get("corpus") or DEFAULT_CORPUS
    if pair and args.pair not in (None, pair, pair.removesuffix("-ipa")):  # fre may stand for fre-ipa
        raise ValueError(f"{args.model} was trained to translate {pair}, not {args.pair}")
    pair = args.pair or pair
    files = own_files(args.src, args.tgt, "")
    columns = split_columns(args.columns) if args.columns else None
    if columns is None and args.tgt is None:
        columns = trained_columns(args.model, "own" if files else corpus) or None
    if files is not None:
        for flag, value in {"corpus": args.corpus, "split": args.split}.items():
            if value not in (None, "own"):
                raise ValueError(f"give one of the two, --{flag} {value} or --src {args.src}, not both")
        text = drop_faults(own_text(files, "own", columns, pair), pair, keep_equal=True)
        if text.dropped:
            print_message(text.report())
        return Corpus("own", *languages(pair), {"own": text}), "own"
    if corpus == trained.get("corpus", corpus):
        args.tokenized = trained.get("tokenized") if args.tokenized is None else args.tokenized
    return load_corpus(corpus, pair, args.tokenized, columns), args.split or "val"
