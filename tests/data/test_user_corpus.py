"""Text of one's own: every form that it comes in, and the pairs that are dropped or refused."""

import json
import os

import numpy as np
import pandas as pd
import pytest
from tiny_runs import CATS as PAIRS, write_cats

from annotated.translation.data import Corpus, ParallelText, corpora, own_corpus, own_text
from annotated.translation.data.tables import check_sides, drop_faults


def text(*pairs, name="mine"):
    src, tgt = map(list, zip(*pairs, strict=True))
    return ParallelText(src, tgt, [*range(1, len(src) + 1)], name)


@pytest.fixture
def files(tmp_path):
    return write_cats(tmp_path)


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
        lambda folder: zip(
            *((folder / name).open(encoding="utf-8") for name in ("a.en", "a.de")), strict=True
        ),
    ],
)
def test_every_form_is_the_same_text(given, files):
    found = own_text(given(files), "mine")
    assert list(found) == PAIRS
    assert all(type(side) is str for pair in found for side in pair)
    assert list(found.lines) == [*range(1, 61)]
    assert found.name == "mine"


def test_a_frame_is_one_line():
    frame = pd.DataFrame(PAIRS, columns=["en", "de"])
    assert list(own_text(zip(frame["en"], frame["de"], strict=True), "mine")) == PAIRS
    with pytest.raises(ValueError, match="mine: item 1 is"):
        own_text(frame, "mine")


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA, "", "\u200b", "\u00a0\r"])
def test_a_missing_side_is_dropped_and_counted(missing):
    text = own_text([PAIRS[0], ("a", missing), PAIRS[1], (missing, "b")], "mine")
    assert (list(text), list(text.lines)) == (PAIRS[:2], [1, 3])
    assert sum(text.dropped.values()) == 2


@pytest.mark.parametrize(
    "item",
    [("a", 5), ("a", b"b"), ("a", "b", "c"), "ab", {"a": 1, "b": 2}, {"a", "b"}, None, ["a dog"] * 9999],
)
def test_an_item_that_is_not_an_ordered_pair_of_strings_is_refused(item):
    with pytest.raises(ValueError, match=r"^mine: item 2 is .{,80}, not a pair of strings .*zip\("):
        own_text([("a", "b"), item], "mine")


def test_an_exhausted_iterator_is_told_from_empty_sides():
    used = iter(PAIRS)
    list(used)
    with pytest.raises(ValueError, match="only once"):
        own_text(used, "mine")
    with pytest.raises(ValueError, match="no pair is left"):
        own_text([("a", "")], "mine")


def test_without_validation_text_some_is_held_out():
    corpus = own_corpus(PAIRS, pair="en-de")
    assert (corpus.name, corpus.pair) == ("own", "en-de")
    assert {name: len(split) for name, split in corpus.splits.items()} == {"train": 57, "val": 3}


def test_validation_text_has_any_form_too(files):
    corpus = own_corpus(iter([*PAIRS, ("a cat", "eine Katze")]), (files / "a.en", files / "a.de"))
    assert list(corpus["val"]) == PAIRS
    assert list(corpus["train"]) == [("a cat", "eine Katze")]


def test_a_corpus_stays_as_it_is():
    corpus = Corpus("known", "en", "de", own_corpus(PAIRS).splits)
    assert own_corpus(corpus) is corpus
    for more in ({"validation": PAIRS}, {"pair": "de-en"}, {"columns": (1, 2)}):
        with pytest.raises(ValueError, match="known"):
            own_corpus(corpus, **more)


@pytest.mark.parametrize("look", ["{}\r", "\ufeff{}", "\u00a0{}", "{}"])
def test_pairs_that_are_validated_on_are_not_trained_on(look):
    """Also where the copies look the same and are spelled otherwise, here with separate diacritics."""
    val = [("ein Käse", "some cheese"), ("der Bär", "the bear")]
    copies = [(look.format(src).replace("ä", "a\u0308"), look.format(tgt)) for src, tgt in val]
    corpus = own_corpus([*PAIRS, *copies], val)
    assert list(corpus["train"]) == PAIRS
    assert sum(corpus["train"].dropped.values()) == 2


def test_cached_text_is_the_text_and_is_read_once(files, tmp_path, monkeypatch):
    (files / "val.tsv").write_text("a\u0308\tb\n\t\nc\td\n", encoding="utf-8")
    for validation in (None, files / "val.tsv"):
        given = ((files / "a.en", files / "a.de"), validation, "en-de")
        plain = own_corpus(*given)
        assert own_corpus(*given, cache=tmp_path / "cache") == plain
        with monkeypatch.context() as patch:
            patch.setattr(corpora, "own_text", None)
            cached = own_corpus(*given, cache=tmp_path / "cache")
        assert cached == plain
        assert cached.fingerprint == plain.fingerprint
        assert [text.report() for text in cached.splits.values()] == [
            text.report() for text in plain.splits.values()
        ]


def test_text_that_is_read_otherwise_is_read_again(files, tmp_path):
    rows = [{"en": f"dog {i}", "de": f"Hund {i}", "fr": f"chien {i}"} for i in range(20)]
    rows.append(dict.fromkeys(("en", "de", "fr"), "taxi"))
    table, both = files / "table.jsonl", files / "both.tsv"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    a, b = files / "a.tsv", files / "b.tsv"
    for path in (a, b):
        path.write_text("".join(f"{path.stem} {i}\t{i}\n" for i in range(len(PAIRS))), encoding="utf-8")
    columns = {"columns": ["en", "de"]}
    for texts, options in (
        ((table,), columns),
        ((table,), {"columns": ["en", "fr"]}),
        ((table,), {**columns, "keep_equal": True}),
        ((table,), {**columns, "pair": "en-de"}),
        (((both, a),), {}),  # each file is one side
        ((both, a), {}),  # one to train and one to validate on, each with both sides
        ((both, (a, b)), {}),
        (((both, a), b), {}),
    ):
        assert own_corpus(*texts, **options, cache=tmp_path / "cache") == own_corpus(*texts, **options)


def test_text_that_has_changed_is_read_again(files, tmp_path):
    path = files / "both.tsv"
    first, before = own_corpus(path, cache=tmp_path), path.stat()
    path.write_bytes(path.read_bytes().replace(b"sieht", b"hoert"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 10**9))  # of the same size
    assert own_corpus(path, cache=tmp_path) != first


def test_text_that_changes_while_it_is_read_is_refused(files, tmp_path, monkeypatch):
    read = corpora.own_text

    def meddled(path, *arguments, **options):
        text = read(path, *arguments, **options)
        path.write_text("a cat\teine Katze\n", encoding="utf-8")
        return text

    monkeypatch.setattr(corpora, "own_text", meddled)
    with pytest.raises(ValueError, match="changed while"):
        own_corpus(files / "both.tsv", cache=tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("text-*/corpus.json"))


def test_text_of_mostly_equal_sides_is_refused_unless_they_are_to_be_kept():
    copies = text(*[(f"same {i}", f"same {i}") for i in range(61)], *PAIRS)
    with pytest.raises(ValueError, match="61 of 121 pairs"):
        drop_faults(copies)
    assert drop_faults(copies, keep_equal=True) == copies
    assert list(drop_faults(copies, keep_equal=False)) == PAIRS
    names = [("Paris", "Paris"), ("OK", " OK")]
    assert list(drop_faults(own_text([*PAIRS, *names], "mine"))) == PAIRS


@pytest.mark.parametrize("header", [("en", "de"), ("source", "target"), ("EN", "DE")])
def test_names_of_columns_are_not_trained_on(header):
    found = drop_faults(text(header, *PAIRS), "en-de")
    assert (list(found), found.lines[0]) == (PAIRS, 2)
    assert list(drop_faults(text(*PAIRS, header), "en-de")) == [*PAIRS, header]


def test_swapped_validation_text_is_refused():
    turned = text(*((tgt, src) for src, tgt in PAIRS[:3]), name="val")
    with pytest.raises(ValueError, match="swapped"):
        check_sides(text(*PAIRS), turned)
    check_sides(text(*PAIRS), text(*PAIRS[:3]))
    check_sides(text(*PAIRS), text(("quite", "andere"), ("other words", "Wörter")))


def test_a_fingerprint_tells_other_text_to_train_or_to_validate_on():
    parts = (PAIRS[:30], PAIRS[30:]), (PAIRS[:30], PAIRS[31:]), (PAIRS[1:30], PAIRS[30:])
    corpora = [own_corpus(train, val) for train, val in parts]
    assert len({corpus.fingerprint for corpus in corpora}) == 3
    assert own_corpus(PAIRS[:30], PAIRS[30:]).fingerprint == corpora[0].fingerprint
    with pytest.raises(ValueError, match="line break"):  # it would be the text of other pairs as well
        _ = text(("a\nb", "c")).fingerprint
