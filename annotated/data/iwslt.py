"""IWSLT 2016 and 2017: transcribed talks (WIT3), read straight out of the organisers' archives.

An archive is never unpacked: the few files wanted are read from it by name, so that no member of it can
end up elsewhere on the disk. The organisers publish no checksum, so none is verified.
"""

import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

from annotated.data.download import cache_folder, download, find, looked_in
from annotated.data.parallel import Corpus, ParallelText, align, split_lines

# The organisers moved their archives more than once. Where this address fails, the archives of a whole
# year, from their page https://wit3.fbk.eu, can be put into the folder that the error names.
_URL = "https://wit3.fbk.eu/archive/{release}/texts/{src}/{tgt}/{src}-{tgt}.tgz"
_RELEASES = {2016: "2016-01", 2017: "2017-01-trnted"}
_MULTILINGUAL = "DeEnItNlRo-DeEnItNlRo.tgz"  # the inner archive of 2017's release for five languages

_TAG_LINE = re.compile(
    r"\s*</?(url|speaker|talkid|title|description|keywords|transcript|reviewer|translator|doc)\b"
)
_VALIDATION = "dev2010"
_LARGEST = 1 << 30  # bytes of text in all; the organisers' corpora have a tenth of it

Side = list[tuple[int, str]]


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
    if not re.fullmatch(r"[a-z]{2}-[a-z]{2}", pair):
        raise ValueError(f"{pair!r} is no pair of language codes such as 'de-en'")
    src, tgt = pair.split("-")
    path = Path(source) if source else _find(pair, year)
    files = _read(path, pair)
    names = {"train": "train.tags"} | {_split_name(name): name for name in _test_sets(files, pair)}
    splits = {split: _split(files, f"{name}.{pair}", split, path) for split, name in names.items()}
    return Corpus("iwslt", src, tgt, splits)


def _find(pair: str, year: int) -> Path:
    src, tgt = pair.split("-")
    release = _RELEASES[year]
    names = (pair, f"{pair}.tgz", f"{release}.tgz", "2017-01-trnmted.tgz")
    found = find("iwslt", *(f"{year}/{name}" for name in names))
    url = _URL.format(release=release, src=src, tgt=tgt)
    note = f"; {looked_in('iwslt')}"
    return found or download(url, cache_folder("iwslt") / f"{year}/{pair}.tgz", _check_archive, note)


def _check_archive(path: Path, name: str) -> None:
    if not tarfile.is_tarfile(path):
        raise ValueError(f"{name} is no .tgz archive")


def _read(path: Path, pair: str) -> dict[str, bytes]:
    """The contents of the pair's files, by name."""
    src, tgt = pair.split("-")
    wanted = re.compile(rf"(train\.tags|IWSLT\d+\.TED\.\w+)\.{pair}\.({src}|{tgt})(\.xml)?")
    if path.is_dir():
        found = ((file.name, file.read_bytes()) for file in path.rglob("*") if wanted.fullmatch(file.name))
        return dict(found)
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
            if content is None or not (wanted.fullmatch(name) or name in inner):
                continue
            if name in inner:
                yield from _members(content, wanted, set())
            else:
                yield member, content


def _test_sets(files: dict[str, bytes], pair: str) -> list[str]:
    """`IWSLT16.TED.tst2010` and so on, in order, where both sides are there."""
    endings = [f".{pair}.{language}.xml" for language in pair.split("-")]
    src, tgt = ({name.removesuffix(end) for name in files if name.endswith(end)} for end in endings)
    return sorted(src & tgt)


def _split_name(test_set: str) -> str:
    name = test_set.rsplit(".", 1)[-1]
    return "val" if name == _VALIDATION else name


def _split(files: dict[str, bytes], stem: str, split: str, path: Path) -> ParallelText:
    ending = "" if split == "train" else ".xml"
    names = [f"{stem}.{language}{ending}" for language in stem.rsplit(".", 1)[-1].split("-")]
    for name in names:
        if name not in files:
            raise FileNotFoundError(f"{path} holds no {name}")
    read = _training_lines if split == "train" else _segments
    src, tgt = (read(files[name], name) for name in names)
    return align(src, tgt, split, (names[0], names[1]))


def _training_lines(data: bytes, name: str) -> Side:
    """The sentences, without the lines that tell of the talk (title, speaker, ...)."""
    lines = enumerate(split_lines(data, name), start=1)
    return [(number, line.strip()) for number, line in lines if not _TAG_LINE.match(line)]


def _segments(data: bytes, name: str) -> Side:
    """The sentences of an XML test set, numbered through."""
    try:
        root = ElementTree.fromstring(data)
    except ElementTree.ParseError as error:
        raise ValueError(f"{name} is not well-formed XML: {error}") from None
    return [(number, "".join(seg.itertext()).strip()) for number, seg in enumerate(root.iter("seg"), start=1)]
