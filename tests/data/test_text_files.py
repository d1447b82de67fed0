import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from annotated.translation.data import ParallelText, read_lines, read_pairs, read_parallel


def write(path, data):
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


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


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_byte_order_mark_tells_utf_16(encoding, tmp_path):
    text = "a\u2028ü 東\r\n\nb" if encoding == "utf-16" else "\ufeffa\u2028ü 東\r\n\nb"
    assert read_lines(write(tmp_path / "a.txt", text.encode(encoding))) == ["a\u2028ü 東", "", "b"]


def follow_advice(error, path, to):
    """Convert a file as a message says."""
    command = str(error.value).partition("convert it with ")[2].replace("FILE", str(path))
    subprocess.run(command.replace("NEW", str(to)), shell=True, check=True)


def test_what_is_advised_for_another_encoding_works(tmp_path):
    path = write(tmp_path / "a.csv", "en,de\na bear,„Bär“ – 5 €\n".encode("cp1252"))
    with pytest.raises(ValueError, match=r"line 2: .*iconv") as error:
        read_pairs(path)
    follow_advice(error, path, tmp_path / "b.csv")
    assert list(read_pairs(tmp_path / "b.csv")) == [("a bear", "„Bär“ – 5 €")]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    "text", ["a bear\nb\n", "ein Bär", "медведь\nдве лисы\r\nкот\n", "上海一\n二三\n猫\n" * 9]
)
def test_utf_16_without_a_mark_is_told(text, encoding, tmp_path):
    path = write(tmp_path / "a.txt", text.encode(encoding))
    with pytest.raises(ValueError, match="looks like UTF-16") as error:
        read_lines(path)
    follow_advice(error, path, tmp_path / "b.txt")
    assert read_lines(tmp_path / "b.txt") == text.replace("\r", "").splitlines()
    lines = ["ein Satz"] * 20 + ["mit \0 darin"]  # one that strays is none of them
    assert read_lines(write(tmp_path / "c.txt", "\n".join(lines).encode())) == lines


@pytest.mark.parametrize("begin", [b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"PAR1\x15", b"%PDF-1.4"])
def test_a_file_that_is_no_text_is_not_taken_for_another_encoding(begin, tmp_path):
    path = write(tmp_path / "a.csv", begin + bytes(range(256)))
    with pytest.raises(ValueError, match=r"a\.csv is no text; save it as"):
        read_pairs(path)


def test_bytes_that_are_not_utf8_or_a_whole_gzip_file_are_named(tmp_path):
    path = write(tmp_path / "de.gz", "eins\nzwei\ndrei ä\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"de\.gz, line 3: .*0xe4"):
        read_lines(path)
    content = gzip.compress(b"some text\n" * 100)
    for damaged in (content[:-9], content[:20] + b"##" * 9):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"de\.gz is not a whole gzip file"):
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


def test_take_keeps_pairs_and_lines_together():
    text = ParallelText(["a", "b", "c"], ["A", "B", "C"], [1, 5, 9], "mine", {"x": 2})
    taken = text.take([2, 0])
    assert (list(taken), list(taken.lines)) == ([("c", "C"), ("a", "A")], [9, 1])
    assert taken.dropped == {}


LARGE = """
import re
from pathlib import Path
from annotated.translation.data import text_files

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
