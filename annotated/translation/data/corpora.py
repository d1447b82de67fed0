"""Corpora: by name, of the Hugging Face Hub, or one's own text, which is any iterable of pairs or files.

Only the grammar comes with the package. Multi30k, 29,000 image captions in English, German and French (task 1
of the public repository `multi30k/dataset`), is for research and education, not for commercial use. WMT
2014, the paper's 4.5 million sentence pairs (36 million of English and French), comes from the Hub.
SIGMORPHON 2020 (task 1 of `sigmorphon/2020`) has 3,600 words to train on, with their phones, in each of 15
languages; it is from Wiktionary and CC BY-SA.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import platformdirs
import torch

from annotated.optional import require
from annotated.translation.data.formats import Table
from annotated.translation.data.grammar import grammar
from annotated.translation.data.pairs import Corpus, ParallelText, cached_corpus, hold_out, languages
from annotated.translation.data.tables import check_sides, drop_faults, join_columns, read_pairs, table_pairs
from annotated.translation.data.text_files import Name, collect, read_lines, read_parallel
from annotated.translation.files import sha256

NAMES = ("multi30k", "wmt14", "sigmorphon2020", "grammar")
HUB = "hf:"


def load_corpus(
    name: str,
    pair: str | None = None,
    tokenized: bool | None = None,
    columns: Sequence[str] | None = None,
    cache: str | Path | None = None,
) -> Corpus:
    """Load a corpus by name, in the direction of `pair`.

    Args:
        name: multi30k, wmt14, sigmorphon2020 or grammar; hf:NAME or hf:NAME:CONFIG for a dataset of the Hub.
        pair: source and target language, "en-de" by default; of sigmorphon2020 the language, such as "fre",
            which must be given.
        tokenized: take the lower-cased, tokenized text, which multi30k alone has.
        columns: names of source and target in a dataset of the Hub, if not the languages of `pair`.
        cache: folder for the text of a dataset of the Hub.

    Raises ValueError for an unknown name, or an argument that the corpus does not take.
    """
    if name == "own":
        raise ValueError("the corpus is text of your own: name its files by --src, in Python own_corpus")
    if name not in NAMES and not name.startswith(HUB):
        known = f"{', '.join(NAMES)}, hf:NAME; files: --src, in Python own_corpus"
        raise ValueError(f"unknown corpus {name!r}; known: {known}")
    if tokenized and name != "multi30k":
        raise ValueError(f"{name} has no tokenized text; only multi30k has")
    if columns and not name.startswith((HUB, "wmt14")):
        raise ValueError(f"{name} has no columns to choose; a dataset of the Hub has")
    if name == "sigmorphon2020":
        if pair is None:
            raise ValueError(
                "sigmorphon2020 has 15 languages: name one by --pair, in Python pair, such as fre"
            )
        return sigmorphon2020(pair)
    pair = pair or "en-de"
    if name == "multi30k":
        return multi30k(pair, bool(tokenized))
    if name == "grammar":
        return grammar(pair)
    if name == "wmt14":  # section 5.1; validated on newstest2013, tested on newstest2014
        foreign = [language for language in languages(pair) if language != "en"]
        if len(foreign) != 1:
            raise ValueError(f"wmt14 has English on one side, not {pair}")
        name = f"{HUB}wmt/wmt14:{foreign[0]}-en"
    return from_datasets(name, pair, columns=columns, cache=cache)


def from_datasets(name: str, pair: str, columns: Sequence[str] | None, cache: str | Path | None) -> Corpus:
    """Load hf:NAME or hf:NAME:CONFIG by `datasets`, which keeps downloads in its own cache (`$HF_HOME`).

    The split validation becomes val; if there is none, `hold_out` makes it.
    """
    datasets = require("datasets", extra="data")
    path, _, config = name.removeprefix(HUB).partition(":")
    try:
        tables = datasets.load_dataset(path, config or None)
    except (ValueError, OSError, datasets.exceptions.DatasetGenerationError) as error:
        raise ValueError(f"{name} cannot be loaded: {error}") from None
    if "train" not in tables:
        raise ValueError(f"{name} has no split 'train'; its splits are {', '.join(tables)}")

    def read() -> Corpus:
        sides = columns or pair.split("-")
        splits = {}
        for split, dataset in tables.items():
            flat = dataset.flatten()  # a field inside of a field becomes a column
            rows = zip(*(flat[column] for column in flat.column_names), strict=True)
            table = Table(enumerate(rows, start=1), flat.column_names)
            our_split = "val" if split == "validation" else split
            splits[our_split] = table_pairs(table, sides, name=split, where=name)
        if "val" not in splits:
            splits |= hold_out(splits["train"], "val")
        origin = {"columns": join_columns(columns)} if columns else {}
        return Corpus(name, *languages(pair), splits, origin=origin)

    if cache is None:
        return read()
    fingerprints = [dataset._fingerprint for dataset in tables.values()]
    return cached_corpus(cache, lambda: [name, pair, columns, *fingerprints], read)


# ---- public repositories, of which each file's checksum is known

CHECKSUMS = Path(__file__).with_name("checksums.txt")  # as sha256sum writes them
GITHUB = "https://raw.githubusercontent.com"
MULTI30K = f"{GITHUB}/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a"
SIGMORPHON = f"{GITHUB}/sigmorphon/2020/3d9bb3658b6a964ccd127e2a6781665262516bf6/task1"


def multi30k(pair: str, tokenized: bool = False) -> Corpus:
    """Load Multi30k: the splits train, val, test_2016_flickr and test_2017_flickr.

    The languages are en, de and fr. `tokenized` text is lower-cased and normalized, too, as in published
    tables. It has no German test_2017_flickr. Raises as `find_file` does.
    """
    src, tgt = languages(pair)
    names = ["train", "val", "test_2016_flickr", "test_2017_flickr"]
    if tokenized and "de" in (src, tgt):
        names.remove("test_2017_flickr")
    splits = {}
    for name in names:
        form = f"tok/{name}.lc.norm.tok.{{}}" if tokenized else f"raw/{name}.{{}}.gz"
        files = [f"data/task1/{form.format(side)}" for side in (src, tgt)]
        paths = [find_file(f"multi30k/{file}", f"{MULTI30K}/{file}") for file in files]
        splits[name] = read_parallel(paths[0], paths[1], name)
    return Corpus("multi30k", src, tgt, splits, tokenized=tokenized)


def sigmorphon2020(pair: str) -> Corpus:
    """Load words and their phones in one of 15 languages: the splits train, val (the task's dev) and test.

    Phones are separated by spaces. `pair` is the language, such as "fre" or "fre-ipa": ady, arm, bul, dut,
    fre, geo, gre, hin, hun, ice, jpn, kor, lit, rum or vie. Raises as `find_file` does.
    """
    language = pair.removesuffix("-ipa")
    splits = {}
    for name, split in (("train", "train"), ("val", "dev"), ("test", "test")):
        file = f"{language}_{split}.tsv"
        path = find_file(f"sigmorphon2020/{file}", f"{SIGMORPHON}/data/{split}/{file}")
        splits[name] = read_pairs(path, (1, 2), name)
    return Corpus("sigmorphon2020", language, "ipa", splits)


def find_file(name: str, url: str) -> Path:
    """Return the path of a file whose checksum is known, downloaded from `url` if need be.

    It is looked for in `$ANNOTATED_DATA` and the platform's cache folder, and saved in the latter. Raises
    ValueError for an unknown name or a damaged file, FileNotFoundError for one that cannot be downloaded.
    """
    checksums = {path: digest for digest, path in map(str.split, read_lines(CHECKSUMS))}
    if name not in checksums:
        folder = name.partition("/")[0]
        known = ", ".join(path for path in checksums if path.startswith(folder) and "train" in path)
        raise ValueError(f"there is no file {name}: take another pair; there are {known}")
    cache = Path(platformdirs.user_cache_dir("annotated")) / name
    data = os.environ.get("ANNOTATED_DATA")
    candidates = [Path(data) / name, cache] if data else [cache]
    path = next((candidate for candidate in candidates if candidate.exists()), None)
    if path is None:
        cache.parent.mkdir(parents=True, exist_ok=True)
        try:
            torch.hub.download_url_to_file(url, str(cache), checksums[name], progress=sys.stderr.isatty())
        except (OSError, RuntimeError) as error:
            paths = " or ".join(map(str, candidates))
            raise FileNotFoundError(f"{url} cannot be downloaded ({error}); save it as {paths}") from None
        return cache
    if sha256(path) != checksums[name]:
        raise ValueError(f"{path} is damaged or another version: its SHA-256 is not {checksums[name]}")
    return path


# ---- text of one's own

# Pairs, the path of a file that holds both sides, or the paths of two files.
Text = ParallelText | Iterable[tuple[str, str]] | Name | tuple[Name, Name]

MISSING_VALUES = {"None", "nan", "<NA>"}  # what Python and pandas print for a text that is missing


def own_corpus(
    text: Corpus | Text,
    validation: Text | None = None,
    pair: str | None = None,
    keep_equal: bool | None = None,
    columns: Sequence[str | int] | None = None,
    cache: str | Path | None = None,
) -> Corpus:
    """Make a corpus with the splits train and val of text in any form that `own_text` takes.

    Without `validation`, 5% of the different source sentences, 2,000 at most, become val. `pair` names the
    languages, such as "de-en". A corpus is returned as it is. What was read from files is kept in the folder
    `cache`, as long as the files stay the same.

    Column names, pairs with equal sides (unless `keep_equal`) and, in train, pairs of val are dropped and
    counted. Raises ValueError if `keep_equal` is None and most pairs have equal sides, or if source and
    target are swapped.
    """
    if isinstance(text, Corpus):
        if validation is not None or columns or pair not in (None, text.pair):
            raise ValueError(f"{text.name} has its own splits and the pair {text.pair}; give it alone")
        return text

    paths = [list_paths(text)] if validation is None else [list_paths(text), list_paths(validation)]
    origin: dict[str, str] = {}
    for flags, files in zip((("src", "tgt"), ("val_src", "val_tgt")), paths, strict=False):
        origin |= {flag: str(Path(file).absolute()) for flag, file in zip(flags, files or (), strict=False)}
    if columns:
        origin["columns"] = join_columns(columns)

    def read() -> Corpus:
        train = drop_faults(own_text(text, "train", columns=columns, pair=pair), pair, keep_equal)
        if validation is None:
            return Corpus("own", *languages(pair), hold_out(train, "val"), origin=origin)
        val = drop_faults(own_text(validation, "val", columns=columns, pair=pair), pair, keep_equal)
        check_sides(train, val)
        held_out = set(val)
        copies = [i for i, pair in enumerate(train) if pair in held_out]
        train = train.without({"also in the validation text": copies})
        return Corpus("own", *languages(pair), {"train": train, "val": val}, origin=origin)

    if cache is None or None in paths:
        return read()

    def key() -> list[Any]:  # without checksums, for which all of the text would be read at each start
        files = [Path(path).resolve() for path in chain.from_iterable(filter(None, paths))]
        changes = [[str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in files]
        return [pair, keep_equal, columns, [files and len(files) for files in paths], *changes]

    return cached_corpus(cache, key, read)


def list_paths(text: Any) -> list[Name] | None:
    """List the files that text is read from; None if it is not read from files."""
    paths = list(text) if isinstance(text, tuple | list) else [text]
    return paths if all(isinstance(path, str | PathLike) for path in paths) else None


def own_text(
    text: Text, name: str, columns: Sequence[str | int] | None = None, pair: str | None = None
) -> ParallelText:
    """Make parallel text of an iterable of pairs, of a file with both sides, or of two files.

        own_text([("A dog.", "Ein Hund."), ("A cat.", "Eine Katze.")], "mine")
        own_text(zip(frame["en"], frame["de"]), "mine")                        # a frame of pandas
        own_text(((row["en"], row["de"]) for row in dataset["translation"]), "mine")      # datasets
        own_text("mine.tsv", "mine")                          # or another table: see `read_pairs`
        own_text(("mine.en", "mine.de"), "mine")

    Sentences are normalized. Pairs with an empty or missing side (None, NaN) are dropped and counted. Raises
    ValueError for an item that is not a pair of strings, and as `read_pairs` and `read_parallel` do.
    """
    if isinstance(text, ParallelText):
        return text
    if isinstance(text, str | PathLike):
        return read_pairs(text, columns, name=name, pair=pair)
    if columns:
        raise ValueError("columns are those of one file with both sides")
    if (paths := list_paths(text)) and len(paths) == 2:
        return read_parallel(paths[0], paths[1], name)
    if not (hasattr(text, "__iter__") or hasattr(text, "__getitem__")):
        raise ValueError(f"{name}: text must be pairs or the path of a file, not {text!r}")
    return collect((to_pair(item, i, name) for i, item in enumerate(text, start=1)), name, name)


def to_pair(item: Any, number: int, name: str) -> tuple[int, str, str]:
    """Return the number of an item, its source and its target. Raises ValueError if it is not such a pair."""
    if isinstance(item, Iterable) and not isinstance(item, str | Mapping | Set):  # those have no order
        sides = [side if isinstance(side, str) or str(side) not in MISSING_VALUES else "" for side in item]
        if len(sides) == 2 and all(isinstance(side, str) for side in sides):
            return number, str(sides[0]), str(sides[1])
    advice = "zip(sources, targets) makes such pairs of two lists"
    raise ValueError(
        f"{name}: item {number} is {item!r:.80}, not a pair of strings (source, target); {advice}"
    )
