"""Every corpus by its name, and how splits are held out; Multi30k, IWSLT and Tatoeba.

None of the three is shipped. Multi30k, 29,000 image captions in English and German (task 1 of the public
repository `multi30k/dataset`), is for research and education, not for commercial use. IWSLT 2016 and 2017 are
transcribed talks (WIT3); their organisers publish no checksum, so none is verified.
"""

import hashlib
import re
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

from annotated.data.download import cache_folder, download, find, looked_in, sha256_check
from annotated.data.grammar import grammar
from annotated.data.parallel import Corpus, ParallelText, align, read_parallel, read_tsv, split_lines

NAMES = ("multi30k", "iwslt", "tatoeba", "grammar")


def load_corpus(
    name: str, pair: str = "de-en", path: str | Path | None = None, variant: str | None = None
) -> Corpus:
    """The corpus `name` in the direction of `pair`; `path` is its file or folder (`iwslt`, `tatoeba`).

    Raises ValueError for an unknown name, or an argument that the corpus does not take.
    """
    if name not in NAMES:
        raise ValueError(f"unknown corpus {name!r}; known: {', '.join(NAMES)}")
    if variant and name != "multi30k":
        raise ValueError(f"{name} has no variant {variant!r}; only multi30k has variants")
    if path and name in ("multi30k", "grammar"):
        raise ValueError(f"{name} is not read from a path, but {path} was given")
    if name == "multi30k":
        return multi30k(pair, variant or "raw")
    if name == "grammar":
        return grammar(pair)
    return iwslt(path, pair) if name == "iwslt" else tatoeba(path, pair)


def hold_out(text: ParallelText, *names: str) -> dict[str, ParallelText]:
    """Split `text` into "train" and each of `names`, so that no source sentence stands in two of them.

    Each of `names` gets 5% of the different source sentences, 2,000 at most, whatever their order. What
    `text` dropped is reported by train. Raises ValueError if there are too few different sentences.
    """
    sources = sorted(set(text.src), key=lambda sentence: hashlib.sha256(sentence.encode()).digest())
    if len(sources) <= len(names):
        wanted = " and ".join(("train", *names))
        raise ValueError(f"{text.name}: {len(sources)} different source sentences are too few for {wanted}")
    size = min(2000, max(1, len(sources) // 20))
    split_of = {source: name for k, name in enumerate(names) for source in sources[k * size : (k + 1) * size]}
    rows: dict[str, list[int]] = {name: [] for name in ("train", *names)}
    for i, source in enumerate(text.src):
        rows[split_of.get(source, "train")].append(i)
    splits = {name: text.take(indices, name) for name, indices in rows.items()}
    return splits | {"train": replace(splits["train"], dropped=text.dropped)}


def languages(pair: str | None) -> tuple[str | None, str | None]:
    """Source and target of a pair such as de-en; twice None of None. Raises ValueError for something else."""
    if pair is None:
        return None, None
    src, dash, tgt = str(pair).partition("-")
    if not (dash and all(re.fullmatch(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]+)*", side) for side in (src, tgt))):
        raise ValueError(f"{pair!r} is no pair of language codes such as 'de-en'")
    return src, tgt


def tatoeba(path: str | Path | None, pair: str = "de-en") -> Corpus:
    """Sentences of language learners: `english<TAB>translation`, with or without a column of attribution.

    It is split into train, val and test by `hold_out`: the same file always in the same way.
    """
    if path is None:
        raise ValueError("tatoeba needs a path: the tab-separated file of sentence pairs")
    src, tgt = languages(pair)
    text = read_tsv(path, "tatoeba")
    if tgt == "en":
        text = ParallelText(text.tgt, text.src, text.lines, text.name, text.dropped)
    elif src != "en":
        raise ValueError(f"the first column is 'en', which is not in the pair {pair!r}")
    return Corpus("tatoeba", src, tgt, hold_out(text, "val", "test"))


# ---- Multi30k

_REVISION = "a3d2e0d26b56f3846f66a952536ffed4e401d05a"
_URL = f"https://raw.githubusercontent.com/multi30k/dataset/{_REVISION}"
_ENDINGS = {"raw": ".{}.gz", "tok": ".lc.norm.tok.{}"}
_SHA256 = {
    "raw/test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "raw/test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "raw/test_2017_flickr.de.gz": "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee",
    "raw/test_2017_flickr.en.gz": "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
    "raw/train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "raw/train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "raw/val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "raw/val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "tok/test_2016_flickr.lc.norm.tok.de": "c6a33d39d48f9f510de147651316cd9d918e09ad0219df734a2f16b6baccacc4",
    "tok/test_2016_flickr.lc.norm.tok.en": "5b7f32627cf99eced828311b955dae9800bb52bc8b91cf8b6526829e605b29d2",
    "tok/train.lc.norm.tok.de": "cb5a23529b65ec2061f1dc446192a9c37382b63cc75f81a0be59d34894b3a505",
    "tok/train.lc.norm.tok.en": "08925f8e0572bcd5a006702fc5fe20e2d77c6917d4eebd576fc20de6693c2119",
    "tok/val.lc.norm.tok.de": "97232bd273eceb7207f689527386a97e4be2616b18ada47576bdaf96c8ae1f00",
    "tok/val.lc.norm.tok.en": "46573ce391ae227f1c72f873392436a20ef18e0a6d518098cfbd70b77c8572ec",
}


def multi30k(pair: str = "en-de", variant: str = "raw") -> Corpus:
    """The corpus, in the direction of `pair`: train, val, test_2016_flickr and, raw only, test_2017_flickr.

    `variant` is "raw", or "tok" for the lower-cased, normalised and tokenised text that published tables
    use. Looked for in `$ANNOTATED_DATA/multi30k`, then in the cache folder, then downloaded; every file's
    checksum is verified. Raises ValueError for another pair or variant or a damaged file, FileNotFoundError
    if it cannot be downloaded.
    """
    if pair not in ("en-de", "de-en"):
        raise ValueError(f"multi30k has no pair {pair!r}; it has en-de and de-en")
    if variant not in _ENDINGS:
        raise ValueError(f"multi30k has no variant {variant!r}; it has {' and '.join(_ENDINGS)}")
    src, tgt = pair.split("-")
    splits = {}
    for name in ("train", "val", "test_2016_flickr", *(["test_2017_flickr"] if variant == "raw" else [])):
        one, other = (_file(f"{variant}/{name}{_ENDINGS[variant].format(side)}") for side in (src, tgt))
        splits[name] = read_parallel(one, other, name)
    return Corpus("multi30k", src, tgt, splits)


def _file(name: str) -> Path:
    relative = f"data/task1/{name}"
    check = sha256_check(_SHA256[name])
    path = find("multi30k", relative)
    if path is None:
        start = name.partition("/")[0]
        others = [Path(each).name for each in _SHA256 if each.startswith(start) and each != name]
        note = f", and beside it {', '.join(others)}; {looked_in('multi30k')}"
        return download(f"{_URL}/{relative}", cache_folder("multi30k") / relative, check, note)
    try:
        check(path, str(path))
    except ValueError as error:
        raise ValueError(f"{error}; delete it, and it is downloaded anew") from None
    return path


# ---- IWSLT

# The organisers moved their archives more than once. Where this address fails, the archives of a whole
# year, from their page https://wit3.fbk.eu, can be put into the folder that the error names.
_ARCHIVE = "https://wit3.fbk.eu/archive/{release}/texts/{languages}/{pair}.tgz"
_RELEASES = {2016: "2016-01", 2017: "2017-01-trnted"}
_MULTILINGUAL = "DeEnItNlRo-DeEnItNlRo.tgz"  # the inner archive of 2017's release for five languages

_TAG_LINE = re.compile(
    r"\s*</?(url|speaker|talkid|title|description|keywords|transcript|reviewer|translator|doc)\b"
)
_LARGEST = 1 << 30  # bytes of text in all; the organisers' corpora have a tenth of it


def iwslt(source: str | Path | None = None, pair: str = "de-en", year: int = 2016) -> Corpus:
    """The splits train, val (the organisers' dev2010) and each test set under its own name (tst2010, ...).

    `source` is a folder of the unpacked files, the pair's .tgz or the .tgz of a whole release; without it,
    `<year>/<pair>`, `<year>/<pair>.tgz` and `<year>/<release>.tgz` are looked for in `$ANNOTATED_DATA/iwslt`
    and the cache folder, and last downloaded. A test set of which one side is not there (its references were
    not published) is left out. Line numbers are those of the training file, and of the sentences in
    a test set. Raises FileNotFoundError; ValueError for another year, an archive that is none, or files
    that do not match.
    """
    if year not in _RELEASES:
        raise ValueError(f"iwslt has no year {year}; it has {' and '.join(map(str, _RELEASES))}")
    src, tgt = languages(pair)
    path = Path(source) if source else _archive(pair, year)
    files = _read(path, pair)
    tests = sorted({name.partition(f".{pair}.")[0] for name in files if name.endswith(".xml")})
    splits = {}
    for stem in ("train.tags", *tests):
        ending, read = (".xml", _segments) if stem in tests else ("", _training_lines)
        names = [f"{stem}.{pair}.{language}{ending}" for language in (src, tgt)]
        missing = [name for name in names if name not in files]
        if missing and stem in tests:
            continue
        if missing:
            raise FileNotFoundError(f"{path} holds no {missing[0]}")
        last = stem.rpartition(".")[2]
        split = {"tags": "train", "dev2010": "val"}.get(last, last)
        one, other = (read(files[name], name) for name in names)
        splits[split] = align(one, other, split, (names[0], names[1]))
    return Corpus("iwslt", src, tgt, splits)


def _archive(pair: str, year: int) -> Path:
    release = _RELEASES[year]
    names = (pair, f"{pair}.tgz", f"{release}.tgz", "2017-01-trnmted.tgz")
    url = _ARCHIVE.format(release=release, languages=pair.replace("-", "/"), pair=pair)
    note = f"; {looked_in('iwslt')}"
    return find("iwslt", *(f"{year}/{name}" for name in names)) or download(
        url, cache_folder("iwslt") / f"{year}/{pair}.tgz", _check_archive, note
    )


def _check_archive(path: Path, name: str) -> None:
    if not tarfile.is_tarfile(path):
        raise ValueError(f"{name} is no .tgz archive")


def _read(path: Path, pair: str) -> dict[str, bytes]:
    """The contents of the pair's files, by name.

    An archive is never unpacked: what is wanted is read by name, so that no member can end up elsewhere.
    """
    wanted = re.compile(rf"(train\.tags|IWSLT\d+\.TED\.\w+)\.{pair}\.({pair.replace('-', '|')})(\.xml)?")
    if path.is_dir():
        return {file.name: file.read_bytes() for file in path.rglob("*") if wanted.fullmatch(file.name)}
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such folder or archive; iwslt wants a folder or a .tgz")
    files, size = {}, 0
    try:
        with path.open("rb") as file:
            for member, content in _members(file, wanted, {f"{pair}.tgz", _MULTILINGUAL}):
                size += member.size
                if size > _LARGEST:
                    raise ValueError(
                        f"{path}: {member.name} makes it {size:,} bytes of text; no corpus is as large"
                    )
                files[Path(member.name).name] = content.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path} is not a whole .tgz archive: {str(error).partition(':')[0]}") from None
    return files


def _members(
    file: IO[bytes], wanted: re.Pattern[str], inner: set[str]
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    """Open the files wanted, also those in an archive with one of the names `inner`, but no deeper."""
    with tarfile.open(fileobj=file) as archive:
        for member in archive:
            name = Path(member.name).name
            content = archive.extractfile(member) if member.isfile() else None
            if content and name in inner:
                yield from _members(content, wanted, set())
            elif content and wanted.fullmatch(name):
                yield member, content


def _training_lines(data: bytes, name: str) -> list[tuple[int, str]]:
    """The sentences, without the lines that tell of the talk (title, speaker, ...)."""
    lines = enumerate(split_lines(data, name), start=1)
    return [(number, line.strip()) for number, line in lines if not _TAG_LINE.match(line)]


def _segments(data: bytes, name: str) -> list[tuple[int, str]]:
    """The sentences of an XML test set, numbered through."""
    try:
        root = ElementTree.fromstring(data)
    except ElementTree.ParseError as error:
        raise ValueError(f"{name} is not well-formed XML: {error}") from None
    return [(number, "".join(seg.itertext()).strip()) for number, seg in enumerate(root.iter("seg"), start=1)]
