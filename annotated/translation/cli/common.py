"""What several commands do: name files and columns, load a translator, say where a warning comes from."""

import argparse
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from annotated.search.config import SearchConfig
from annotated.translation.data.corpora import Text
from annotated.translation.data.formats import TABLES, table_suffix
from annotated.translation.data.tables import join_columns, split_columns
from annotated.translation.limits import Limits
from annotated.translation.messages import print_message
from annotated.translation.storage.model_folder import find_model, training_settings
from annotated.translation.translator import Translator

CONVERTERS = {
    ".po": "; a recipe on the site's page Recipes reads .po files",
    ".tmx": "; examples/tmx_to_tsv.py makes a table of a .tmx file",
}


def own_files(src: Path | None, tgt: Path | None, flag: str) -> Text | None:
    """Return the user's pair of files, or one file that holds both sides; None if none is given."""
    if tgt is None and (src is None or table_suffix(src)):
        return src
    if src is None or tgt is None or table_suffix(src) or table_suffix(tgt) or src.resolve() == tgt.resolve():
        files = f"two files, a sentence a line, or --{flag}src alone a table ({', '.join(TABLES)})"
        how = next((how for suffix, how in CONVERTERS.items() if str(src).lower().endswith(suffix)), "")
        raise ValueError(f"--{flag}src and --{flag}tgt must name {files}, not {src} and {tgt}{how}")
    return src, tgt


def trained_columns(model: str, corpus: str, count: int = 2) -> list[str]:
    """Return, and announce, the columns that the model was trained on in text of this corpus, if named.

    A `count` of 1 is for the source alone.
    """
    trained = training_settings(find_model(model))
    if trained.get("corpus") != corpus or not trained.get("columns"):
        return []
    columns = split_columns(str(trained["columns"]))[:count]
    print_message(f"reading {join_columns(columns)}, as in training, unless --columns says otherwise")
    return columns


def load_translator(args: argparse.Namespace) -> Translator:
    """Load the translator that the flags name, with the engine and the limits that they set."""
    names = "engine", "quantization", *(field.name for field in fields(Limits))
    options = {name: getattr(args, name) for name in names if name in args}
    return Translator.load(args.model, args.device, **options)


def search_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of `SearchConfig` that the flags give. Raises ValueError for values out of range."""
    settings = {f.name: getattr(args, f.name) for f in fields(SearchConfig) if f.name in args}
    SearchConfig(**settings)  # raises before a model is loaded
    return settings


@contextmanager
def with_location(where: str = "") -> Iterator[None]:
    """Print warnings in a line each; prefix warnings and errors with their location."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: print_message(f"annotated: {where}{message}")
        try:
            yield
        except ValueError as error:
            raise ValueError(f"{where}{error}") from error
