"""A corpus of one's own, in whatever form it comes; what is wrong with it is found before it is learned."""

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from os import PathLike
from typing import Any, cast

from annotated.data.corpora import hold_out, languages
from annotated.data.parallel import Corpus, Name, ParallelText, filled, read_parallel, read_tsv

# What text may be given as: pairs, the path of a TSV file, or the paths of two files.
Text = ParallelText | Iterable[tuple[str, str]] | Name | tuple[Name, Name]


def own_corpus(text: Corpus | Text, validation: Text | None = None, pair: str | None = None) -> Corpus:
    """Text of one's own (see `own_text`) as a corpus with the splits train and val, checked.

    Without `validation`, 5% of the different source sentences, 2,000 at most, become val. `pair` names the
    languages, such as "de-en". A corpus stays as it is.

    What is wrong with single pairs is dropped and counted: headers, source and target equal, or one of them
    within the other, absurd lengths, and in train what stands in val too. Raises ValueError for text that was
    not read as it was meant: most pairs have a fault, or source and target are swapped.
    """
    if isinstance(text, Corpus):
        if validation is not None or pair not in (None, text.pair):
            raise ValueError(f"{text.name} has its own splits and the pair {text.pair}; give it alone")
        return text
    train = without_faults(own_text(text, "train"), pair)
    if validation is None:
        return Corpus("own", *languages(pair), hold_out(train, "val"))
    val = without_faults(own_text(validation, "val"), pair)
    check_sides(train, val)
    return Corpus("own", *languages(pair), {"train": without_held_out(train, val), "val": val})


def own_text(text: Text, name: str) -> ParallelText:
    """Sentence pairs from any iterable of them, from a TSV file, or from two files.

        own_text([("A dog.", "Ein Hund."), ("A cat.", "Eine Katze.")], "mine")
        own_text(zip(frame["en"], frame["de"]), "mine")                        # a frame of pandas
        own_text(((row["en"], row["de"]) for row in dataset["translation"]), "mine")      # datasets
        own_text("mine.tsv", "mine")
        own_text(("mine.en", "mine.de"), "mine")

    Pairs of which a side is empty or missing (None, NaN) are dropped and counted; line breaks become spaces.
    Raises as `read_tsv` and `read_parallel` do, and ValueError naming the item that is no pair of texts.
    """
    if isinstance(text, ParallelText):
        return text
    if isinstance(text, str | PathLike):
        return read_tsv(text, name)
    if isinstance(text, tuple | list) and len(text) == 2 and all(isinstance(x, str | PathLike) for x in text):
        src, tgt = cast(tuple[Name, Name], text)
        return read_parallel(src, tgt, name)
    if not isinstance(text, Iterable):
        raise ValueError(f"{name} must be pairs, a path or two paths, not {text!r}")
    return filled((one_pair(item, i, name) for i, item in enumerate(text, start=1)), name, name)


def one_pair(item: Any, number: int, name: str) -> tuple[int, str, str]:
    """The number of an item, its source and its target. Raises ValueError for what is no pair of texts."""
    where = f"{name}: item {number}"
    try:
        if isinstance(item, str | Mapping):
            raise TypeError
        src, tgt = item
    except (TypeError, ValueError):
        raise ValueError(
            f"{where} is {item!r}, no pair (source, target); of a pandas frame take "
            "zip(frame[SOURCE], frame[TARGET])"
        ) from None
    return number, one_line(src, where), one_line(tgt, where)


def one_line(side: object, where: str) -> str:
    """A sentence without line breaks, "" for one that is missing. Raises ValueError for what is no text."""
    if side is None or (isinstance(side, float) and side != side):  # NaN, as pandas has it
        return ""
    if not isinstance(side, str):
        raise ValueError(f"{where}: {side!r} is no text")
    return re.sub(r"[\r\n]+", " ", str(side))


LONGEST = 10_000  # characters on a side

# What is wrong with a pair, and how it is seen.
FAULTS: dict[str, Callable[[str, str], bool]] = {
    "source and target equal": lambda src, tgt: src.strip() == tgt.strip(),
    "the target in the source, behind a tab": lambda src, tgt: has_column(src, tgt),
    "the source in the target, behind a tab": lambda src, tgt: has_column(tgt, src),
    f"more than {LONGEST:,} characters": lambda src, tgt: max(len(src), len(tgt)) > LONGEST,
}

# Words that head columns: what the column is for, or its language, by code or name.
ROLES = {*re.findall(r"\w+", "source target src tgt trg text sentence translation original input output")}
CODES = {
    name: code
    for code, language in re.findall(
        r"(\w+):(\w+)",
        """ar:arabic bg:bulgarian ca:catalan cs:czech da:danish de:german el:greek en:english eo:esperanto
        es:spanish et:estonian eu:basque fa:persian fi:finnish fr:french ga:irish he:hebrew hi:hindi
        hr:croatian hu:hungarian id:indonesian is:icelandic it:italian ja:japanese ko:korean lt:lithuanian
        lv:latvian nl:dutch no:norwegian pl:polish pt:portuguese ro:romanian ru:russian sk:slovak
        sl:slovenian sr:serbian sv:swedish sw:swahili th:thai tr:turkish uk:ukrainian ur:urdu vi:vietnamese
        zh:chinese""",
    )
    for name in (code, language)
}


def without_faults(text: ParallelText, pair: str | None = None) -> ParallelText:
    """The text without a header and without the pairs that have one of the `FAULTS`, which are counted.

    Raises ValueError where most pairs have one, where no pair is left, and where a header names the languages
    of `pair` (such as "de-en") the other way round.
    """
    # The words of the first line's two cells, and the languages among them.
    header = [re.findall(r"[^\W_]+", cell.casefold()) for cell in next(iter(text), ())]
    named = text.lines[:1] == [1] and all(words and CODES.keys() | ROLES >= {*words} for words in header)
    codes = [[CODES[word] for word in words if word in CODES] for words in header]
    if named and pair and [[code] for code in pair.split("-")] == codes[::-1]:
        raise ValueError(
            f"{text.where or text.name}, line 1: the columns are {text.src[0]!r} and {text.tgt[0]!r}, "
            f"but the pair is {pair}; swap the columns, or the languages of the pair"
        )
    found = {"names of columns": [0]} if named else {}
    for i, (src, tgt) in islice(enumerate(text), named, None):
        fault = next((name for name, seen in FAULTS.items() if seen(src, tgt)), None)
        if fault:
            found.setdefault(fault, []).append(i)
    for name, where in found.items():
        if name in FAULTS and 2 * len(where) > len(text):
            many = f"{len(where):,} of {len(text):,} pairs"
            raise ValueError(f"{text.where or text.name}: {many} have {text.described(name, where)}")
    return text.without(found)


def has_column(sentence: str, other: str) -> bool:
    """Whether one of the columns of a sentence with tabs is the other sentence."""
    return "\t" in sentence and other.strip() in map(str.strip, sentence.split("\t"))


def without_held_out(train: ParallelText, val: ParallelText) -> ParallelText:
    """`train` without the pairs that stand in `val` too. Raises ValueError if none is left."""
    held_out = set(val)
    return train.without({"also in the validation text": [i for i, p in enumerate(train) if p in held_out]})


def check_sides(train: ParallelText, val: ParallelText) -> None:
    """Raise ValueError where `val` has source and target the other way round than `train`.

    So it seems where on both its sides twice as many words are known from the other side as from the same.
    """
    src, tgt, val_src, val_tgt = (
        {word for sentence in side for word in sentence.split()}
        for side in (train.src, train.tgt, val.src, val.tgt)
    )
    if len(val_src & tgt) > 2 * len(val_src & src) and len(val_tgt & src) > 2 * len(val_tgt & tgt):
        raise ValueError(
            f"{val.name}: source and target have the words of the other sides of {train.name}; "
            "swap source and target of one of the two"
        )
