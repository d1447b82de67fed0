import io
import tarfile

import pytest

from annotated.data import ParallelText, hold_out, iwslt, load_corpus, tatoeba

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


def tgz(files, **links):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, link in links.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, link
            archive.addfile(member)
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return data.getvalue()


def write_iwslt(folder, layout):
    """The made-up corpus in one of the forms in which it is found; returns what to give to `iwslt`."""
    files = iwslt_files()
    if layout == "folder":
        (folder / "de-en").mkdir()
        for name, content in files.items():
            (folder / "de-en" / name).write_bytes(content)
        return folder
    archive = tgz({f"de-en/{name}": content for name, content in files.items()})
    if layout == "release":
        archive = tgz(
            {"2016-01/texts/de/en/de-en.tgz": archive, "2016-01/texts/fr/en/fr-en.tgz": b"not read"}
        )
    (folder / "archive.tgz").write_bytes(archive)
    return folder / "archive.tgz"


@pytest.mark.parametrize("layout", ["folder", "archive", "release"])
def test_iwslt_in_each_form(tmp_path, layout):
    corpus = iwslt(write_iwslt(tmp_path, layout), "de-en", 2016)
    assert list(corpus.splits) == ["train", "val", "tst2010", "tst2014"]
    assert list(corpus["train"]) == [
        ("Guten Morgen .", "Good morning."),
        ("5 < 6 ist wahr.", "5 < 6 is true."),
    ]
    assert corpus["train"].lines == [7, 9]
    [(why, count)] = corpus["train"].dropped.items()
    assert (why.partition(",")[0], count) == ("an empty side", 1)
    assert corpus["val"].src == ["dev2010 de one & two", "dev2010 de three", "dev2010 de four"]
    assert corpus["tst2014"].tgt[2] == "tst2014 en four"
    assert (corpus.src_language, corpus.tgt_language) == ("de", "en")


def test_iwslt_is_found_in_the_readers_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ANNOTATED_DATA", str(tmp_path))
    (tmp_path / "iwslt" / "2017").mkdir(parents=True)
    files = iwslt_files() | {"IWSLT17.TED.tst2015.de-en.de.xml": b"a test set without references"}
    (tmp_path / "iwslt" / "2017" / "de-en.tgz").write_bytes(tgz(files))
    corpus = iwslt(pair="de-en", year=2017)
    assert len(corpus["train"]) == 2
    assert "tst2015" not in corpus.splits
    assert len(load_corpus("iwslt", "de-en", path=tmp_path / "iwslt" / "2017" / "de-en.tgz")["train"]) == 2


def test_iwslt_is_downloaded_once(tmp_path, monkeypatch):
    monkeypatch.delenv("ANNOTATED_DATA", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path))
    asked = []

    def fetch(url, path):
        asked.append(url)
        path.write_bytes(tgz(iwslt_files()))

    monkeypatch.setattr("annotated.data.download._fetch", fetch)
    assert iwslt(pair="de-en", year=2017) == iwslt(pair="de-en", year=2017)
    assert [url.split("/texts/")[1] for url in asked] == ["de/en/de-en.tgz"]


def test_iwslt_2017_in_the_release_of_five_languages(tmp_path):
    files = {**iwslt_files(), "train.tags.it-en.it": b"not read"}
    release = tgz({"2017-01-trnmted/texts/DeEnItNlRo/DeEnItNlRo/DeEnItNlRo-DeEnItNlRo.tgz": tgz(files)})
    (tmp_path / "release.tgz").write_bytes(release)
    assert len(iwslt(tmp_path / "release.tgz", "de-en", 2017)["train"]) == 2


def test_an_archive_writes_nothing_anywhere(tmp_path):
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    files = {f"../../evil/{name}": content for name, content in iwslt_files().items()}
    links = {"IWSLT16.TED.tst2011.de-en.de.xml": "/etc/passwd"}
    (inside / "x.tgz").write_bytes(tgz(files | {"/tmp/evil": b"x"}, **links))
    before = sorted(tmp_path.rglob("*"))
    assert "tst2011" not in iwslt(inside / "x.tgz").splits
    assert sorted(tmp_path.rglob("*")) == before


def test_a_web_page_in_place_of_the_archive_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.delenv("ANNOTATED_DATA", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path))
    monkeypatch.setattr("annotated.data.download._fetch", lambda url, path: path.write_bytes(b"<html>moved"))
    with pytest.raises(ValueError, match=r"de-en\.tgz is no \.tgz archive"):
        iwslt(pair="de-en")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_iwslt_refuses_what_does_not_fit(tmp_path):
    files = iwslt_files()
    for year, pair, message in [
        (2015, "de-en", "no year 2015"),
        (2016, "../..", "no pair of language codes"),
    ]:
        with pytest.raises(ValueError, match=message):
            iwslt(tmp_path, pair, year)
    with pytest.raises(FileNotFoundError, match=r"holds no train\.tags\.de-en\.de"):
        iwslt(tmp_path)
    with pytest.raises(FileNotFoundError, match="missing"):
        iwslt(tmp_path / "missing")
    whole = tgz(files)
    for damaged in (whole[:-60], whole[:80] + b"damage" + whole[86:], b"no archive", b""):
        (tmp_path / "cut.tgz").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"cut\.tgz is not a whole") as error:
            iwslt(tmp_path / "cut.tgz")
        assert "\n" not in str(error.value)
    files["IWSLT16.TED.tst2010.de-en.en.xml"] = b"<mteval><seg>cut"
    (tmp_path / "xml.tgz").write_bytes(tgz(files))
    with pytest.raises(ValueError, match=r"tst2010\.de-en\.en\.xml is not well-formed"):
        iwslt(tmp_path / "xml.tgz")
    files["train.tags.de-en.en"] += b"one more\n"
    (tmp_path / "long.tgz").write_bytes(tgz(files))
    with pytest.raises(ValueError, match=r"de-en\.de has 3 lines, but .*de-en\.en has 4"):
        iwslt(tmp_path / "long.tgz")


def test_an_archive_in_an_archive_in_an_archive_is_not_read(tmp_path):
    """No release has one, and a thousand of them would be too much for Python."""
    archive = tgz(iwslt_files())
    for _ in range(2):
        archive = tgz({"de-en.tgz": archive})
    (tmp_path / "nested.tgz").write_bytes(archive)
    with pytest.raises(FileNotFoundError, match=r"holds no train\.tags\.de-en\.de"):
        iwslt(tmp_path / "nested.tgz")


def test_an_archive_cannot_fill_the_memory(tmp_path):
    """A file of two hundred gigabytes that is nothing but a hole, in an archive of a few hundred bytes."""
    member = tarfile.TarInfo("train.tags.de-en.de")
    member.pax_headers = {
        "GNU.sparse.major": "0",
        "GNU.sparse.minor": "1",
        "GNU.sparse.name": member.name,
        "GNU.sparse.size": str(200 << 30),
        "GNU.sparse.map": f"{200 << 30},0",
    }
    with tarfile.open(tmp_path / "sparse.tgz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(member)
    with pytest.raises(ValueError, match=r"sparse\.tgz: train\.tags\.de-en\.de .* 214,748,364,800 bytes"):
        iwslt(tmp_path / "sparse.tgz")


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


def test_tatoeba_in_the_other_direction(tmp_path):
    path = write_tatoeba(tmp_path / "deu.txt", True)
    corpus = load_corpus("tatoeba", "de-en", path=path)
    assert all(src.startswith("Satz") for src, _ in corpus["train"])
    with pytest.raises(ValueError, match="first column is 'en'"):
        tatoeba(path, "de-fr")


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
        ({"name": "wmt"}, "unknown corpus 'wmt'; known: multi30k, iwslt, tatoeba, grammar"),
        ({"name": "grammar", "variant": "tok"}, "grammar has no variant"),
        ({"name": "grammar", "path": "x"}, "not read from a path"),
        ({"name": "tatoeba"}, "needs a path"),
        ({"name": "tatoeba", "path": "x", "pair": "de"}, "no pair of language codes"),
        ({"name": "multi30k", "pair": "en-fr"}, "no pair 'en-fr'"),
    ],
)
def test_load_corpus_says_what_is_wrong(arguments, message):
    with pytest.raises(ValueError, match=message):
        load_corpus(**arguments)


def test_grammar_by_name_is_in_the_direction_asked_for():
    corpus = load_corpus("grammar", "en-de")
    assert (corpus.src_language, corpus.tgt_language) == ("en", "de")
    assert corpus["train"].src == load_corpus("grammar", "de-en")["train"].tgt


def test_multi30k_by_name(multi30k_folder):
    assert len(load_corpus("multi30k", "de-en", variant="tok")["val"]) == 1014
