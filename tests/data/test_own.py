"""Text of one's own in whatever form it comes."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotated.data import Corpus, own_corpus, own_text

PAIRS = [(f"the cat sees {i} dogs", f"die Katze sieht {i} Hunde") for i in range(40)]


@pytest.fixture
def files(tmp_path):
    for name, column in zip(("a.en", "a.de"), zip(*PAIRS, strict=True), strict=True):
        (tmp_path / name).write_text("".join(line + "\n" for line in column), encoding="utf-8")
    both = "".join("\t".join(pair) + "\n" for pair in PAIRS)
    (tmp_path / "both.tsv").write_text(both, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "given",
    [
        lambda folder: PAIRS,
        lambda folder: zip(*zip(*PAIRS, strict=True), strict=True),
        lambda folder: (list(pair) for pair in PAIRS),
        lambda folder: np.array(PAIRS),
        lambda folder: folder / "both.tsv",
        lambda folder: str(folder / "both.tsv"),
        lambda folder: (folder / "a.en", str(folder / "a.de")),
        lambda folder: [str(folder / "a.en"), str(folder / "a.de")],
    ],
)
def test_every_form_is_the_same_text(given, files):
    found = own_text(given(files), "mine")
    assert list(found) == PAIRS
    assert all(type(side) is str for pair in found for side in pair)
    assert found.lines == [*range(1, 41)]
    assert found.name == "mine"


def test_parallel_text_is_taken_as_it_is():
    text = own_text(PAIRS, "mine")
    assert own_text(text, "other") is text


def test_a_frame_of_pandas_is_one_line():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(PAIRS, columns=["en", "de"])
    assert list(own_text(zip(frame["en"], frame["de"], strict=True), "mine")) == PAIRS
    assert list(own_text(frame.itertuples(index=False), "mine")) == PAIRS
    with pytest.raises(ValueError, match=r"mine: item 1 is 'en', no pair .*; of a pandas frame take zip\("):
        own_text(frame, "mine")


def test_rows_of_datasets_are_one_line():
    rows = [{"translation": {"en": src, "de": tgt}} for src, tgt in PAIRS]
    assert list(own_text(((r["translation"]["en"], r["translation"]["de"]) for r in rows), "mine")) == PAIRS
    with pytest.raises(ValueError, match=r"mine: item 1 is \{'translation': .*, no pair"):
        own_text(rows, "mine")


@pytest.mark.parametrize("missing", [None, float("nan"), "", "  "])
def test_a_missing_side_is_dropped_and_counted(missing):
    text = own_text([PAIRS[0], ("a", missing), PAIRS[1], (missing, "b")], "mine")
    assert (list(text), text.lines) == (PAIRS[:2], [1, 3])
    assert sum(text.dropped.values()) == 2


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (("a", 5), "item 2: 5 is no text"),
        (("a", b"b"), "item 2: b'b' is no text"),
        (("a", "b", "c"), r"item 2 is \('a', 'b', 'c'\), no pair"),
        ("ab", "item 2 is 'ab', no pair"),
        (7, "item 2 is 7, no pair"),
        ({"a": 1, "b": 2}, "item 2 is {'a': 1, 'b': 2}, no pair"),
    ],
)
def test_what_is_no_pair_is_named(second, says):
    with pytest.raises(ValueError, match=f"mine: {says}"):
        own_text([("a", "b"), second], "mine")


def test_what_cannot_be_a_corpus_is_named():
    with pytest.raises(ValueError, match="mine: no sentence pair"):
        own_text([], "mine")
    with pytest.raises(ValueError, match="mine must be pairs, a path or two paths, not 5"):
        own_text(5, "mine")


@given(st.text(), st.text())
def test_a_sentence_is_one_line(src, tgt):
    try:
        [(one, other)] = own_text([(src, tgt)], "mine")
    except ValueError:
        assert not src.strip() or not tgt.strip()
        return
    assert not {"\n", "\r"} & {*one, *other}
    assert (one.split(), other.split()) == (src.split(), tgt.split())


# ---- the corpus


def test_without_validation_text_some_is_held_out():
    corpus = own_corpus(PAIRS, pair="en-de")
    assert isinstance(corpus, Corpus)
    assert (corpus.name, corpus.pair) == ("own", "en-de")
    assert {name: len(split) for name, split in corpus.splits.items()} == {"train": 38, "val": 2}


def test_validation_text_has_any_form_too(files):
    corpus = own_corpus(iter([*PAIRS, ("a cat", "eine Katze")]), (files / "a.en", files / "a.de"))
    assert list(corpus["val"]) == PAIRS
    assert list(corpus["train"]) == [("a cat", "eine Katze")]


def test_the_checks_are_made():
    fault = ("same", "same")
    corpus = own_corpus([("en", "de"), *PAIRS, fault], [*PAIRS[:4], fault], "en-de")
    assert sorted(corpus["train"]) == sorted(PAIRS[4:])
    assert sorted(corpus["val"]) == sorted(PAIRS[:4])
    assert sum(corpus["train"].dropped.values()) == 1 + 1 + 4
    assert sum(corpus["val"].dropped.values()) == 1
    with pytest.raises(ValueError, match="swap"):
        own_corpus([("en", "de"), *PAIRS], pair="de-en")
    with pytest.raises(ValueError, match="swap source and target"):
        own_corpus(PAIRS[4:], [(tgt, src) for src, tgt in PAIRS[:4]])


def test_a_fault_of_a_file_names_the_file(tmp_path):
    path = tmp_path / "mine.tsv"
    path.write_text("".join("\t".join(pair) + "\n" for pair in [("en", "de"), *PAIRS]), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"^{path}, line 1: the columns are 'en' and 'de'"):
        own_corpus(path, pair="de-en")


def test_a_corpus_stays_as_it_is():
    corpus = Corpus("known", "en", "de", own_corpus(PAIRS).splits)
    assert own_corpus(corpus) is corpus
    for more in ({"validation": PAIRS}, {"pair": "de-en"}):
        with pytest.raises(ValueError, match="known"):
            own_corpus(corpus, **more)


def test_a_missing_file_is_named():
    with pytest.raises(FileNotFoundError, match="nowhere"):
        own_corpus(Path("nowhere.tsv"))
