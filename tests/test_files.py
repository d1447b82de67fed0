"""A file or folder under its final name is whole, whatever happens while it is written."""

import pytest

from annotated.transformer.config import TransformerConfig
from annotated.translation.files import (
    creating_folder,
    read_json,
    read_toml,
    remove_folder,
    remove_partials,
    replacing,
    settings_from_json,
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
        patch.setattr(
            "annotated.translation.files.shutil.rmtree", lambda path, **_: None
        )  # killed at this moment
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
    with pytest.raises(OSError, match="not empty"), creating_folder(folder) as first:
        write_folder(folder, "b", "second")
    assert {name: (folder / name).read_text() for name in names(folder)} == {"b": "second"}
    assert names(tmp_path) == ["file", "folder"]


def test_what_a_killed_process_left_goes(tmp_path):
    for name in (".file.aaaa.partial", ".other.bbbb.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("half")
    mine = tmp_path / ".file.partial"
    mine.write_text("of the user's")
    remove_partials(tmp_path, "file")
    assert names(tmp_path) == [mine.name, ".other.bbbb.partial"]
    remove_partials(tmp_path)
    assert names(tmp_path) == [mine.name]


def test_a_byte_order_mark_before_settings_is_dropped(tmp_path):
    (tmp_path / "a.json").write_text('{"a": 1}', encoding="utf-8-sig")
    (tmp_path / "a.toml").write_text("a = 1\n", encoding="utf-8-sig")
    assert read_json(tmp_path / "a.json") == read_toml(tmp_path / "a.toml") == {"a": 1}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff{}", b"[1]", b"[" * 100_000])
def test_what_is_no_json_object_is_named(content, tmp_path):
    (tmp_path / "v.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"v.json"):
        read_json(tmp_path / "v.json")


SHAPE = {"src_vocab": 5, "tgt_vocab": 5}


@pytest.mark.parametrize("wrong", [{"nmber": 2}, {"N": 1.5}, {"h": 3}], ids=str)
def test_a_wrong_setting_is_named(wrong):
    assert settings_from_json(TransformerConfig, {**SHAPE, "N": 3}, "f") == TransformerConfig(5, 5, 3)
    with pytest.raises(ValueError, match=f"f: .*{next(iter(wrong))}"):
        settings_from_json(TransformerConfig, {**SHAPE, **wrong}, "f")
