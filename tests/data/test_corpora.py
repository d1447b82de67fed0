import gzip
import hashlib
import json
import shutil

import pytest

from annotated.data import ParallelText, corpora, hold_out, load_corpus, multi30k, read_lines

# ---- datasets, by name: a folder has the same form as a repository of the Hub


@pytest.mark.parametrize("validation", [True, False])
def test_a_dataset_in_the_form_of_the_hub(validation, tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    splits = {"train": 40, "test": 3} | ({"validation": 2} if validation else {})
    for split, count in splits.items():
        rows = [
            {"translation": {"de": f"Hund {split} {i}\r", "en": f"dog {split} {i}"}} for i in range(count)
        ]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "set" / "data").mkdir(parents=True, exist_ok=True)
        (tmp_path / "set" / "data" / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    corpus = load_corpus(f"hf:{tmp_path / 'set'}", "de-en")
    sizes = {"train": 40, "val": 2, "test": 3} if validation else {"train": 38, "val": 2, "test": 3}
    assert {name: len(text) for name, text in corpus.splits.items()} == sizes
    assert list(corpus["test"]) == [(f"Hund test {i}", f"dog test {i}") for i in range(3)]
    assert (
        load_corpus(f"hf:{tmp_path / 'set'}", "xx-yy", columns=("en", "de"))["test"].src == corpus["test"].tgt
    )
    with pytest.raises(ValueError, match=r"translation\.de, translation\.en"):
        load_corpus(f"hf:{tmp_path / 'set'}", "de-fr")


def test_a_cached_dataset_is_what_was_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "set").mkdir()

    def write(split, count):
        rows = [{"de": f"Hund {split} {i}", "en": f"dog {split} {i}"} for i in range(count)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "set" / f"{split}.jsonl").write_text(text, encoding="utf-8")

    write("train", 40)
    write("test", 3)
    swapped = {"columns": ["en", "de"]}
    for pair, options in (("de-en", {}), ("en-de", {}), ("de-en", swapped), ("xx-yy", swapped)):
        plain = load_corpus(f"hf:{tmp_path / 'set'}", pair, **options)
        for _ in range(2):
            assert load_corpus(f"hf:{tmp_path / 'set'}", pair, **options, cache=tmp_path / "text") == plain
    write("test", 5)
    assert len(load_corpus(f"hf:{tmp_path / 'set'}", "de-en", cache=tmp_path / "text")["test"]) == 5


def test_splits_that_are_held_out_share_no_source():
    text = ParallelText(
        [f"s{i // 2}" for i in range(100)], [f"t{i}" for i in range(100)], [*range(1, 101)], "mine"
    )
    splits = hold_out(text, "val", "test")
    assert {name: len(split) for name, split in splits.items()} == {"train": 92, "val": 4, "test": 4}
    assert sum(len(set(split.src)) for split in splits.values()) == 50
    assert sorted(pair for split in splits.values() for pair in split) == sorted(text)


def test_holding_out_depends_on_the_sentences_alone():
    text = ParallelText([f"s{i}" for i in range(100)], ["t"] * 100, [*range(1, 101)], "mine")
    turned = text.take(reversed(range(100)))
    assert {n: sorted(s.src) for n, s in hold_out(text, "val").items()} == {
        n: sorted(s.src) for n, s in hold_out(turned, "val").items()
    }
    with pytest.raises(
        ValueError, match="2 different source sentences are too few for train and val and test"
    ):
        hold_out(text.take([0, 1, 0]), "val", "test")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "wmt"}, "known: multi30k, wmt14"),
        ({"name": "grammar", "form": "tok"}, "grammar has no form"),
        ({"name": "grammar", "columns": ["en", "de"]}, "no columns"),
        ({"name": "multi30k", "form": "bpe"}, "no form"),
        ({"name": "multi30k", "pair": "de"}, "not a pair of language codes"),
        ({"name": "multi30k", "pair": "en-cs"}, "no file multi30k/.*cs"),
        ({"name": "sigmorphon2020", "pair": "ger"}, "fre_train"),
    ],
)
def test_load_corpus_says_what_is_wrong(arguments, message):
    with pytest.raises(ValueError, match=message):
        load_corpus(**arguments)


@pytest.fixture
def web(tmp_path, monkeypatch):
    """A folder that stands for GitHub, with every public file in three lines, and the checksums of those."""
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path / "cache"))
    monkeypatch.setenv("ANNOTATED_DATA", str(tmp_path / "mine"))
    web, lines = tmp_path / "web", []
    monkeypatch.setattr(corpora, "_MULTI30K", (web / "multi30k").as_uri())
    monkeypatch.setattr(corpora, "_SIGMORPHON", (web / "sigmorphon2020").as_uri())
    for line in read_lines(corpora.CHECKSUMS):
        name = line.split()[1]
        text = f"{name} eins\nzwei\ndrei\n" if "multi30k" in name else "eins\ta i n s\nzwei\tz v ai\n"
        content = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
        lines.append(f"{hashlib.sha256(content).hexdigest()}  {name}\n")
        path = web / name
        if name.startswith("sigmorphon"):
            split = path.stem.partition("_")[2]
            path = web / "sigmorphon2020" / "data" / split / path.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "checksums.txt").write_text("".join(lines))
    monkeypatch.setattr(corpora, "CHECKSUMS", tmp_path / "checksums.txt")
    return web


def test_multi30k_is_downloaded_once(web):
    first = multi30k("en-de", "tok")
    assert first["val"].src[0] == "multi30k/data/task1/tok/val.lc.norm.tok.en eins"
    assert first["val"].tgt[0] == "multi30k/data/task1/tok/val.lc.norm.tok.de eins"
    shutil.rmtree(web)
    assert multi30k("de-en", "tok")["val"].src == first["val"].tgt


def test_a_damaged_download_is_not_kept(web, tmp_path):
    path = web / "multi30k" / "data" / "task1" / "tok" / "val.lc.norm.tok.de"
    path.write_bytes(b"<html>moved</html>")
    with pytest.raises(FileNotFoundError, match=str(path)):
        multi30k("en-de", "tok")
    assert not list((tmp_path / "cache").rglob("*val.lc.norm.tok.de*"))


def test_multi30k_by_hand_in_the_readers_folder_needs_no_network(web, tmp_path):
    web.rename(tmp_path / "mine")
    assert len(multi30k("en-de", "tok")["train"]) == 3
    path = tmp_path / "mine" / "multi30k" / "data" / "task1" / "tok" / "val.lc.norm.tok.de"
    path.write_bytes(b"something else\n")
    with pytest.raises(ValueError, match=str(path)):
        multi30k("en-de", "tok")
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f"save it as {path}"):
        multi30k("en-de", "tok")


def test_words_and_phones_are_downloaded_by_language(web):
    corpus = load_corpus("sigmorphon2020", "hin")
    assert list(corpus.splits) == ["train", "val", "test"]
    assert list(corpus["val"]) == [("eins", "a i n s"), ("zwei", "z v ai")]
    assert corpus.pair == "hin-ipa"
    shutil.rmtree(web)
    assert load_corpus("sigmorphon2020", corpus.pair) == corpus


def test_the_real_multi30k(multi30k_folder):
    raw, turned, tok = multi30k("en-de"), load_corpus("multi30k", "de-en"), multi30k("en-de", "tok")
    assert {name: len(split) for name, split in raw.splits.items()} == {
        "train": 29_000,
        "val": 1_014,
        "test_2016_flickr": 1_000,
        "test_2017_flickr": 1_000,
    }
    assert (raw.src_language, raw.tgt_language) == ("en", "de")
    assert raw["val"].src == turned["val"].tgt
    assert list(tok.splits) == ["train", "val", "test_2016_flickr"]
    assert tok["val"].src == [src.lower() for src in tok["val"].src]
    french = multi30k("en-fr", "tok")
    assert french["train"].src == tok["train"].src
    assert len(french["test_2017_flickr"]) == 1_000
