"""Parallel text as token ids: packed arrays, which several processes can share, and subword dropout."""

import hashlib
import tempfile
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from filelock import FileLock

from annotated.data.parallel import Pairs, ParallelText
from annotated.data.rows import CHUNK, TokenRows, checksum, progress
from annotated.files import replacing
from annotated.tokenizers import UNK, Tokenizer


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

    def write(file: Any) -> None:
        """Write the ids of all rows, then the rows' lengths."""
        lengths = array("i")
        with progress("encoding", "sentences", len(sentences)) as bar:
            for start in range(0, len(sentences), CHUNK):
                encoded = tokenizer.encode_batch(sentences[start : start + CHUNK])
                rows = [[*before, *row, *after] for row in encoded]
                file.write(array("i", chain.from_iterable(rows)).tobytes())
                lengths.extend(map(len, rows))
                bar.update(len(rows))
        file.write(lengths.tobytes())

    if cache is None:
        memory = BytesIO()
        write(memory)
        saved = np.frombuffer(memory.getbuffer(), np.int32)
    else:
        path = Path(cache) / f"{cache_key(sentences, tokenizer)}.ids"
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            if not path.exists():
                with replacing(path) as partial, partial.open("wb") as file:
                    write(file)
        saved = np.memmap(path, np.int32, "r")
    count = len(sentences)
    return TokenRows.packed(saved[:-count], saved[-count:].astype(np.int64))


def cache_key(sentences: Sequence[str], tokenizer: Tokenizer) -> str:
    """Compute a checksum of sentences and of all files of a tokenizer."""
    digest = hashlib.sha256(checksum(sentences).encode())
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(Path(folder), "tokenizer")
        for path in sorted(Path(folder).iterdir()):
            digest.update(path.read_bytes())
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
