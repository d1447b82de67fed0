import csv
import gzip
import io
import os
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotated.data import ParallelText, read_lines, read_pairs, read_parallel, read_tsv
from annotated.data.text_files import table_suffix
from annotated.files import decode_lines


def write(path, data):
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@given(st.lists(st.text(st.characters(exclude_characters="\n\r\ufeff", exclude_categories=["Cs"]))))
def test_a_line_ends_at_lf_alone(lines):
    data = "".join(line + "\n" for line in lines).encode()
    assert [*decode_lines(io.BytesIO(data), "file")] == lines


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"no end", ["no end"]),
        (b"a\n\nb\n", ["a", "", "b"]),
        ("a\u2028b\x85c\vd\fe\x1cf\n".encode(), ["a\u2028b\x85c\vd\fe\x1cf"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\r\r\n", ["a\rb"]),
        ("\ufeffa\n\ufeffb\n".encode(), ["a", "\ufeffb"]),
        (b"\0\t\n", ["\0\t"]),
    ],
)
def test_lines_by_hand(data, lines, tmp_path):
    assert read_lines(write(tmp_path / "a.txt", data)) == lines
    assert read_lines(write(tmp_path / "a.txt.gz", data)) == lines
    compressed = (tmp_path / "a.txt.gz").read_bytes()
    (tmp_path / "a.GZ").write_bytes(compressed)
    assert read_lines(tmp_path / "a.GZ") == lines


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_bytes_that_are_not_utf8_name_file_and_line(tmp_path, ending):
    path = write(tmp_path / f"de{ending}", "eins\nzwei\ndrei ä\n".encode("latin-1"))
    with pytest.raises(ValueError, match=rf"de{ending}, line 3: .*0xe4"):
        read_lines(path)


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-9], lambda data: b"not gzip", lambda data: data[:20] + b"##" * 9]
)
def test_a_damaged_gzip_file_is_named(tmp_path, damage):
    path = tmp_path / "text.gz"
    path.write_bytes(damage(gzip.compress(b"some text\n" * 100)))
    with pytest.raises(ValueError, match=r"text\.gz is not a whole gzip file"):
        read_lines(path)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r\r\n", b"\r", b" \t\n", b"\xe2\x80\x8b\n"])
def test_line_ends_do_not_reach_the_text(end, tmp_path):
    data = b"".join(side + end for side in (b"a dog", b"a cat"))
    text = read_parallel(write(tmp_path / "src", data), write(tmp_path / "tgt", data), "mine")
    assert list(text) == [("a dog", "a dog"), ("a cat", "a cat")]


def test_empty_sides_are_dropped_counted_and_keep_the_line_numbers(tmp_path):
    src = write(tmp_path / "src.gz", "a\n\nc\n \u2003\ne\n".encode())
    tgt = write(tmp_path / "tgt", b"A\nB\nC\nD\n\n")
    text = read_parallel(src, tgt, "mine")
    assert list(text) == [("a", "A"), ("c", "C")]
    assert list(text.lines) == [1, 3]
    assert sum(text.dropped.values()) == 3
    assert text.report() == "mine: 2 pairs\n  dropped 3: an empty side, first in line 2: '' | 'B'"


def test_sides_of_different_length_name_both_files_and_counts(tmp_path):
    src, tgt = write(tmp_path / "src", b"a\nb\n"), write(tmp_path / "tgt", b"A\nB\nC\n")
    with pytest.raises(ValueError, match=r"src and .*tgt: the source ends after 2 lines"):
        read_parallel(src, tgt)


def test_tsv_reads_two_columns_and_ignores_further_ones(tmp_path):
    text = read_tsv(write(tmp_path / "t.tsv", b"a\tA\r\nb\tB\tCC-BY #1\n\n\tC\nd\t\n"))
    assert list(text) == [("a", "A"), ("b", "B")]
    assert list(text.lines) == [1, 2]
    assert sum(text.dropped.values()) == 3


def test_tsv_from_a_pipe_is_read_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    Thread(target=lambda: (tmp_path / "pipe").write_bytes(b"a\tA\nb\tB\n"), daemon=True).start()
    assert list(read_tsv(tmp_path / "pipe")) == [("a", "A"), ("b", "B")]


def test_an_empty_pipe_is_an_error_rather_than_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    Thread(target=lambda: (tmp_path / "pipe").write_bytes(b""), daemon=True).start()
    with pytest.raises(ValueError, match="no sentence pairs"):
        read_tsv(tmp_path / "pipe")


def test_the_last_suffix_tells_a_table():
    found = ["a.tsv", "a.csv.gz", "a.en.jsonl", "a.tsv.en", "a.json.gz.de", "tsv", "a.gz", "a"]
    assert [table_suffix(name) for name in found] == [".tsv", ".csv", ".jsonl", "", "", "", "", ""]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_quotes_of_a_spreadsheet_are_not_text(quoting, tmp_path):
    pairs = [
        ('He said "hello" to me', "Er sagte hallo"),
        ("plain", 'schlicht "so"'),
        ('"Quoted."', "„Zitiert.“"),
    ]
    with (tmp_path / "t.tsv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter="\t", quoting=quoting).writerows(pairs)
    assert list(read_tsv(tmp_path / "t.tsv")) == pairs


def test_quotes_of_a_text_are_kept(tmp_path):
    data = '"Hello," he said.\t"Hallo", sagte er.\n"Yes."\t"Ja."\nSay "so\tSag "so\n'
    assert list(read_tsv(write(tmp_path / "t.tsv", data.encode()))) == [
        ('"Hello," he said.', '"Hallo", sagte er.'),
        ('"Yes."', '"Ja."'),
        ('Say "so', 'Sag "so'),
    ]


def test_a_column_of_numbers_is_no_source(tmp_path):
    """As in the files of Tatoeba, or those that pandas writes with its index."""
    with pytest.raises(ValueError, match="numbers"):
        read_tsv(write(tmp_path / "t.tsv", b"1\ta\tA\n2\tb\tB\n"))
    assert len(read_tsv(write(tmp_path / "t.tsv", b"1\tone\n2\ttwo\n"))) == 2


ROWS = [("a dog", "ein Hund"), ('say "so"', "sag, so"), ("two\nlines", "zwei Zeilen")]


def write_table(path):
    """Write `ROWS` with the columns id, de and en, in the format that the name says."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": range(3), "de": [tgt for _, tgt in ROWS], "en": [src for src, _ in ROWS]})
    if ".csv" in path.name:
        frame.to_csv(path, index=False)
    elif ".jsonl" in path.name:
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.jsonl", "t.jsonl.gz", "t.parquet"])
def test_tables_are_read_by_the_names_of_their_columns(name, tmp_path):
    write_table(tmp_path / name)
    text = read_pairs(tmp_path / name, ("en", "de"))
    assert list(text) == [*ROWS[:2], ("two lines", "zwei Zeilen")]
    assert list(text.lines) == [1, 2, 3]
    for columns in (None, ("en", "fr")):
        with pytest.raises(ValueError, match="id, de, en"):
            read_pairs(tmp_path / name, columns)


def test_a_column_of_that_name_comes_before_a_field_of_it(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"title": {"en": "no"}, "en": "yes", "de": "ja"}\n', encoding="utf-8")
    assert list(read_pairs(tmp_path / "t.jsonl", ("en", "de"))) == [("yes", "ja")]


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet"])
def test_a_column_of_numbers_is_no_text(name, tmp_path):
    write_table(tmp_path / name)
    with pytest.raises(ValueError, match=f"{name}: column id holds int64, not text"):
        read_pairs(tmp_path / name, ("id", "en"))


def test_take_keeps_pairs_and_lines_together():
    text = ParallelText(["a", "b", "c"], ["A", "B", "C"], [1, 5, 9], "mine", {"x": 2})
    taken = text.take([2, 0])
    assert (list(taken), list(taken.lines)) == ([("c", "C"), ("a", "A")], [9, 1])
    assert taken.dropped == {}


LARGE = """
import re
from pathlib import Path
from annotated.data import text_files

def resident(name):
    return int(re.search(rf"{name}:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1000

rows = ((i, f"{i} " + "dog " * 50, f"{i} " + "Hund " * 50) for i in range(200_000))
before = resident("RssAnon")
text = text_files.collect(rows, "large", "large")
assert sum(len(src) + len(tgt) for src, tgt in text) > 90e6
assert text.src[150_000] == "150000 " + " ".join(["dog"] * 50)
print(resident("RssAnon") - before)
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the system does not tell how much memory it took"
)
def test_a_large_text_does_not_stay_in_memory():
    megabytes = float(subprocess.check_output([sys.executable, "-c", LARGE], text=True))
    assert megabytes < 45  # for 90 of text; line numbers, lengths and places take 10
