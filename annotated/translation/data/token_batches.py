"""Parallel text as token ids, and batches of about equally many of them (section 5.1).

Ids are packed into arrays, which several processes can share. Pairs of like length go into one batch, so that
little of it is padding. Which pairs those are, and the order of the batches, follow from (seed, epoch) alone:
training can resume at any batch of any epoch.
"""

import json
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from annotated.batches import Batch
from annotated.translation.data.packed import CHUNK, TOKEN_TYPE, PackedRows, load_rows, save_rows
from annotated.translation.data.pairs import CACHE_FORMAT, Pairs, ParallelText
from annotated.translation.data.text_files import progress
from annotated.translation.files import cached_folder, sha256
from annotated.translation.tokenizers import PAD, UNK, Tokenizer


class EncodedPairs(Pairs):
    """Sentence pairs as token ids, the source ending with `</s>`, the target between `<s>` and `</s>`."""

    src: PackedRows
    tgt: PackedRows

    def report(self) -> str:
        """Return a summary, as that of text, and the share of tokens outside the vocabularies."""
        src, tgt = (float(np.mean(side.data == UNK)) for side in (self.src, self.tgt))
        if not src and not tgt:
            return super().report()
        unknown = f"  unknown: {src:.1%} of the source tokens, {tgt:.1%} of the target tokens"
        if max(src, tgt) > 0.1:
            recipe = "a recipe on the site's page Recipes gives this one rows for them"
            unknown += f"; a new model with another tokenizer would know them, and {recipe}"
        return f"{super().report()}\n{unknown}"


def encode_corpus(
    text: ParallelText,
    src_tokenizer: Tokenizer,
    tgt_tokenizer: Tokenizer,
    max_sentence: int | None = None,
    cache: str | Path | None = None,
) -> EncodedPairs:
    """Encode `text`, and drop and count the pairs with more than `max_sentence` tokens on a side.

    `<s>` and `</s>` are not counted. With a folder `cache`, ids are kept there under a checksum of text and
    tokenizers, and memory-mapped by all processes. Raises ValueError if no pair is left.
    """
    src: Any = encode_sentences(text.src, src_tokenizer)
    tgt: Any = ([tgt_tokenizer.start, *row] for row in encode_sentences(text.tgt, tgt_tokenizer))
    if cache is not None:
        sums = map(tokenizer_sums, (src_tokenizer, tgt_tokenizer))
        key = json.dumps([CACHE_FORMAT, text.fingerprint, *sums])
        write = partial(save_rows, name="ids", src=src, tgt=tgt, lines=text.lines)
        src, tgt, _ = load_rows(cached_folder(cache, "ids", key, write), "ids", TOKEN_TYPE)
    pairs = EncodedPairs(src, tgt, lines=text.lines, name=text.name, dropped=text.dropped)
    if max_sentence is None:
        return pairs
    kept = np.maximum(pairs.src.lengths - 1, pairs.tgt.lengths - 2) <= max_sentence
    why = f"more than {max_sentence} tokens (max_sentence, max_tokens and learned positions bound them)"
    dropped = text.without({why: np.flatnonzero(~kept).tolist()}).dropped
    return replace(pairs.take(np.flatnonzero(kept)), dropped=dropped)


def encode_sentences(sentences: Sequence[str], tokenizer: Tokenizer) -> Iterator[list[int]]:
    """Encode sentences, each with `</s>` behind it; a bar shows the progress in large text."""
    with progress("encoding", "sentences", len(sentences)) as bar:
        for start in range(0, len(sentences), CHUNK):
            for ids in tokenizer.encode_batch(sentences[start : start + CHUNK]):
                yield [*ids, tokenizer.end]
                bar.update()


def tokenizer_sums(tokenizer: Tokenizer) -> list[str]:
    """Compute the checksum of each file of a tokenizer."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(Path(folder), "tokenizer")
        return [sha256(path) for path in sorted(Path(folder).iterdir())]


# ---- batches


class TokenBatches:
    """Cuts `pairs` into batches of at most `max_tokens` positions a side, padding counted.

    A batch's size is its rows times the length of its longest sentence, source or target. Every pair comes
    once an epoch, and each epoch has the same number of batches, `len(self)`.

    Raises ValueError if there are no pairs, or naming the line of a pair longer than `max_tokens`.
    """

    def __init__(self, pairs: EncodedPairs, max_tokens: int, seed: int = 0, shuffle: bool = True) -> None:
        if not len(pairs):
            raise ValueError(f"{pairs.name}: no pairs to make batches of")
        self.pairs, self.max_tokens = pairs, max_tokens
        self.seed, self.shuffle = seed, shuffle
        widths = np.maximum(pairs.src.lengths, pairs.tgt.lengths - 1)  # the last target token is not read
        self._widths = torch.from_numpy(widths)
        longest = int(widths.argmax())
        if widths[longest] > max_tokens:
            raise ValueError(
                f"{pairs.name}, line {pairs.lines[longest]}: {widths[longest]:,} tokens do not fit into a "
                f"batch of max_tokens={max_tokens:,}; raise it, or drop long pairs with max_sentence"
            )
        self._ends = batch_ends((-np.sort(-widths)).tolist(), max_tokens)

    def __len__(self) -> int:
        return len(self._ends)

    def __repr__(self) -> str:
        return f"TokenBatches({self.pairs.name}, {len(self):,} batches of at most {self.max_tokens:,} tokens)"

    def plan(self, epoch: int) -> list[Any]:
        """Return the batches of an epoch, arrays of indices of pairs; in random order if `shuffle`."""
        generator = torch.Generator().manual_seed(mixed_seed(self.seed, epoch))
        count = len(self.pairs)
        order = torch.randperm(count, generator=generator) if self.shuffle else torch.arange(count)
        by_length = self._widths[order].argsort(descending=True, stable=True)  # in random order among equals
        batches = np.split(order[by_length].numpy(), self._ends[:-1])
        if not self.shuffle:
            return batches
        return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """Iterate over the batches of an epoch as tensors."""
        return (self.collate(indices) for indices in self.plan(epoch))

    def collate(self, indices: Sequence[int]) -> Batch:
        """Make a batch of the pairs at `indices`."""
        indices = np.asarray(indices).tolist()
        src, tgt = ([rows[i] for i in indices] for rows in (self.pairs.src, self.pairs.tgt))
        return Batch(pad_rows(src, PAD), pad_rows(tgt, PAD), PAD)


def batch_ends(lengths: Sequence[int], max_tokens: int) -> list[int]:
    """Return where batches end in rows of falling `lengths`: rows times longest is within `max_tokens`."""
    ends = []
    end = 0
    while end < len(lengths):
        end = min(end + max(1, max_tokens // lengths[end]), len(lengths))
        ends.append(end)
    return ends


def batch_by_length(rows: Mapping[int, Sequence[int]], max_tokens: int) -> list[list[int]]:
    """Group rows of like length by their keys, the longest first; a row that is too long comes alone."""
    order = sorted(rows, key=lambda i: -len(rows[i]))
    ends = batch_ends([len(rows[i]) for i in order], max_tokens)
    return [order[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def mixed_seed(*numbers: int) -> int:
    """Mix numbers, such as (seed, epoch), into a seed of 32 bits, as many as torch keeps."""
    return zlib.crc32(" ".join(map(str, numbers)).encode())


def pad_rows(rows: Sequence[Sequence[int]], pad: int) -> Tensor:
    """Pad rows on the right to one int64 tensor (len(rows), longest)."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows], dtype=torch.int64)
