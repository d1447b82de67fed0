"""A file or folder under its final name is whole, whatever happens while it is written."""

import json
from dataclasses import dataclass
from typing import Literal

import pytest

from annotated.files import (
    creating_folder,
    read_json,
    remove_folder,
    replacing,
    settings_from_json,
    write_json,
)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def half_write(path):
    path.write_text("ne")
    raise OSError("full")


def test_a_file_is_replaced_only_when_all_is_written(tmp_path):
    path = tmp_path / "sub" / "file"
    with replacing(path) as partial:
        partial.write_text("old")
        assert names(path.parent) == [".file.partial"]
    with pytest.raises(OSError, match="full"), replacing(path) as partial:
        half_write(partial)
    assert path.read_text() == "old"
    assert names(path.parent) == ["file"]


def test_a_folder_appears_only_when_it_is_full(tmp_path):
    path = tmp_path / "sub" / "folder"
    with pytest.raises(OSError, match="full"), creating_folder(path) as partial:
        half_write(partial / "a")
    assert names(path.parent) == []
    (path.parent / ".folder.partial").mkdir()
    (path.parent / ".folder.partial" / "left").write_text("by a process that was killed")
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


def test_a_removed_folder_loses_its_name_first(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").write_text("a")
    with monkeypatch.context() as patch:
        patch.setattr("annotated.files.shutil.rmtree", lambda path, **_: None)  # killed at this moment
        remove_folder(folder)
    assert names(tmp_path) == [".folder.partial"]
    folder.mkdir()
    remove_folder(folder)  # what is left does not stand in the way
    assert names(tmp_path) == []


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
