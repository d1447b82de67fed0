"""A corpus of one's own, in whatever form it comes."""

import re
from collections.abc import Iterable, Mapping
from os import PathLike

from annotated.data.corpora import hold_out, languages
from annotated.data.parallel import Corpus, ParallelText, filled, read_parallel, read_tsv
from annotated.data.sanity import check_sides, without_faults, without_held_out

# What text may be given as: pairs, the path of a TSV file, or the paths of two files.
Text = ParallelText | Iterable[tuple[str, str]] | str | PathLike | tuple[str | PathLike, str | PathLike]


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
        return read_parallel(*text, name)
    if not isinstance(text, Iterable):
        raise ValueError(f"{name} must be pairs, a path or two paths, not {text!r}")
    return filled((sides(item, i, name) for i, item in enumerate(text, start=1)), name, name)


def sides(item: object, number: int, name: str) -> tuple[int, str, str]:
    """The number of an item, its source and its target."""
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
