"""Multi30k: 29,000 image captions in English and German (task 1 of the public repository `multi30k/dataset`).

The sentences are for research and education, not for commercial use; the project downloads them and ships
none.
"""

from pathlib import Path

from annotated.data.download import cache_folder, download, find, sha256_check
from annotated.data.parallel import Corpus, ParallelText, read_parallel

PAIRS = ("en-de", "de-en")
SPLITS = {
    "raw": ("train", "val", "test_2016_flickr", "test_2017_flickr"),
    "tok": ("train", "val", "test_2016_flickr"),
}

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
    if pair not in PAIRS:
        raise ValueError(f"multi30k has no pair {pair!r}; it has {' and '.join(PAIRS)}")
    if variant not in SPLITS:
        raise ValueError(f"multi30k has no variant {variant!r}; it has {' and '.join(SPLITS)}")
    src, tgt = pair.split("-")
    splits = {split: _split(split, src, tgt, variant) for split in SPLITS[variant]}
    return Corpus("multi30k", src, tgt, splits)


def _split(split: str, src: str, tgt: str, variant: str) -> ParallelText:
    paths = [_file(f"{variant}/{split}{_ENDINGS[variant].format(language)}") for language in (src, tgt)]
    return read_parallel(*paths, name=split)


def _file(name: str) -> Path:
    relative = f"data/task1/{name}"
    check = sha256_check(_SHA256[name])
    path = find("multi30k", relative)
    if path is None:
        return download(f"{_URL}/{relative}", cache_folder("multi30k") / relative, check)
    try:
        check(path, str(path))
    except ValueError as error:
        raise ValueError(f"{error}; delete it, and it is downloaded anew") from None
    return path
