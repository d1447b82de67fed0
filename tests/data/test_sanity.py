"""What is wrong with pairs of one's own: dropped and told, or refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotated.data import ParallelText, read_tsv
from annotated.data.own import LONGEST, check_sides, without_faults, without_held_out

GOOD = [(f"the cat sees {i} dogs", f"die Katze sieht {i} Hunde") for i in range(9)]


def text(*pairs, name="mine"):
    src, tgt = map(list, zip(*pairs, strict=True))
    return ParallelText(src, tgt, [*range(1, len(src) + 1)], name)


def test_text_without_faults_stays_as_it_is():
    assert without_faults(text(*GOOD)) == text(*GOOD)


HEADERS = [
    ("en", "de"),
    ("source", "target"),
    ("src", "tgt"),
    ("English", "German"),
    ('"EN"', '"DE"'),
    ("source_text", "target_text"),
    ("English sentence", "German sentence"),
    ("text", "translation"),
]


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("pair", [None, "en-de"])
def test_a_header_is_no_pair(header, pair):
    found = without_faults(text(header, *GOOD), pair)
    assert list(found) == GOOD
    assert found.lines[0] == 2
    assert found.report().splitlines() == [
        "mine: 9 pairs",
        f"  dropped 1: names of columns, in line 1: {header[0]!r} | {header[1]!r}",
    ]


@pytest.mark.parametrize("first", [("no", "nein"), ("a dog", "ein Hund"), ("English is fine.", "Deutsch.")])
def test_a_first_pair_that_is_none_stays(first):
    assert list(without_faults(text(first, *GOOD))) == [first, *GOOD]


def test_names_of_columns_are_looked_for_in_the_first_line_alone():
    assert len(without_faults(text(*GOOD, ("source", "target")))) == 10


@pytest.mark.parametrize("header", [("de", "en"), ("German", "English")])
def test_columns_the_other_way_round_are_refused(header):
    with pytest.raises(ValueError, match=r"mine, line 1: .* but the pair is en-de; swap the columns"):
        without_faults(text(header, *GOOD), "en-de")
    assert len(without_faults(text(header, *GOOD), "de-en")) == 9


def test_a_pair_that_teaches_to_copy_is_dropped_and_told():
    found = without_faults(text(*GOOD, ("Paris", " Paris "), ("OK", "OK")))
    assert list(found) == GOOD
    assert found.report().splitlines()[1] == (
        "  dropped 2: source and target equal, first in line 10: 'Paris' | ' Paris '"
    )


def test_mostly_copies_are_refused():
    with pytest.raises(ValueError, match=r"mine: 10 of 19 pairs have source and target equal, first"):
        without_faults(text(*[(f"same {i}", f"same {i}") for i in range(10)], *GOOD))


def test_an_answer_beside_its_question_is_refused():
    """As in `--src both.tsv --tgt a.de`, whatever the file is called."""
    with pytest.raises(ValueError, match=r"9 of 9 pairs have the target in the source, behind a tab"):
        without_faults(text(*((f"{src}\t{tgt}", tgt) for src, tgt in GOOD)))
    with pytest.raises(ValueError, match=r"9 of 9 pairs have the source in the target, behind a tab"):
        without_faults(text(*((src, f"{src}\t{tgt}") for src, tgt in GOOD)))


def test_an_absurdly_long_side_is_dropped_and_told_in_short():
    found = without_faults(text(*GOOD, ("x" * (LONGEST + 1), "short"), ("short", "y" * LONGEST)))
    assert len(found) == 10
    [line] = found.report().splitlines()[1:]
    assert line.startswith(f"  dropped 1: more than {LONGEST:,} characters, in line 10: 'xxx")
    assert len(line) < 150


def test_nothing_left_is_an_error():
    with pytest.raises(ValueError, match="mine: no pair is left"):
        without_faults(text(("en", "de")))


sides = st.sampled_from(["a", "b", "a b", "x y", "en", "de", "\t", "a\tx y", "z" * (LONGEST + 1)])


@given(st.lists(st.tuples(sides, sides), min_size=1))
def test_every_pair_is_kept_in_its_order_or_counted(pairs):
    try:
        found = without_faults(text(*pairs))
    except ValueError:
        return
    assert len(found) + sum(found.dropped.values()) == len(pairs)
    assert list(found) == [pairs[line - 1] for line in found.lines]
    assert found.lines == sorted(found.lines)
    assert all(src.strip() != tgt.strip() for src, tgt in found)
    again = without_faults(found)
    assert list(again) == list(found)  # once is enough


def test_what_was_dropped_before_is_still_counted():
    before = ParallelText(["a", "b", "c"], ["x", "b", "z"], [1, 3, 4], "mine", {"an empty side": 1})
    assert sum(without_faults(before).dropped.values()) == 2


# ---- training and validation


def test_pairs_that_are_validated_on_are_not_trained_on():
    found = without_held_out(text(*GOOD, GOOD[1], name="train"), text(GOOD[1], GOOD[5], ("no", "nein")))
    assert set(found) == set(GOOD) - {GOOD[1], GOOD[5]}
    assert found.report().splitlines()[1] == (
        "  dropped 3: also in the validation text, first in line 2: 'the cat sees 1 dogs' | "
        "'die Katze sieht 1 Hunde'"
    )


def test_validating_on_the_training_text_is_refused():
    with pytest.raises(ValueError, match="mine: no pair is left: 9 also in the validation text"):
        without_held_out(text(*GOOD), text(*GOOD))


@given(st.lists(st.tuples(sides, sides), min_size=1), st.lists(st.tuples(sides, sides), min_size=1))
def test_no_pair_stands_in_both(train, val):
    try:
        found = without_held_out(text(*train), text(*val))
    except ValueError:
        assert set(train) <= set(val)
        return
    assert set(found) == set(train) - set(val)
    assert len(found) + sum(found.dropped.values()) == len(train)


def test_validation_files_the_other_way_round_are_refused():
    turned = text(*((tgt, src) for src, tgt in GOOD[:3]), name="val")
    with pytest.raises(ValueError, match=r"val: .* sides of mine; swap source and target"):
        check_sides(text(*GOOD), turned)
    check_sides(text(*GOOD), text(*GOOD[:3]))
    check_sides(text(*GOOD), text(("quite", "andere"), ("other words", "Wörter")))


def test_one_language_on_both_sides_is_never_turned():
    """Paraphrases: either side has the words of the other."""
    pairs = [(f"a b c {i}", f"c b {i} a") for i in range(20)]
    check_sides(text(*pairs[:15]), text(*pairs[15:]))
    check_sides(text(*pairs[:15]), text(*((tgt, src) for src, tgt in pairs[15:])))


# ---- columns


def test_a_column_of_numbers_is_no_source(tmp_path):
    """As in the files of Tatoeba, or those that pandas writes with its index."""
    path = tmp_path / "numbered.tsv"
    path.write_text("".join(f"{i}\t{src}\t{tgt}\n" for i, (src, tgt) in enumerate(GOOD)), encoding="utf-8")
    with pytest.raises(ValueError, match=r"numbered.tsv: the first column holds numbers"):
        read_tsv(path)
    path.write_text("".join(f"{i}\tnumber {i}\n" for i in range(9)), encoding="utf-8")
    assert len(read_tsv(path)) == 9
