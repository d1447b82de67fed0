import gzip
import hashlib
import json
import shutil

import pytest

from annotated.translation.data import ParallelText, corpora, hold_out, load_corpus, multi30k, read_lines


@pytest.fixture
def dataset(tmp_path, monkeypatch):
    """Write a split of a dataset; returns its name."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")

    def write(split, count):
        sides = ((f"Hund {split} {i}\r", f"dog {split} {i}") for i in range(count))
        rows = [{"translation": {"de": german, "en": english}} for german, english in sides]
        (tmp_path / "set").mkdir(exist_ok=True)
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "set" / f"{split}.jsonl").write_text(text, encoding="utf-8")
        return f"hf:{tmp_path / 'set'}"

    return write


@pytest.mark.parametrize("validation", [False, True])
def test_a_dataset_in_the_form_of_the_hub(validation, dataset):
    for split, count in (("train", 40), ("test", 3), *[("validation", 2)] * validation):
        name = dataset(split, count)
    corpus = load_corpus(name, "de-en")
    sizes = {"train": 40 if validation else 38, "val": 2, "test": 3}
    assert {name: len(text) for name, text in corpus.splits.items()} == sizes
    assert list(corpus["test"]) == [(f"Hund test {i}", f"dog test {i}") for i in range(3)]
    assert load_corpus(name, "xx-yy", columns=("en", "de"))["test"].src == corpus["test"].tgt
    with pytest.raises(ValueError, match=r"translation\.de, translation\.en"):
        load_corpus(name, "de-fr")


def test_a_cached_dataset_is_what_was_asked_for(dataset, tmp_path):
    dataset("train", 40)
    name, swapped = dataset("test", 3), {"columns": ["en", "de"]}
    for pair, options in (("de-en", {}), ("en-de", {}), ("de-en", swapped), ("xx-yy", swapped)):
        plain = load_corpus(name, pair, **options)
        for _ in range(2):
            assert load_corpus(name, pair, **options, cache=tmp_path / "text") == plain
    dataset("test", 5)
    assert len(load_corpus(name, "de-en", cache=tmp_path / "text")["test"]) == 5


def test_splits_that_are_held_out_share_no_source_and_depend_on_the_sentences_alone():
    sides = [f"s{i // 2}" for i in range(100)], [f"t{i}" for i in range(100)]
    text = ParallelText(*sides, [*range(1, 101)], "mine")
    splits = hold_out(text, "val", "test")
    assert {name: len(split) for name, split in splits.items()} == {"train": 92, "val": 4, "test": 4}
    assert sum(len(set(split.src)) for split in splits.values()) == 50
    assert sorted(pair for split in splits.values() for pair in split) == sorted(text)
    turned = hold_out(text.take(reversed(range(100))), "val", "test")
    assert all(sorted(turned[name]) == sorted(split) for name, split in splits.items())
    with pytest.raises(ValueError, match="2 different source sentences are too few"):
        hold_out(text.take([0, 2, 0]), "val", "test")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "wmt"}, "known: multi30k, wmt14"),
        ({"name": "grammar", "tokenized": True}, "grammar has no tokenized text"),
        ({"name": "grammar", "columns": ["en", "de"]}, "no columns"),
        ({"name": "multi30k", "pair": "en-cs"}, "no file multi30k/.*cs"),
        ({"name": "wmt14", "pair": "de-fr"}, "wmt14 has English on one side, not de-fr"),
        ({"name": "wmt14", "pair": "en-en"}, "wmt14 has English on one side, not en-en"),
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
    monkeypatch.setattr(corpora, "MULTI30K", (web / "multi30k").as_uri())
    monkeypatch.setattr(corpora, "SIGMORPHON", (web / "sigmorphon2020").as_uri())
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
    first = multi30k("en-de", tokenized=True)
    assert first["val"].src[0] == "multi30k/data/task1/tok/val.lc.norm.tok.en eins"
    assert first["val"].tgt[0] == "multi30k/data/task1/tok/val.lc.norm.tok.de eins"
    shutil.rmtree(web)
    assert multi30k("de-en", tokenized=True)["val"].src == first["val"].tgt


def test_a_damaged_download_is_not_kept(web, tmp_path):
    path = web / "multi30k" / "data" / "task1" / "tok" / "val.lc.norm.tok.de"
    path.write_bytes(b"<html>moved</html>")
    with pytest.raises(FileNotFoundError, match=str(path)):
        multi30k("en-de", tokenized=True)
    assert not list((tmp_path / "cache").rglob("*val.lc.norm.tok.de*"))


def test_multi30k_by_hand_in_the_readers_folder_needs_no_network(web, tmp_path):
    web.rename(tmp_path / "mine")
    assert len(multi30k("en-de", tokenized=True)["train"]) == 3
    path = tmp_path / "mine" / "multi30k" / "data" / "task1" / "tok" / "val.lc.norm.tok.de"
    path.write_bytes(b"something else\n")
    with pytest.raises(ValueError, match=str(path)):
        multi30k("en-de", tokenized=True)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f"save it as {path}"):
        multi30k("en-de", tokenized=True)


def test_words_and_phones_are_downloaded_by_language(web):
    corpus = load_corpus("sigmorphon2020", "hin")
    assert list(corpus.splits) == ["train", "val", "test"]
    assert list(corpus["val"]) == [("eins", "a i n s"), ("zwei", "z v ai")]
    assert corpus.pair == "hin-ipa"
    shutil.rmtree(web)
    assert load_corpus("sigmorphon2020", corpus.pair) == corpus


def test_an_unknown_language_is_told_which_there_are(web):
    with pytest.raises(ValueError, match="sigmorphon2020/hin_train") as refused:
        load_corpus("sigmorphon2020", "xyz")
    with pytest.raises(ValueError, match="name one by --pair, in Python pair, such as fre"):
        load_corpus("sigmorphon2020")
    assert "multi30k" not in str(refused.value)
