"""Sentence pairs with their line numbers, and corpora made of them."""

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

import numpy as np
from filelock import FileLock

from annotated.data.rows import CHUNK, Rows, TextRows
from annotated.files import creating_folder, read_json, write_json

Sentence = TypeVar("Sentence")

FORMAT = 1  # of cached text: another number, whenever text is read otherwise than before


@dataclass(frozen=True)
class Pairs(Generic[Sentence]):
    """Sentence pairs: `tgt[i]` is the translation of `src[i]`.

    Attributes:
        src, tgt: the sentences.
        lines: for each pair, its line in the source file, from 1.
        name: name of the text, such as its split.
        dropped: number of pairs left out, by reason.
        where: place of the text for error messages, if not `name`.
    """

    src: Sequence[Sentence]
    tgt: Sequence[Sentence]
    lines: Sequence[int]
    name: str
    dropped: dict[str, int] = field(default_factory=dict)
    where: str = ""

    def __post_init__(self) -> None:
        if not len(self.src) == len(self.tgt) == len(self.lines):
            raise ValueError(
                f"{self.name}: {len(self.src):,} source sentences, {len(self.tgt):,} target sentences and "
                f"{len(self.lines):,} line numbers; there must be as many of each"
            )

    def __len__(self) -> int:
        return len(self.src)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, {len(self):,} pairs)"

    def report(self) -> str:
        """Return a summary: `train: 28,990 pairs`, then `  dropped 7: an empty side, ...` for each reason."""
        reasons = (f"  dropped {count:,}: {reason}" for reason, count in self.dropped.items() if count)
        return "\n".join([f"{self.name}: {len(self):,} pair{'s' * (len(self) != 1)}", *reasons])


class ParallelText(Pairs[str]):
    """Sentence pairs as text."""

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return zip(self.src, self.tgt, strict=True)

    def take(self, indices: Iterable[int], name: str | None = None) -> "ParallelText":
        """Return the pairs at `indices`, in that order, with their line numbers and nothing dropped."""
        rows = np.fromiter(indices, np.int64)
        src, tgt, lines = (select(x, rows) for x in (self.src, self.tgt, self.lines))
        return ParallelText(src, tgt, lines, name or self.name, where=self.where)

    def without(self, faults: Mapping[str, Sequence[int]]) -> "ParallelText":
        """Drop and count the pairs at the indices of each fault. Raises ValueError if no pair is left."""
        counts = {self._example(name, where): len(where) for name, where in faults.items() if len(where)}
        kept = np.ones(len(self), bool)
        for where in faults.values():
            kept[np.asarray(where, np.int64)] = False
        if not kept.any():
            why = "; ".join(f"{count:,} {reason}" for reason, count in counts.items())
            raise ValueError(f"{self.where or self.name}: no pair is left: {why}")
        return replace(self.take(np.flatnonzero(kept)), dropped=self.dropped | counts)

    def _example(self, reason: str, where: Sequence[int]) -> str:
        """Return a reason for dropping the pairs at indices `where`, with the first of them as an example."""
        first, at = where[0], "first in" if len(where) > 1 else "in"
        src, tgt = shortened(self.src[first]), shortened(self.tgt[first])
        return f"{reason}, {at} line {self.lines[first]:,}: {src!r} | {tgt!r}"


def select(items: Sequence[Any], rows: np.ndarray) -> Any:
    """Select some of the items, in a sequence of the same kind."""
    if isinstance(items, Rows):
        return items.take(rows)
    if isinstance(items, array):
        return array(items.typecode, np.asarray(items)[rows].tobytes())
    return [items[i] for i in rows]


@dataclass(frozen=True)
class Corpus:
    """The splits of a corpus: `corpus["train"]`, `corpus["val"]`, ..."""

    name: str
    src_language: str | None  # None if unknown
    tgt_language: str | None
    splits: dict[str, ParallelText]

    @property
    def pair(self) -> str | None:
        """The two languages, such as "de-en"; None if they are unknown."""
        return f"{self.src_language}-{self.tgt_language}" if self.src_language else None

    def __repr__(self) -> str:
        splits = ", ".join(f"{name} {len(text):,}" for name, text in self.splits.items())
        return f"Corpus({self.name}, {self.pair or 'languages unknown'}, pairs: {splits})"

    def __getitem__(self, split: str) -> ParallelText:
        if split not in self.splits:
            raise ValueError(f"{self.name} has no split {split!r}; its splits are {', '.join(self.splits)}")
        return self.splits[split]

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the sentences to train and to validate on, wherever they were read from."""
        digest = hashlib.sha256()
        for split in ("train", "val"):
            for pair in self.splits.get(split, ()):
                digest.update("\n".join([split, *pair, ""]).encode())
        return digest.hexdigest()

    def save(self, folder: Path) -> None:
        """Write the splits as text, a file a side, and what else there is to know of them."""
        names = ("name", "src_language", "tgt_language")
        meta: dict[str, Any] = {name: getattr(self, name) for name in names}
        meta |= {"fingerprint": self.fingerprint, "splits": {}}
        for split, text in self.splits.items():
            meta["splits"][split] = {"name": text.name, "dropped": text.dropped, "where": text.where}
            sizes = []
            for side in ("src", "tgt"):
                with (folder / f"{split}.{side}").open("wb") as file:
                    sizes.append(write_lines(getattr(text, side), file))
            np.save(folder / f"{split}.npy", np.stack([np.asarray(text.lines, np.int64), *sizes]))
        write_json(folder / "corpus.json", meta)

    @classmethod
    def load(cls, folder: Path) -> "Corpus":
        """Read what `save` wrote; the text stays on the disk until it is needed."""
        meta, splits = read_json(folder / "corpus.json"), {}
        for split, about in meta.pop("splits").items():
            lines, *sizes = np.load(folder / f"{split}.npy")
            src, tgt = (
                TextRows.packed(np.memmap(folder / f"{split}.{side}", np.uint8, "r"), lengths)
                for side, lengths in zip(("src", "tgt"), sizes, strict=True)
            )
            splits[split] = ParallelText(src, tgt, array("q", lines.tobytes()), **about)
        fingerprint = meta.pop("fingerprint")
        corpus = cls(**meta, splits=splits)
        vars(corpus)["fingerprint"] = fingerprint  # known without reading the text
        return corpus


def cached_corpus(cache: str | Path, key: Callable[[], object], read: Callable[[], Corpus]) -> Corpus:
    """Read a corpus once, and keep it in the folder `cache` under a checksum of what it is made from.

    Raises ValueError if `key()`, the checksums of that, is another after reading.
    """
    name = f"{FORMAT} {key()}"
    folder = Path(cache).absolute() / f"text-{hashlib.sha256(name.encode()).hexdigest()}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            with creating_folder(folder) as partial:
                read().save(partial)
                if name != f"{FORMAT} {key()}":
                    raise ValueError("the text has changed while it was read")
    return Corpus.load(folder)


def write_lines(sentences: Sequence[str], file: BinaryIO) -> np.ndarray:
    """Write sentences, a line each; returns their sizes in bytes."""
    sizes = array("q")
    for start in range(0, len(sentences), CHUNK):
        lines = [text.encode(errors="surrogatepass") for text in sentences[start : start + CHUNK]]
        file.write(b"\n".join([*lines, b""]))
        sizes.extend(map(len, lines))
    return np.asarray(sizes)


def shortened(sentence: str, length: int = 40) -> str:
    """Return a sentence, or its beginning and three dots, in at most `length` characters."""
    return sentence if len(sentence) <= length else sentence[: length - 3] + "..."
