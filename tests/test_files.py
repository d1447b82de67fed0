"""A file or folder under its final name is whole, whatever happens while it is written."""

import errno
import json
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from annotated.files import (
    creating_folder,
    read_json,
    read_toml,
    remove_folder,
    remove_partials,
    replacing,
    settings_from_json,
    write_json,
)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def half_write(path):
    path.write_text("ne")
    raise OSError("full")


def write_folder(path, name, content):
    with creating_folder(path) as partial:
        (partial / name).write_text(content)


def test_a_file_is_replaced_only_when_all_is_written(tmp_path):
    path = tmp_path / "sub" / "file"
    with replacing(path) as partial:
        partial.write_text("old")
        assert not path.exists()
    with pytest.raises(OSError, match="full"), replacing(path) as partial:
        half_write(partial)
    assert path.read_text() == "old"
    assert names(path.parent) == ["file"]


def test_a_folder_appears_only_when_it_is_full(tmp_path):
    path = tmp_path / "sub" / "folder"
    with pytest.raises(OSError, match="full"), creating_folder(path) as partial:
        half_write(partial / "a")
    assert names(path.parent) == []
    with creating_folder(path) as partial:
        (partial / "a").write_text("a")
        assert not path.exists()
    assert names(path.parent) == ["folder"]
    assert names(path) == ["a"]


def test_a_folder_that_exists_is_not_touched(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_text("a")
    with pytest.raises(FileExistsError, match="exists already"), creating_folder(tmp_path / "folder"):
        pass
    assert names(tmp_path / "folder") == ["a"]


def test_a_link_to_nowhere_exists_too(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError, match="link exists already"), creating_folder(tmp_path / "link"):
        pytest.fail("the work was begun")


def test_a_removed_folder_loses_its_name_first(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").write_text("a")
    with monkeypatch.context() as patch:
        patch.setattr("annotated.files.shutil.rmtree", lambda path, **_: None)  # killed at this moment
        remove_folder(folder)
    assert not folder.exists()
    folder.mkdir()
    remove_folder(folder)  # what is left does not stand in the way
    assert not folder.exists()


def test_two_writers_at_a_time_do_not_mix(tmp_path):
    path = tmp_path / "file"
    with replacing(path) as first, replacing(path) as second:
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first"  # whole, and of the one who ended last
    folder = tmp_path / "folder"
    with pytest.raises(FileExistsError, match=r"folder exists already$"), creating_folder(folder) as first:
        write_folder(folder, "b", "second")
    assert {name: (folder / name).read_text() for name in names(folder)} == {"b": "second"}
    with creating_folder(folder, replace=True) as first:
        (first / "a").write_text("first")
        with creating_folder(folder, replace=True) as second:
            (second / "b").write_text("second")
    assert names(folder) == ["a"]
    assert names(tmp_path) == ["file", "folder"]


def test_a_folder_that_cannot_be_replaced_stays(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    with creating_folder(folder) as new:
        (new / "a").write_text("old")
    rename, calls = Path.rename, []

    def fails_once(path, target):
        calls.append(path)
        if len(calls) == 2:  # the old folder has given way, the new one is to take its name
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fails_once)
    with pytest.raises(OSError, match="Input/output error"), creating_folder(folder, replace=True) as new:
        (new / "b").write_text("new")
    assert names(tmp_path) == ["folder"]
    assert names(folder) == ["a"]


def test_what_a_killed_process_left_goes_when_nobody_can_still_write_it(tmp_path):
    left, young = tmp_path / ".file.aaaa.partial", tmp_path / ".file.bbbb.partial"
    mine = tmp_path / ".file.partial"
    for partial in (left, young):
        partial.mkdir()
        (partial / "file").write_text("half")
    mine.write_text("of the user's")
    two_days_ago = time.time() - 48 * 3600
    os.utime(left, (two_days_ago, two_days_ago))
    write_json(tmp_path / "file", {})
    assert names(tmp_path) == [young.name, mine.name, "file"]
    remove_partials(tmp_path)
    assert names(tmp_path) == [mine.name, "file"]


@pytest.mark.parametrize("writer", [replacing, creating_folder])
def test_a_full_disk_is_told_with_the_name(writer, tmp_path):
    path = tmp_path / "path"
    with pytest.raises(OSError, match="No space left on device") as caught, writer(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.filename == str(path)
    with pytest.raises(FileNotFoundError) as caught, writer(path):
        (tmp_path / "other").read_bytes()
    assert caught.value.filename == str(tmp_path / "other")  # one that is named keeps its name


def test_what_the_memory_cannot_hold_is_named(monkeypatch, tmp_path):
    def too_large(_):
        raise MemoryError

    monkeypatch.setattr(Path, "read_bytes", too_large)
    with pytest.raises(OSError, match=r"larger than the memory that is left: '.*large\.json'"):
        read_json(tmp_path / "large.json")


def test_a_byte_order_mark_before_settings_is_dropped(tmp_path):
    (tmp_path / "a.json").write_text('{"a": 1}', encoding="utf-8-sig")
    (tmp_path / "a.toml").write_text("a = 1\n", encoding="utf-8-sig")
    assert read_json(tmp_path / "a.json") == read_toml(tmp_path / "a.toml") == {"a": 1}


def test_settings_nested_too_deep_are_named(tmp_path):
    (tmp_path / "deep.toml").write_text("a = " + "[" * 5000)
    with pytest.raises(ValueError, match=r"deep.toml is not valid TOML: maximum recursion depth"):
        read_toml(tmp_path / "deep.toml")


def test_json_comes_back_and_can_be_read(tmp_path):
    value = {"a": [1, 2.5, None, True], "ü": "ß"}
    write_json(tmp_path / "v.json", value)
    assert read_json(tmp_path / "v.json") == value
    assert "ß" in (tmp_path / "v.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff{}", b"[1]", b'"a"', b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}"]
)
def test_what_is_no_json_object_is_named(content, tmp_path):
    (tmp_path / "v.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"v.json"):
        read_json(tmp_path / "v.json")


@dataclass
class Settings:
    number: int
    share: float = 0.5
    on: bool = False
    best: float | None = None
    kind: Literal["a", "b"] = "a"

    def __post_init__(self):
        if self.number < 0:
            raise ValueError("number must not be negative")


def test_settings_come_from_json():
    values = {"number": 3, "share": 1, "on": True, "best": None, "kind": "b"}
    assert settings_from_json(Settings, values, "f") == Settings(3, 1, True, None, "b")
    assert settings_from_json(Settings, {"number": 3, "best": 0.1}, "f") == Settings(3, best=0.1)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "f: the setting 'number' is missing"),
        ({"number": 1, "nmber": 2}, "f: unknown setting 'nmber'; the known ones are number, share"),
        ({"number": 1.5}, "f: number must be int, not 1.5"),
        ({"number": True}, "f: number must be int, not True"),
        ({"number": None}, "f: number must be int, not None"),
        ({"number": 1, "share": "0.1"}, "f: share must be float, not '0.1'"),
        ({"number": 1, "on": 1}, "f: on must be bool, not 1"),
        ({"number": 1, "kind": "c"}, "f: kind must be a or b, not 'c'"),
        ({"number": 1, "kind": []}, "f: kind must be"),
        ({"number": -1}, "f: number must not be negative"),
    ],
)
def test_a_wrong_setting_is_named(values, says):
    assert json.loads(json.dumps(values)) == values
    with pytest.raises(ValueError, match=says):
        settings_from_json(Settings, values, "f")


@pytest.mark.parametrize("read", [read_json, read_toml])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(read, tmp_path):
    pipe = tmp_path / "config.json"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("{}",))  # else a reader would wait for ever
    writer.start()
    with pytest.raises(ValueError, match=r"config\.json is a pipe or a device; a file is wanted"):
        read(pipe)
    pipe.read_text()  # lets the writer end
    writer.join()
