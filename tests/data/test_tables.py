"""Tables: every cell is text as it was written, in every format; columns, separators and names by hand."""

import csv
import gzip
import json
import os
import re
import shlex
from datetime import datetime
from pathlib import Path
from threading import Thread
from zipfile import ZipFile

import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from annotated.translation.data import own_corpus, read_pairs
from annotated.translation.data.formats import TABLES
from annotated.translation.data.tables import select_columns
from annotated.translation.tokenizers import normalize


def write(path, data):
    data = data.encode() if isinstance(data, str) else data
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def write_rows(path, names, rows):
    """Write text in the format that the name says."""
    if path.suffix == ".jsonl":
        lines = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows]
        write(path, "".join(line + "\n" for line in lines))
    elif path.suffix == ".json":
        write(path, json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=1))
    elif path.suffix == ".parquet":
        columns = list(zip(*rows, strict=True)) or [[] for _ in names]
        types = pa.schema([(name, pa.string()) for name in names])
        pyarrow.parquet.write_table(pa.table(dict(zip(names, columns, strict=True)), schema=types), path)
    elif path.suffix == ".xlsx":
        book = openpyxl.Workbook()
        for line, row in enumerate([names, *rows], start=1):
            for column, value in enumerate(row, start=1):
                cell = book.active.cell(line, column)
                cell.number_format = "@"
                cell.value, cell.data_type = value, "s"
        book.save(path)
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            delimiter = "\t" if path.suffix == ".tsv" else ","
            csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows([names, *rows])
    return path


FORMATS = ("t.csv", "t.tsv", "t.jsonl", "t.json", "t.parquet", "t.xlsx")
CELLS = [
    "null", "nan", "NA", "None", "n/a", "NULL", "#N/A", "", "00123", "1.50", "1e5", "TRUE", "true",
    "Infinity", "2020-05-01", "May 1, 2020", '{"a": [1]}', "[1, 2]", "a;b", "a,b", "=1+1",
    "'so'", "12:30", "0x1F", "-0",
]  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_every_cell_is_text_as_it_was_written(name, tmp_path):
    rows = [(cell, f"x {cell}") for cell in CELLS] + [(f"y {cell}", cell) for cell in CELLS]
    wanted = [row for row in rows if all(row)]
    path = write_rows(tmp_path / name, ("en", "de"), rows)
    assert list(read_pairs(path, pair="en-de")) == wanted
    numbers = [(str(i), str(i)) for i in range(2000)]  # so that no reader can guess a type and be right
    path = write_rows(tmp_path / name, ("en", "de"), [*numbers, *rows])
    assert list(read_pairs(path, pair="en-de"))[2000:] == wanted


def test_a_field_that_comes_late_is_no_column_and_no_fault(tmp_path):
    rows = [{"en": "a", "de": "b"}] * 2000 + [{"en": "a", "de": "b", "meta": {"id": 7}}]
    assert len(read_pairs(write(tmp_path / "t.jsonl", "\n".join(map(json.dumps, rows))))) == 2001


LINE = st.text(st.characters(codec="utf-8", exclude_categories=("Cc",)), max_size=9)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(LINE, LINE), min_size=1, max_size=5))
def test_any_text_comes_back(name, rows, tmp_path):
    wanted = [pair for pair in ((normalize(a), normalize(b)) for a, b in rows) if all(pair)]
    path = write_rows(tmp_path / name, ("source", "target"), rows)
    if wanted:
        assert list(read_pairs(path)) == wanted
    else:
        with pytest.raises(ValueError, match="no pair is left"):
            read_pairs(path)


@pytest.mark.parametrize("name", FORMATS)
def test_columns_are_taken_by_the_names_of_the_pair_and_never_against_them(name, tmp_path):
    path = write_rows(tmp_path / name, ("de", "en"), [(f"Hund {i}", f"dog {i}") for i in range(40)])
    for pair, first in (("en-de", "dog"), ("de-en", "Hund"), ("DE-en", "Hund"), (None, "Hund")):
        assert all(src.startswith(first) for src, _ in own_corpus(path, pair=pair)["train"])
    for columns, pair in ((("de", "en"), "en-de"), ((1, 2), "en-de"), (None, "en-fr"), (None, "fr-de")):
        with pytest.raises(ValueError, match="the columns are 'de' and 'en', but the pair is"):
            read_pairs(path, columns, pair=pair)


@pytest.mark.parametrize(
    "names", [("target", "source"), ("TGT", "SRC"), ("translation", "text"), ("output", "input")]
)
@pytest.mark.parametrize("name", FORMATS)
def test_columns_are_taken_by_the_sides_that_they_are_named_as(name, names, tmp_path):
    path = write_rows(tmp_path / name, names, [(f"Hund {i}", f"dog {i}") for i in range(3)])
    assert list(read_pairs(path)) == [(f"dog {i}", f"Hund {i}") for i in range(3)]
    assert list(read_pairs(path, pair="en-de")) == [(f"dog {i}", f"Hund {i}") for i in range(3)]
    three = write_rows(tmp_path / name, ("id", *names), [("7", "Hund", "dog")])
    assert list(read_pairs(three)) == [("dog", "Hund")]


def test_files_of_lines_that_are_named_as_the_other_side_are_refused(tmp_path):
    for side, text in (("a", "target\nein Hund\n"), ("b", "source\na dog\n")):
        write(tmp_path / side, text)
    with pytest.raises(ValueError, match="named target and source; give the source first"):
        own_corpus((tmp_path / "a", tmp_path / "b"))


@pytest.mark.parametrize("name", FORMATS)
def test_names_that_do_not_tell_the_direction_are_asked_about(name, tmp_path):
    rows = [(f"A dog {i}.", f"Ein Hund {i}.") for i in range(3)]
    for names in (("en_US", "de-AT"), ("EN", "DE"), ("translation.en", "translation.de")):
        path = write_rows(tmp_path / name, names, rows)
        if name != "t.tsv" or "." not in names[0]:
            assert list(read_pairs(path, pair="en-de")) == rows
            assert list(read_pairs(path, pair="de-en")) == [pair[::-1] for pair in rows]
    path = write_rows(tmp_path / name, ("English", "German"), rows)
    if name != "t.tsv":  # where that is a pair of text
        with pytest.raises(ValueError, match=r"'English' and 'German' may be de-en or not; .*--pair.*give"):
            read_pairs(path, pair="de-en")
    assert list(read_pairs(path, ("German", "English"), pair="de-en")) == [pair[::-1] for pair in rows]
    if name not in ("t.json", "t.jsonl", "t.tsv"):
        with pytest.raises(ValueError, match="give --columns"):
            read_pairs(write_rows(tmp_path / name, ("en", "de", "en"), [("a", "b", "c")]), pair="en-de")


@pytest.mark.parametrize("separator", [";", "\t", "|", ","])
def test_separators_are_recognized(separator, tmp_path):
    pairs = [("Hello, friend; 1", "Hallo Freund | 1"), ('say "so"', "a\nb"), ("plain", "a,b;c|d\te")]
    with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file, delimiter=separator).writerows([("en", "de"), *pairs])
    found = read_pairs(tmp_path / "t.csv")
    assert list(found) == [(normalize(a), normalize(b)) for a, b in pairs]
    assert list(found.lines) == [2, 3, 5]


def test_a_separator_that_is_not_sure_is_asked_for(tmp_path):
    unsure = "a, b; c, d.\n" * 3
    with pytest.raises(ValueError, match=r"',' and ';' could separate.*sep=;") as error:
        read_pairs(write(tmp_path / "t.csv", unsure))
    assert "sep=;" in str(error.value)
    assert next(iter(read_pairs(write(tmp_path / "t.csv", "sep=;\n" + unsure)))) == ("a, b", "c, d.")
    other = "one^two\nthree^four\n"
    with pytest.raises(ValueError, match=r"only one column, 'one\^two'.*sep=\^"):
        read_pairs(write(tmp_path / "t.csv", other))
    assert len(read_pairs(write(tmp_path / "t.csv", "sep=^\n" + other), (1, 2))) == 2


def test_a_quote_that_is_never_closed_is_told_with_its_row(tmp_path):
    path = write(tmp_path / "t.csv", 'en,de\na dog,"ein Hund\n' + "a cat,eine Katze\n" * 20_000)
    with pytest.raises(ValueError, match=r"row of line 2: .*not closed"):
        read_pairs(path)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.xlsx"])
def test_names_are_taken_without_the_spaces_around_them(name, tmp_path):
    rows = [(f"Hund {i}", f"dog {i}") for i in range(3)]
    path = write_rows(tmp_path / name, ("de ", " en"), rows)
    found = read_pairs(path, pair="en-de")
    assert (next(iter(found)), len(found)) == (("dog 0", "Hund 0"), 3)
    assert len(read_pairs(path, ("en", "de"))) == 3


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.xlsx"])
def test_numbers_count_the_columns_unless_they_can_only_be_names(name, tmp_path):
    """The first row of "2,1" holds text, as the rows below do."""
    rows = [("3", "drei"), ("4", "vier")]
    path = write_rows(tmp_path / name, ("2", "1"), rows)
    assert list(read_pairs(path, (1, 2))) == [("2", "1"), *rows]
    path = write_rows(tmp_path / name, ("2020", "2021"), rows)
    assert list(read_pairs(path, ("2020", "2021"))) == rows
    with pytest.raises(ValueError, match="from 1"):
        read_pairs(path, ("0", "²"))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("columns", [None, ("en", "de")])
@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.xlsx"])
def test_a_title_above_the_names_is_to_be_deleted(name, columns, count, tmp_path):
    rows = [("en", "de"), ("a dog", "ein Hund"), ("a cat", "eine Katze")]
    path, read = write_rows(tmp_path / name, ("Vocabulary",), rows), TABLES[Path(name).suffix]
    if name == "t.csv":
        path.write_text(path.read_text().replace('"', ""))
    asked = {"columns": columns and columns[:count], "where": name, "pair": "en-de", "count": count}
    with pytest.raises(ValueError, match=r"delete (lines|what stands) above") as error:
        select_columns(read(path), **asked)
    assert ("the sheet in front, 'Sheet'" in str(error.value)) == (name == "t.xlsx")
    assert len(list(select_columns(read(write_rows(path, *rows[:1], rows[1:])), **asked).rows)) == 2
    if name == "t.csv":  # the other advice leads to the same
        path.write_text("sep=,\nVocabulary\nen,de\na dog,ein Hund\n")
        with pytest.raises(ValueError, match=r"line 3: 2 columns, .*delete lines above the names"):
            select_columns(read(path), **asked)
        path.write_text("Vocabulary,,\nid,en,de\n1,a dog,ein Hund\n")
        with pytest.raises(ValueError, match="delete lines above the names, or give --columns"):
            select_columns(read(path), **asked)


@pytest.mark.parametrize("name", ["t.xlsx", "t.jsonl", "t.json", "t.parquet"])
def test_no_separator_is_asked_for_where_none_can_be_given(name, tmp_path):
    path = write_rows(tmp_path / name, ("text",), [("a dog",)])
    with pytest.raises(ValueError, match="only one column, 'text'") as error:
        read_pairs(path)
    assert not re.search("separat|sep=|tabs|csv", str(error.value).removeprefix(str(path)))


def test_names_under_a_title_are_no_pair(tmp_path):
    path = write(tmp_path / "t.csv", "My sentences,\nen,de\na dog,ein Hund\na cat,eine Katze\n")
    assert sorted(pair for text in own_corpus(path, pair="en-de").splits.values() for pair in text) == [
        ("a cat", "eine Katze"),
        ("a dog", "ein Hund"),
    ]


def test_a_spreadsheet_is_closed_and_its_sheet_must_have_rows(tmp_path):
    path = write_rows(tmp_path / "t.xlsx", ("en", "de"), [("a dog", "ein Hund")])
    table = read_pairs(path)
    assert len(table) == 1
    if (opened := Path("/proc/self/fd")).exists():
        assert str(path) not in [os.readlink(fd) for fd in opened.iterdir() if fd.is_symlink()]
    book = openpyxl.load_workbook(path)
    chart = openpyxl.chart.BarChart()
    chart.add_data(openpyxl.chart.Reference(book.active, 1, 1, 2, 2))
    book.create_chartsheet().add_chart(chart)
    book.active = 1
    book.save(path)
    with pytest.raises(ValueError, match="in front holds a chart"):
        read_pairs(path)


def test_sheets_that_are_not_read_are_named_once(tmp_path, capsys):
    path = write_rows(tmp_path / "t.xlsx", ("en", "de"), [("a dog", "ein Hund")])
    book = openpyxl.load_workbook(path)
    book.create_sheet("empty")["B2"].number_format = "@"
    book.save(path)
    assert len(read_pairs(path)) == 1
    assert capsys.readouterr().err == ""
    book.create_sheet("more")["A7"] = "a cat"
    book.save(path)
    assert len(read_pairs(path)) == 1
    err = capsys.readouterr().err
    assert (err.count("'Sheet'"), err.count("'more'"), "empty" in err) == (1, 1, False)
    book.active = book["more"]  # as it advises
    book.save(path)
    with pytest.raises(ValueError, match="only one column"):
        read_pairs(path)
    assert "in front, 'more', is read; the rows of 'Sheet' are left out" in capsys.readouterr().err


def test_rows_are_read_whatever_size_a_spreadsheet_claims(tmp_path):
    path = write_rows(tmp_path / "t.xlsx", ("en", "de"), [("a dog", "ein Hund"), ("a cat", "eine Katze")])
    with ZipFile(path) as saved, ZipFile(tmp_path / "claim.xlsx", "w") as claim:
        for name in saved.namelist():
            claim.writestr(name, saved.read(name).replace(b'"A1:B3"', b'"A1"'))
    assert list(read_pairs(tmp_path / "claim.xlsx")) == list(read_pairs(path))


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_a_row_of_another_width_is_refused_with_its_line(name, tmp_path):
    text = "en,de\na dog,ein Hund\n\na cat,eine Katze,\n"
    with pytest.raises(ValueError, match=r"line 4: 3 columns, but the first row has 2"):
        read_pairs(write(tmp_path / name, text.replace(",", "\t") if name == "t.tsv" else text))
    with pytest.raises(ValueError, match=r"row of line 2: .*doubled"):
        read_pairs(write(tmp_path / "t.csv", 'en,de\n"a dog,ein Hund\na cat,eine Katze\n'))
    rows = "en,de\na dog,ein Hund, der bellt\n"
    with pytest.raises(ValueError, match="in quotes"):
        read_pairs(write(tmp_path / name, rows.replace(",", "\t") if name == "t.tsv" else rows))
    quoted = 'en,de\na dog,"ein Hund, der bellt"\n'
    assert list(read_pairs(write(tmp_path / "t.csv", quoted))) == [("a dog", "ein Hund, der bellt")]


def test_a_first_row_is_names_or_text_and_is_told(tmp_path):
    rest = "A dog runs.,Ein Hund rennt.\nA cat sits.,Eine Katze sitzt.\n"
    for names in ("question,answer", "en,de"):
        found = read_pairs(write(tmp_path / "t.csv", f"{names}\n{rest}"))
        assert len(found) == 2
        assert "column names, in line 1" in found.report()
    found = read_pairs(write(tmp_path / "t.csv", rest))
    assert (len(found), found.dropped) == (2, {})
    words = write(tmp_path / "t.csv", "word,Wort\ndog,Hund\ncat,Katze\n")
    with pytest.raises(ValueError, match="may be names or text"):
        read_pairs(words)
    assert len(read_pairs(words, ("word", "Wort"))) == 2  # both of what it advises
    assert len(read_pairs(words, (1, 2))) == 3
    assert len(read_pairs(write(tmp_path / "t.tsv", "word\tWort\ndog\tHund\n"))) == 2  # no names in a .tsv
    assert list(read_pairs(tmp_path / "t.tsv", ("Wort", "word"))) == [("Hund", "dog")]
    rows = "".join(f"a dog {i}\tein Hund {i}\n" for i in range(30))
    unsure = write(tmp_path / "t.tsv", f"English\tGerman\n{rows}")  # it might be a pair of words
    with pytest.raises(ValueError, match="English,German, may be names or text"):
        read_pairs(unsure)
    assert len(read_pairs(unsure, ("English", "German"))) == 30
    assert len(read_pairs(unsure, (1, 2))) == 31
    with pytest.raises(ValueError, match="may be names or text") as error:
        read_pairs(write(tmp_path / "t.csv", "Text ,Übersetzung\ndog,Hund\n"))
    [_, pasted] = shlex.split(re.search(r"--columns \S+", str(error.value))[0])
    assert len(read_pairs(tmp_path / "t.csv", pasted.split(","))) == 1
    three = "".join(f"{i}\tdog {i}\tHund {i}\n" for i in range(30))
    with pytest.raises(ValueError, match=r"SOURCE,TARGET, two of these, for names.*1,2, for text"):
        read_pairs(write(tmp_path / "three.tsv", f"id\tword\tWort\n{three}"))
    with pytest.raises(ValueError, match="there are 'Source text', id, 'Target text'"):
        read_pairs(write(tmp_path / "t.csv", "Source text,id,Target text\na b,c,d e\n"))
    assert len(read_pairs(write(tmp_path / "t.tsv", f"dog\tHund\n{rows}cat\tKatze\n"))) == 32


@pytest.mark.parametrize("name", FORMATS)
def test_a_table_without_rows_is_refused(name, tmp_path):
    path = write_rows(tmp_path / name, ("en", "de"), [])
    with pytest.raises(ValueError, match=r"t\.\w+: (no sentence pairs|there are no rows)"):
        read_pairs(path)
    if name not in ("t.parquet", "t.xlsx"):
        with pytest.raises(ValueError, match="there are no rows"):
            read_pairs(write(path, ""))
    with pytest.raises(ValueError, match="t\\."):
        read_pairs(write(path, b"\x00PK\x03 no such file"))


def test_json_says_what_is_not_text(tmp_path):
    path = tmp_path / "t.jsonl"
    row = '{"src": 00, "tgt": "b"}'.replace("00", "%s") + "\n"
    values = {"1.50": "1.50", "true": "true", "1e999": "1e999", "10000000000000000000000": "1" + "0" * 22}
    found = read_pairs(write(path, "".join(row % value for value in values)))
    assert [src for src, _ in found] == list(values.values())
    assert len(read_pairs(write(path, row % '"a"' + row % "null" + row % "NaN"))) == 1
    with pytest.raises(ValueError, match=r"line 1: column src holds .*list"):
        read_pairs(write(path, row % "[1]"))
    twice = '{"src": "a", "src": "b", "tgt": "c"}\n'
    for text in ("[1]", '"a"\n', "{\n", '{"src": "a"}\n3\n', "[" * 100_000, '[["a", "b"]]', twice):
        with pytest.raises(ValueError, match=r"t\.jsonl, line \d: .*there must be an object"):
            read_pairs(write(path, text))
    nested = '{"id": "7", "translation": {"de": "ein Hund", "en": "a dog"}}\n'
    assert list(read_pairs(write(path, nested), pair="en-de")) == [("a dog", "ein Hund")]


def test_a_typed_column_is_refused_with_its_line(tmp_path):
    day = datetime(2020, 5, 1)
    pyarrow.parquet.write_table(pa.table({"en": ["a"], "de": [day]}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"line 1: column de holds datetime.*not text"):
        read_pairs(tmp_path / "t.parquet")
    for value, shown in ((day, None), (1.5, None), (12, "12"), (True, "TRUE")):
        book = openpyxl.Workbook()
        for row in (("en", "de"), ("a b", value)):
            book.active.append(row)
        book.save(tmp_path / "t.xlsx")
        if shown:
            assert list(read_pairs(tmp_path / "t.xlsx")) == [("a b", shown)]
        else:
            with pytest.raises(ValueError, match=r"line 2: column de holds .* not text"):
                read_pairs(tmp_path / "t.xlsx")


@pytest.mark.parametrize("value", ["#N/A", "#REF!", "=A1"])
def test_an_error_or_a_formula_without_a_value_is_refused_where_it_is_read(value, tmp_path):
    path, computed = tmp_path / "t.xlsx", tmp_path / "computed.xlsx"
    book = openpyxl.Workbook()
    for row in (("en", "de", "fr"), ("a dog", value, value), ("a cat", "eine Katze", "un chat")):
        book.active.append(row)
    book.save(path)
    with pytest.raises(ValueError, match=rf"line 2: column de holds '{value}' .*not text; (mend|open)"):
        read_pairs(path, ("en", "de"))
    with ZipFile(path) as saved, ZipFile(computed, "w") as file:  # a spreadsheet program saves text, or none
        for name in saved.namelist():
            cells = saved.read(name).replace(b' t="e"', b' t="str"')
            cells = cells.replace(b'<c r="B2"><f>A1</f><v>', b'<c r="B2" t="str"><f>A1</f><v>en')
            file.writestr(name, cells.replace(b'<c r="C2"><f>', b'<c r="C2" t="str"><f>'))
    shown = "en" if value == "=A1" else value
    assert list(read_pairs(computed, ("en", "de"))) == [("a dog", shown), ("a cat", "eine Katze")]
    assert len(read_pairs(computed, ("en", "fr"))) == (1 if value == "=A1" else 2)


def test_tsv_reads_two_columns_and_tells_of_further_ones_once(tmp_path, capsys):
    """Once, as from a pipe."""
    path, data = tmp_path / "pipe.tsv", b"a\tA\t\r\nb\tB\tCC-BY #1\n\n\tC\t\nd\t\t\n"
    os.mkfifo(path)
    Thread(target=lambda: path.write_bytes(data), daemon=True).start()
    text = read_pairs(path)
    assert (list(text), list(text.lines)) == ([("a", "A"), ("b", "B")], [1, 2])
    assert sum(text.dropped.values()) == 3
    assert capsys.readouterr().err.count("of its 3 columns, the first two are read") == 1


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_quotes_of_a_spreadsheet_are_not_text(quoting, tmp_path):
    pairs = [
        ('He said "hello" to me', "Er sagte hallo"),
        ("plain", 'schlicht "so"'),
        ('"Quoted."', "„Zitiert.“"),
    ]
    with (tmp_path / "t.tsv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter="\t", quoting=quoting).writerows(pairs)
    assert list(read_pairs(tmp_path / "t.tsv")) == pairs


def test_quotes_of_a_text_are_kept(tmp_path):
    pairs = [('"Hello," he said.', '"Hallo", sagte er.'), ('"Yes."', '"Ja."'), ('Say "so', 'Sag "so')]
    data = "".join("\t".join(pair) + "\n" for pair in pairs)
    assert list(read_pairs(write(tmp_path / "t.tsv", data.encode()))) == pairs


def test_a_column_of_numbers_is_no_source(tmp_path):
    """As in the files of Tatoeba, or those that pandas writes with its index."""
    with pytest.raises(ValueError, match="numbers"):
        read_pairs(write(tmp_path / "t.tsv", b"1\ta\tA\n2\tb\tB\n"))
    assert list(read_pairs(write(tmp_path / "t.tsv", "id\ten\tde\n1\ta\tA\n"), pair="en-de")) == [("a", "A")]
    assert len(read_pairs(write(tmp_path / "t.tsv", b"1\tone\n2\ttwo\n"))) == 2


ROWS = [("a dog", "ein Hund"), ('say "so"', "sag, so"), ("two\nlines", "zwei Zeilen")]


def write_table(path):
    """Write `ROWS` with the columns id, de and en, in the format that the name says."""
    frame = pd.DataFrame({"id": range(3), "de": [tgt for _, tgt in ROWS], "en": [src for src, _ in ROWS]})
    if ".csv" in path.name:
        frame.to_csv(path, index=False)
    elif ".jsonl" in path.name:
        frame.to_json(path, orient="records", lines=True)
    elif ".parquet" in path.name:
        frame.to_parquet(path)
    else:
        frame.to_excel(path.with_suffix(".xlsx"), index=False)
        path.with_suffix(".xlsx").rename(path)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.jsonl", "t.jsonl.gz", "t.parquet", "t.XLSX"])
def test_tables_are_read_by_the_names_of_their_columns(name, tmp_path):
    write_table(tmp_path / name)
    text = read_pairs(tmp_path / name, ("en", "de"))
    assert list(text) == [*ROWS[:2], ("two lines", "zwei Zeilen")]
    assert list(text.lines) == ([2, 3, 4] if ".csv" in name or "XLSX" in name else [1, 2, 3])
    assert (
        list(read_pairs(tmp_path / name, (3, 2)))
        == list(text)
        == list(read_pairs(tmp_path / name, pair="en-de"))
    )
    for columns, says in (
        (None, "give --columns.*id, de, en"),
        ((1, 4), "id, de, en"),
        ((1, 2, 3), "id, de, en"),
        (("en", "fr"), "there is not one column fr; .*id, de, en"),
    ):
        with pytest.raises(ValueError, match=says):
            read_pairs(tmp_path / name, columns)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", "Vocabulary\nein\nzwei\n"),
        ("t.tsv", "word\tnote\n" + "".join(f"dog {i}\tx y\n" for i in range(30))),
        ("t.csv", "German text,note\nein,a\n"),
        ("t.csv", "en\na dog\n"),
        ("t.csv", "German_text\nein Hund\nzwei Hunde\n"),
        ("t.tsv", "id\tword\n" + "".join(f"{i}\tdog {i}\n" for i in range(30))),
        ("t.tsv", "7\ta\tb\n"),
        ("t.jsonl", '{"a": "ein", "b": "c"}\n'),
    ],
)
def test_who_reads_one_column_is_told_of_one(name, content, tmp_path):
    path, read = write(tmp_path / name, content), TABLES[Path(name).suffix]
    with pytest.raises(ValueError, match="column") as error:
        select_columns(read(path), None, where=str(path), pair="de-en", count=1)
    assert not re.search("Python|TARGET|target|,2|two|columns are", str(error.value))
    for column in {"1", *re.findall(r"--columns '?(\w+)'? for names", str(error.value))}:
        assert select_columns(read(path), [column], where=str(path), pair=None, count=1).indices == [0]


@pytest.mark.parametrize(("columns", "told"), [(["1", "2"], True), (["Text", "Name"], False)])
def test_a_first_line_that_is_read_as_text_by_numbers_is_told(columns, told, tmp_path, capsys):
    path = write(tmp_path / "own.csv", "Text,Name\none,eins\ntwo,zwei\n")
    assert len(read_pairs(path, columns=columns)) == 2 + told
    assert ("the first row is text" in capsys.readouterr().err) == told
