"""Sentence pairs with their line numbers, and corpora made of them."""

import hashlib
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from annotated.translation.data.packed import TEXT_TYPE, PackedRows, load_rows, save_rows
from annotated.translation.files import cached_folder, read_json, write_json

CACHE_FORMAT = 5  # to be raised whenever text is read or cut otherwise than before


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs: `tgt[i]` is the translation of `src[i]`.

    Attributes:
        src, tgt: the sentences, which are packed if they are not yet.
        lines: for each pair, its line in the source file, from 1.
        name: name of the text, such as its split.
        dropped: number of pairs left out, by reason.
        where: place of the text for error messages, if not `name`.
    """

    src: Sequence[Any]
    tgt: Sequence[Any]
    lines: Sequence[int]
    name: str
    dropped: dict[str, int] = field(default_factory=dict)
    where: str = ""

    def __post_init__(self) -> None:
        for side in ("src", "tgt"):
            object.__setattr__(self, side, PackedRows.of(getattr(self, side)))
        object.__setattr__(self, "lines", array("q", self.lines))
        if not len(self.src) == len(self.tgt) == len(self.lines):
            sizes = f"{len(self.src):,} sources, {len(self.tgt):,} targets and {len(self.lines):,} lines"
            raise ValueError(f"{self.name}: {sizes}; there must be as many of each")

    def __len__(self) -> int:
        return len(self.src)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, {len(self):,} pairs)"

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return zip(self.src, self.tgt, strict=True)

    def take(self, indices: Iterable[int], name: str | None = None) -> Self:
        """Return the pairs at `indices`, in that order, with their line numbers and nothing dropped."""
        rows = np.fromiter(indices, np.int64)
        src, tgt = (side.take(rows) for side in (self.src, self.tgt))  # type: ignore[attr-defined]
        lines = array("q", np.asarray(self.lines)[rows].tobytes())
        return type(self)(src, tgt, lines, name or self.name, where=self.where)

    def report(self) -> str:
        """Return a summary: `train: 28,990 pairs`, then `  dropped 7: an empty side, ...` for each reason."""
        reasons = (f"  dropped {count:,}: {reason}" for reason, count in self.dropped.items() if count)
        return "\n".join([f"{self.name}: {len(self):,} pair{'s' * (len(self) != 1)}", *reasons])


class ParallelText(Pairs):
    """Sentence pairs as text."""

    def without(self, faults: Mapping[str, Sequence[int]]) -> "ParallelText":
        """Drop and count the pairs at the indices of each fault, with the first of them as an example.

        Raises ValueError if no pair is left.
        """
        kept = np.ones(len(self), bool)
        counts = dict(self.dropped)
        for reason, indices in faults.items():
            if len(indices):
                kept[indices] = False
                first = indices[0]
                pair = f"{shortened(self.src[first])!r} | {shortened(self.tgt[first])!r}"
                counts[f"{reason}, first in line {self.lines[first]:,}: {pair}"] = len(indices)
        if not kept.any():
            reasons = "; ".join(f"{count:,} {reason}" for reason, count in counts.items())
            raise ValueError(f"{self.where or self.name}: no pair is left: {reasons}")
        return replace(self.take(np.flatnonzero(kept)), dropped=counts)

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the sentences."""
        return digest_pairs(self)


def digest_pairs(pairs: Iterable[tuple[str, ...]]) -> str:
    """Compute the SHA-256 of pairs. Raises ValueError for a line break, which makes other pairs as well."""
    digest = hashlib.sha256()
    for pair in pairs:
        text = "\n".join(pair) + "\n"
        if text.count("\n") > len(pair):
            raise ValueError(f"a sentence holds a line break: {pair!r:.60}")
        digest.update(text.encode(errors="surrogatepass"))
    return digest.hexdigest()


def shortened(sentence: str) -> str:
    """Return a sentence, or its beginning and three dots, in at most 40 characters."""
    return sentence if len(sentence) <= 40 else sentence[:37] + "..."


@dataclass(frozen=True)
class Corpus:
    """The splits of a corpus: `corpus["train"]`, `corpus["val"]`, ...

    `tokenized` text is lower-cased, with spaces between its tokens. The `origin` has the flags of `annotated
    train`, by name, that read the text again where `name` does not do.
    """

    name: str
    src_language: str | None  # None if unknown
    tgt_language: str | None
    splits: dict[str, ParallelText]
    tokenized: bool = False
    origin: dict[str, str] = field(default_factory=dict)

    @property
    def pair(self) -> str | None:
        """The two languages, such as "de-en"; None if they are unknown."""
        return f"{self.src_language}-{self.tgt_language}" if self.src_language else None

    def __repr__(self) -> str:
        splits = ", ".join(f"{name} {len(text):,}" for name, text in self.splits.items())
        return f"Corpus({self.name}, {self.pair or 'languages unknown'}, pairs: {splits})"

    def __contains__(self, split: object) -> bool:
        return split in self.splits

    def __getitem__(self, split: str) -> ParallelText:
        if split not in self.splits:
            raise ValueError(f"{self.name} has no split {split!r}; its splits are {', '.join(self.splits)}")
        return self.splits[split]

    def example(self) -> str:
        """Show the first pair to train on, by which a user notices swapped sides."""
        sides = zip((self.src_language, self.tgt_language), next(iter(self["train"])), strict=True)
        shown = [f"{name}: {shortened(text)!r}" if name else repr(shortened(text)) for name, text in sides]
        return f"  such as {' → '.join(shown)}"

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the sentences to train and to validate on, wherever they were read from."""
        return digest_pairs((name, *pair) for name in ("train", "val") for pair in self.splits.get(name, ()))

    def save(self, folder: Path) -> None:
        """Write the splits as text, a file for each side, and the attributes of the corpus."""
        names = ("name", "src_language", "tgt_language", "tokenized", "origin")
        about = {name: getattr(self, name) for name in names}
        splits = {}
        for split, text in self.splits.items():
            save_rows(folder, split, text.src, text.tgt, text.lines)
            attributes = {name: getattr(text, name) for name in ("name", "dropped", "where")}
            splits[split] = [text.fingerprint, attributes]
        write_json(folder / "corpus.json", {"splits": splits, "corpus": [self.fingerprint, about]})

    @classmethod
    def load(cls, folder: Path) -> "Corpus":
        """Read what `save` wrote; the text stays on the disk until it is needed."""
        saved = read_json(folder / "corpus.json")
        splits = {}
        for split, (fingerprint, attributes) in saved["splits"].items():
            splits[split] = ParallelText(*load_rows(folder, split, TEXT_TYPE), **attributes)
            vars(splits[split])["fingerprint"] = fingerprint  # known without reading the text
        fingerprint, about = saved["corpus"]
        corpus = cls(**about, splits=splits)
        vars(corpus)["fingerprint"] = fingerprint
        return corpus


def languages(pair: str | None) -> tuple[str | None, str | None]:
    """Split a pair such as de-en into its languages, None into twice None. Raises ValueError otherwise."""
    if pair is None:
        return None, None
    src, dash, tgt = str(pair).partition("-")
    if not (dash and all(re.fullmatch(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]+)*", side) for side in (src, tgt))):
        raise ValueError(f"{pair!r} is not a pair of language codes such as 'de-en'")
    return src, tgt


def hold_out(text: ParallelText, *names: str) -> dict[str, ParallelText]:
    """Split `text` into "train" and each of `names`, so that no two splits share a source sentence.

    Each of `names` gets 5% of the different source sentences, 2,000 at most, whatever the order of the pairs.
    The counts of dropped pairs go to train. Raises ValueError for too few different sentences.
    """
    digests = (hashlib.sha256(sentence.encode(errors="surrogatepass")).digest()[:8] for sentence in text.src)
    numbers = np.fromiter((int.from_bytes(digest) for digest in digests), np.uint64, len(text))
    sources, source_of = np.unique(numbers, return_inverse=True)
    if len(sources) <= len(names):
        few = f"{len(sources)} different source sentences are too few for {' and '.join(('train', *names))}"
        raise ValueError(f"{text.name}: {few}; give text to validate on, by --val-src, in Python validation")
    size = min(2000, max(1, len(sources) // 20))
    split_of = np.minimum(source_of // size, len(names))
    train = text.take(np.flatnonzero(split_of == len(names)), "train")
    held_out = {name: text.take(np.flatnonzero(split_of == k), name) for k, name in enumerate(names)}
    return {"train": replace(train, dropped=text.dropped), **held_out}


def cached_corpus(cache: str | Path, key: Callable[[], object], read: Callable[[], Corpus]) -> Corpus:
    """Read a corpus once, and keep it in the folder `cache` under a `key` that says what it is made from.

    Raises ValueError if the key has changed after reading.
    """
    name = f"{CACHE_FORMAT} {key()}"

    def fill(folder: Path) -> None:
        read().save(folder)
        if name != f"{CACHE_FORMAT} {key()}":
            raise ValueError("the text has changed while it was read")

    return Corpus.load(cached_folder(cache, "text", name, fill))
