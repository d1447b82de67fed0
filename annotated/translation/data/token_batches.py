"""From sentence pairs to batches of about equally many tokens (section 5.1).

Pairs of like length go into one batch, so that little of it is padding. Which pairs those are, and the order
of the batches, follow from (seed, epoch) alone: training can be taken up again at any batch of any epoch.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from annotated.batches import Batch
from annotated.translation.data.encoding import EncodedPairs, SubwordDropout
from annotated.translation.tokenizers import PAD


class TokenBatches:
    """Cuts `pairs` into batches of at most `max_tokens` positions a side, padding counted.

    A batch's size is its rows times the length of its longest sentence, source or target. Every pair comes
    once an epoch, and each epoch has the same number of batches, `len(self)`. With `dropout`, rows are cut
    anew in each epoch when their batch is made, and may then be longer.

    Raises ValueError if there are no pairs, or naming the line of a pair longer than `max_tokens`.
    """

    def __init__(
        self,
        pairs: EncodedPairs,
        max_tokens: int,
        pad: int = PAD,
        seed: int = 0,
        shuffle: bool = True,
        dropout: SubwordDropout | None = None,
    ) -> None:
        if not len(pairs):
            raise ValueError(f"{pairs.name}: no pairs to make batches of")
        self.pairs, self.max_tokens, self.pad, self.seed, self.shuffle = pairs, max_tokens, pad, seed, shuffle
        self.dropout = dropout
        # How many positions each pair takes, (pairs, 2): the decoder does not read the target's last token.
        self._lengths = np.stack([pairs.src.lengths, pairs.tgt.lengths - 1], axis=1)
        widths = self._lengths.max(axis=1)
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
        by_length = self._widths[order].argsort(descending=True, stable=True)  # random among equals
        batches = np.split(order[by_length].numpy(), self._ends[:-1])
        if not self.shuffle:
            return batches
        return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """Iterate over the batches of an epoch as tensors."""
        return (self.collate(indices, epoch) for indices in self.plan(epoch))

    def collate(self, indices: Sequence[int], epoch: int = 0) -> Batch:
        """Make a batch of the pairs at `indices`, with the subword dropout of an epoch."""
        indices = np.asarray(indices).tolist()
        src, tgt = ([rows[i] for i in indices] for rows in (self.pairs.src, self.pairs.tgt))
        if cut := self.dropout:
            chances = [Random(mixed_seed(self.seed, epoch, i)) for i in indices]
            src = [cut(row, cut.src_tokenizer, chance) for row, chance in zip(src, chances, strict=True)]
            tgt = [cut(row, cut.tgt_tokenizer, chance) for row, chance in zip(tgt, chances, strict=True)]
        return Batch(pad_rows(src, self.pad), pad_rows(tgt, self.pad), self.pad)


def batch_ends(lengths: Sequence[int], max_tokens: int) -> list[int]:
    """Return where batches end in rows of falling `lengths`: rows times longest is within `max_tokens`."""
    ends, end = [], 0
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
