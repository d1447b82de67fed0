"""Parallel text as token ids: packed arrays, which several processes can share, and subword dropout."""

import hashlib
import tempfile
from array import array
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from operator import eq
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from filelock import FileLock
from tqdm import tqdm

from annotated.data.parallel import Pairs, ParallelText
from annotated.files import replacing
from annotated.tokenizers import UNK, Tokenizer

CHUNK = 10_000  # sentences that are encoded together


class TokenRows(Sequence[list[int]]):
    """Rows of token ids in one int32 array: 4 bytes a token, and shared where it is memory-mapped.

    Attributes:
        ids: the ids of all rows, int32.
        starts, lengths: for each row, its place in `ids` and its number of ids, int64 (rows,).
    """

    def __init__(self, ids: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> None:
        self.ids, self.starts, self.lengths = ids, starts, lengths

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> "TokenRows":
        """Copy rows of ids."""
        ids, lengths = array("i"), array("q")
        for row in rows:
            ids.extend(row)
            lengths.append(len(row))
        return cls.packed(np.asarray(ids), np.asarray(lengths))

    @classmethod
    def packed(cls, ids: np.ndarray, lengths: np.ndarray) -> "TokenRows":
        """Wrap the ids of rows that follow one another."""
        return cls(ids, np.cumsum(lengths) - lengths, lengths)

    def take(self, indices: np.ndarray) -> "TokenRows":
        """Select rows; their ids are not copied."""
        return TokenRows(self.ids, self.starts[indices], self.lengths[indices])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.ids[self.starts[index] : self.starts[index] + self.lengths[index]].tolist()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))


class EncodedPairs(Pairs[list[int]]):
    """Sentence pairs as token ids, the source ending with `</s>`, the target between `<s>` and `</s>`."""

    src: TokenRows
    tgt: TokenRows

    def __post_init__(self) -> None:
        for name in ("src", "tgt"):
            if not isinstance(getattr(self, name), TokenRows):
                object.__setattr__(self, name, TokenRows.of(getattr(self, name)))
        super().__post_init__()


def encode_corpus(
    text: ParallelText,
    src_tokenizer: Tokenizer,
    tgt_tokenizer: Tokenizer,
    max_len: int | None = None,
    cache: str | Path | None = None,
) -> EncodedPairs:
    """Encode `text`, and drop and count the pairs with more than `max_len` tokens on a side.

    `<s>` and `</s>` are not counted. With a folder `cache`, ids are kept there under a checksum of text and
    tokenizer, and memory-mapped by all processes. Raises ValueError if no pair is left.
    """
    src = encode_sentences(text.src, src_tokenizer, src_tokenizer.before, src_tokenizer.after, cache)
    tgt = encode_sentences(text.tgt, tgt_tokenizer, (tgt_tokenizer.start,), (tgt_tokenizer.end,), cache)
    around = len(src_tokenizer.before + src_tokenizer.after)
    widths = np.maximum(src.lengths - around, tgt.lengths - 2)
    long = np.zeros(len(text), bool) if max_len is None else widths > max_len
    if long.all():
        raise ValueError(f"{text.name}: none of {len(text):,} pairs has at most {max_len} tokens a side")
    if long.any():
        text = text.without({f"more than {max_len} tokens": np.flatnonzero(long).tolist()})
        src, tgt = (rows.take(np.flatnonzero(~long)) for rows in (src, tgt))
    return EncodedPairs(src, tgt, text.lines, text.name, text.dropped)


def encode_sentences(
    sentences: Sequence[str],
    tokenizer: Tokenizer,
    before: Sequence[int],
    after: Sequence[int],
    cache: str | Path | None = None,
) -> TokenRows:
    """Encode sentences, each between the ids `before` and `after`; a bar shows the progress in large text."""
    path = None if cache is None else Path(cache) / f"{checksum(sentences, tokenizer)}.npy"
    count = len(sentences)
    with FileLock(path.with_suffix(".lock")) if path else nullcontext():
        if path is None or not path.exists():
            chunks = (sentences[start : start + CHUNK] for start in range(0, count, CHUNK))
            rows = (row for chunk in chunks for row in tokenizer.encode_batch(chunk))
            hidden = None if count > 10 * CHUNK else True  # None: shown on a terminal alone
            bar = tqdm(rows, "encoding", count, leave=False, unit=" sentences", disable=hidden)
            encoded = TokenRows.of([*before, *row, *after] for row in bar)
            if path is None:
                return encoded
            with replacing(path) as partial, partial.open("wb") as file:
                np.save(file, np.concatenate([encoded.lengths.astype(np.int32), encoded.ids]))
    saved = np.load(path, mmap_mode="r")
    return TokenRows.packed(saved[count:], saved[:count].astype(np.int64))


def checksum(sentences: Iterable[str], tokenizer: Tokenizer) -> str:
    """Compute a checksum of sentences and of all files of a tokenizer."""
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(Path(folder), "tokenizer")
        for path in sorted(Path(folder).iterdir()):
            digest.update(path.read_bytes())
    for sentence in sentences:
        digest.update(sentence.encode(errors="surrogatepass") + b"\n")
    return digest.hexdigest()


@dataclass(frozen=True)
class SubwordDropout:
    """Cuts sentences into subwords anew, each merge left out with probability `rate` (Provilkov et al. 2020).

    Raises ValueError for a tokenizer whose tokens are not made of merges.
    """

    src_tokenizer: Tokenizer
    tgt_tokenizer: Tokenizer
    rate: float
    max_len: int  # tokens; what would have more stays as it is

    def __post_init__(self) -> None:
        for tokenizer in (self.src_tokenizer, self.tgt_tokenizer):
            tokenizer.encode("", self.rate)

    def __call__(self, ids: list[int], tokenizer: Tokenizer, random: Random) -> list[int]:
        """Cut a row of ids anew; its special symbols stay."""
        first = next((i for i, token in enumerate(ids) if token > UNK), len(ids))
        last = len(ids) - next((i for i, token in enumerate(reversed(ids)) if token > UNK), 0)
        cut = tokenizer.encode(tokenizer.decode(ids), self.rate, random)
        return [*ids[:first], *cut, *ids[last:]] if len(cut) <= self.max_len else ids
