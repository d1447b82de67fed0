import gzip
import hashlib
import io
import json
import shutil
import tarfile

import pytest

from annotated.data import ParallelText, corpora, hold_out, iwslt, load_corpus, multi30k, read_lines, tatoeba

TRAIN_DE = """<url>http://example.org/talk</url>
<keywords>talks, Tests</keywords>
<speaker>Erika Muster</speaker>
<talkid>1</talkid>
<title>Erika Muster: Über Tests</title>
<description>Ein Vortrag.</description>
 Guten Morgen .
<reviewer href="http://example.org">Max</reviewer>
5 < 6 ist wahr.

"""
TRAIN_EN = TRAIN_DE.replace(" Guten Morgen .", "Good morning.").replace("5 < 6 ist wahr.", "5 < 6 is true.")
XML = """<?xml version="1.0" encoding="UTF-8"?>
<mteval><srcset setid="s" srclang="x"><doc docid="1" genre="lectures"><title>Not a sentence</title>
<seg id="1"> {0} one &amp; two </seg>
<seg id="2">{0} three</seg>
</doc><doc docid="2"><seg id="1">{0} four</seg></doc></srcset></mteval>
"""


def iwslt_files(pair="de-en"):
    files = {f"train.tags.{pair}.de": TRAIN_DE, f"train.tags.{pair}.en": TRAIN_EN, "README": "not a sentence"}
    for test_set in ("dev2010", "tst2010", "tst2014"):
        for language in ("de", "en"):
            files[f"IWSLT16.TED.{test_set}.{pair}.{language}.xml"] = XML.format(f"{test_set} {language}")
    return {name: text.encode() for name, text in files.items()}


def tgz(files):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        link = tarfile.TarInfo("IWSLT16.TED.tst2011.de-en.de.xml")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        for name, content in files.items():
            member = tarfile.TarInfo(f"../../evil/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return data.getvalue()


@pytest.mark.parametrize("form", ["folder", "archive"])
def test_iwslt_in_each_form(tmp_path, form):
    """An archive is not unpacked: neither its paths nor its links lead anywhere."""
    place = tmp_path / "a" / "b"
    place.mkdir(parents=True)
    for name, content in iwslt_files().items():
        (place / name).write_bytes(content)
    if form == "archive":
        (tmp_path / "x.tgz").write_bytes(tgz(iwslt_files()))
        place = tmp_path / "x.tgz"
    before = sorted(tmp_path.rglob("*"))
    corpus = load_corpus("iwslt", "de-en", path=place)
    assert sorted(tmp_path.rglob("*")) == before
    assert list(corpus.splits) == ["train", "val", "tst2010", "tst2014"]
    assert list(corpus["train"]) == [
        ("Guten Morgen .", "Good morning."),
        ("5 < 6 ist wahr.", "5 < 6 is true."),
    ]
    assert list(corpus["train"].lines) == [1, 2]
    assert sum(corpus["train"].dropped.values()) == 1
    assert corpus["val"].src == ["dev2010 de one & two", "dev2010 de three", "dev2010 de four"]
    assert corpus["tst2014"].tgt[2] == "tst2014 en four"
    assert (corpus.src_language, corpus.tgt_language) == ("de", "en")


def test_iwslt_without_references_is_left_out(tmp_path):
    for name, content in iwslt_files().items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "IWSLT16.TED.tst2014.de-en.en.xml").unlink()
    assert list(iwslt(tmp_path).splits) == ["train", "val", "tst2010"]


def test_damaged_files_of_iwslt_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"train\.tags\.de-en\.de"):
        iwslt(tmp_path)
    with pytest.raises(FileNotFoundError, match="missing"):
        iwslt(tmp_path / "missing")
    files = iwslt_files()
    whole = tgz(files)
    for damaged in (whole[:-60], whole[:80] + b"damage" + whole[86:], b"<html>moved", b""):
        (tmp_path / "cut.tgz").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"cut\.tgz"):
            iwslt(tmp_path / "cut.tgz")
    files["train.tags.de-en.en"] += b"one more\n"
    (tmp_path / "long.tgz").write_bytes(tgz(files))
    with pytest.raises(ValueError, match=r"3 and 4 lines"):
        iwslt(tmp_path / "long.tgz")


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


# ---- Tatoeba and Multi30k


def write_tatoeba(path, attribution, sentences=100):
    ending = "\tCC-BY 2.0 #1 (a) & #2 (b)" if attribution else ""
    rows = [f"Sentence {i // 2}.\tSatz {i}.{ending}\n" for i in range(sentences)]  # two translations each
    path.write_text("".join(rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("attribution", [True, False])
def test_tatoeba_splits_share_no_source(tmp_path, attribution):
    path = write_tatoeba(tmp_path / "deu.txt", attribution)
    corpus = tatoeba(path, "en-de")
    assert {name: len(split) for name, split in corpus.splits.items()} == {"train": 92, "val": 4, "test": 4}
    sources = [set(split.src) for split in corpus.splits.values()]
    assert not sources[0] & sources[1] | sources[0] & sources[2] | sources[1] & sources[2]
    assert sorted(pair for split in corpus.splits.values() for pair in split) == sorted(
        (f"Sentence {i // 2}.", f"Satz {i}.") for i in range(100)
    )
    assert all(
        f"Satz {line - 1}." == tgt
        for split in corpus.splits.values()
        for line, tgt in zip(split.lines, split.tgt, strict=True)
    )
    assert tatoeba(path, "en-de") == corpus


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
        ({"name": "wmt"}, "unknown corpus 'wmt'"),
        ({"name": "grammar", "variant": "tok"}, "grammar has no variant"),
        ({"name": "grammar", "path": "x"}, "not read from a path"),
        ({"name": "grammar", "columns": ["en", "de"]}, "no columns"),
        ({"name": "tatoeba"}, "is read from a path"),
        ({"name": "multi30k", "variant": "bpe"}, "no variant"),
        ({"name": "tatoeba", "path": "x", "pair": "de"}, "not a pair of language codes"),
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
    raw, turned, tok = multi30k(), load_corpus("multi30k", "de-en"), multi30k(variant="tok")
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


def test_the_real_words_and_phones(multi30k_folder):
    """Pairs with equal sides are words that are spelled as they are spoken."""
    if not (multi30k_folder.parent / "sigmorphon2020").exists():
        pytest.skip("SIGMORPHON 2020 is not in $ANNOTATED_DATA")
    corpus = load_corpus("sigmorphon2020", "fre")
    assert [len(split) for split in corpus.splits.values()] == [3600, 450, 450]
    assert corpus["train"].tgt[0] == "a b ɑ̃ d ɔ n e"
