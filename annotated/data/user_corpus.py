"""Text of one's own as a corpus: any iterable of pairs, or files."""

from collections.abc import Iterable, Mapping, Sequence, Set
from os import PathLike
from pathlib import Path
from typing import Any, cast

from annotated.data.pairs import Corpus, ParallelText, cached_corpus, hold_out, languages
from annotated.data.text_files import Name, collect, read_pairs, read_parallel

# Pairs, the path of a file that holds both sides, or the paths of two files.
Text = ParallelText | Iterable[tuple[str, str]] | Name | tuple[Name, Name]

MISSING = {"None", "nan", "<NA>"}  # what stands for no text, in pandas too
HEADER = {"source", "target", "src", "tgt", "input", "output", "text", "translation"}


def own_corpus(
    text: Corpus | Text,
    validation: Text | None = None,
    pair: str | None = None,
    keep_equal: bool = False,
    columns: Sequence[str] | None = None,
    cache: str | Path | None = None,
) -> Corpus:
    """Make a corpus with the splits train and val of text in any form that `own_text` takes.

    Without `validation`, 5% of the different source sentences, 2,000 at most, become val. `pair` names the
    languages, such as "de-en". A corpus is returned as it is. What was read from files is kept in the folder
    `cache`, as long as the files stay the same.

    Column names, pairs with equal sides (unless `keep_equal`) and, in train, pairs of val are dropped and
    counted. Raises ValueError if most pairs have equal sides, or if source and target are swapped.
    """
    if isinstance(text, Corpus):
        if validation is not None or pair not in (None, text.pair):
            raise ValueError(f"{text.name} has its own splits and the pair {text.pair}; give it alone")
        return text

    def read() -> Corpus:
        train = drop_faults(own_text(text, "train", columns), pair, keep_equal)
        if validation is None:
            return Corpus("own", *languages(pair), hold_out(train, "val"))
        val = drop_faults(own_text(validation, "val", columns), pair, keep_equal)
        check_sides(train, val)
        held_out = set(val)
        copies = [i for i, pair in enumerate(train) if pair in held_out]
        train = train.without({"also in the validation text": copies})
        return Corpus("own", *languages(pair), {"train": train, "val": val})

    paths = [list_paths(given) for given in (text, validation) if given is not None]
    if cache is None or None in paths:
        return read()
    files = [Path(path) for each in paths for path in each or ()]
    options = [pair, keep_equal, columns, validation is None]
    return cached_corpus(cache, lambda: [*options, *map(describe_file, files)], read)


def list_paths(text: Any) -> list[Name] | None:
    """List the files that text is read from; None if it is not read from files."""
    paths = list(text) if isinstance(text, tuple | list) else [text]
    return paths if all(isinstance(path, str | PathLike) for path in paths) else None


def describe_file(path: Path) -> list[Any]:
    """Return what changes when a file does; its checksum would take longer than all else at a warm start."""
    return [str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns]


def own_text(text: Text, name: str, columns: Sequence[str] | None = None) -> ParallelText:
    """Make parallel text of an iterable of pairs, of a file with both sides, or of two files.

        own_text([("A dog.", "Ein Hund."), ("A cat.", "Eine Katze.")], "mine")
        own_text(zip(frame["en"], frame["de"]), "mine")                        # a frame of pandas
        own_text(((row["en"], row["de"]) for row in dataset["translation"]), "mine")      # datasets
        own_text("mine.tsv", "mine")                          # or .csv, .jsonl, .parquet: see `read_pairs`
        own_text(("mine.en", "mine.de"), "mine")

    Sentences are normalized. Pairs with an empty or missing side (None, NaN) are dropped and counted. Raises
    ValueError for an item that is not a pair of strings, and as `read_pairs` and `read_parallel` do.
    """
    if isinstance(text, ParallelText):
        return text
    if isinstance(text, str | PathLike):
        return read_pairs(text, columns, name)
    if columns:
        raise ValueError("columns are those of one file with both sides")
    if list_paths(text) and len(cast(Sequence[Name], text)) == 2:
        src, tgt = cast(tuple[Name, Name], text)
        return read_parallel(src, tgt, name)
    return collect((to_pair(item, i, name) for i, item in enumerate(text, start=1)), name, name)


def to_pair(item: Any, number: int, name: str) -> tuple[int, str, str]:
    """Return the number of an item, its source and its target. Raises ValueError if it is not such a pair."""
    if isinstance(item, Iterable) and not isinstance(item, str | Mapping | Set):  # no order of ours in those
        sides = [side if isinstance(side, str) or str(side) not in MISSING else "" for side in item]
        if len(sides) == 2 and all(isinstance(side, str) for side in sides):
            return number, str(sides[0]), str(sides[1])
    raise ValueError(f"{name}: item {number} is {item!r}, not a pair of strings (source, target)")


def drop_faults(text: ParallelText, pair: str | None = None, keep_equal: bool = False) -> ParallelText:
    """Drop a row of column names and, unless `keep_equal`, pairs with equal sides; count them.

    Raises ValueError if most pairs have equal sides, or if the columns are in the other order than `pair`.
    """
    where = text.where or text.name
    header = tuple(side.casefold() for side in next(iter(text)))
    codes = tuple(code and code.casefold() for code in languages(pair))
    if header[::-1] == codes != header:
        raise ValueError(f"{where}: the columns are {header[0]} and {header[1]}, but the pair is {pair}")
    named = text.lines[0] == 1 and (header == codes or HEADER.issuperset(header))
    equal = [i for i, (src, tgt) in enumerate(text) if src == tgt and not (named and i == 0)]
    if keep_equal:
        equal = []
    elif 2 * len(equal) > len(text):
        raise ValueError(
            f"{where}: {len(equal):,} of {len(text):,} pairs have equal sides; if they should, "
            "use --keep-equal, in Python keep_equal=True"
        )
    return text.without({"column names": [0] if named else [], "source and target equal": equal})


def check_sides(train: ParallelText, val: ParallelText) -> None:
    """Raise ValueError if source and target are swapped between `train` and `val`.

    That is assumed if each side of `val` shares more than twice as many words with the other side of `train`.
    """
    src, tgt, val_src, val_tgt = (
        {word for sentence in side[:100_000] for word in sentence.split()}
        for side in (train.src, train.tgt, val.src, val.tgt)
    )
    if len(val_src & tgt) > 2 * len(val_src & src) and len(val_tgt & src) > 2 * len(val_tgt & tgt):
        raise ValueError(f"source and target of {val.name} are swapped with respect to {train.name}")
