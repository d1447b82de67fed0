"""A batch of sentence pairs, and from pairs to batches of about equally many tokens (section 5.1).

Pairs of like length go into one batch, so that little of it is padding. Which pairs those are, and the order
of the batches, follow from (seed, epoch) alone: training can be taken up again at any batch of any epoch.
"""

import zlib
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from annotated.data.encoding import EncodedPairs, SubwordDropout
from annotated.tokenizers import PAD
from annotated.transformer.attention import padding_mask, subsequent_mask


class Batch:
    """Sentence pairs, padded to one length a side, with the masks that training needs (section 5.1).

    The decoder reads `tgt`, the target without its last token, and is asked for `tgt_y`, the target without
    its first: at each position it must say what comes next.

    Args:
        src: source tokens (batch, src_len), int64, padded with `pad`.
        tgt: target tokens (batch, tgt_len), from `<s>` to `</s>`, padded likewise; None at inference.
        pad: the padding symbol's number.

    Attributes:
        src_mask: bool (batch, 1, src_len).
        tgt, tgt_y: int64 (batch, tgt_len - 1).
        tgt_mask: bool (batch, tgt_len - 1, tgt_len - 1), padding and future hidden.
        ntokens: number of target tokens to predict, without padding.
    """

    def __init__(self, src: Tensor, tgt: Tensor | None = None, pad: int = 2):
        self.src, self.src_mask, self.pad = src, padding_mask(src, pad), pad
        if tgt is not None:
            if len(tgt) != len(src):
                raise ValueError(f"a batch needs as many targets as sources, not {len(tgt)} for {len(src)}")
            self.tgt = tgt[:, :-1]
            self.tgt_y = tgt[:, 1:]
            self.tgt_mask = self.make_std_mask(self.tgt, pad)
            self.ntokens = int((self.tgt_y != pad).sum())

    def __repr__(self) -> str:
        shown = f"src {tuple(self.src.shape)}"
        if hasattr(self, "tgt"):
            shown += f", tgt {tuple(self.tgt.shape)}, ntokens {self.ntokens:,}"
        return f"Batch({shown}, on {self.src.device})"

    @staticmethod
    def make_std_mask(tgt: Tensor, pad: int) -> Tensor:
        """Hide padding and the future: tokens (batch, len) give a bool mask (batch, len, len)."""
        return padding_mask(tgt, pad) & subsequent_mask(tgt.size(-1), tgt.device)

    def to(self, device: torch.device | str) -> "Batch":
        """Move every tensor to `device`, in place; returns the batch itself."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value.to(device))
        return self


def data_gen(V: int, batch_size: int, nbatches: int, length: int = 10) -> Iterator[Batch]:
    """Generate `nbatches` batches of `batch_size` random rows for the copy task.

    Each row has `length` symbols from 1 to V - 1, from torch's global generator; the first is always 1, as a
    start symbol, and nothing is padding (0).
    """
    for _ in range(nbatches):
        data = torch.randint(1, V, (batch_size, length))
        data[:, 0] = 1
        yield Batch(data, data.clone(), pad=0)


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
        descending, end = -np.sort(-widths), 0
        self._ends: list[int] = []  # of each batch, in pairs sorted from long to short
        while end < len(widths):
            end = min(end + max_tokens // int(descending[end]), len(widths))
            self._ends.append(end)

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


def mixed_seed(*numbers: int) -> int:
    """Mix numbers, such as (seed, epoch), into a seed of 32 bits, as many as torch keeps."""
    return zlib.crc32(" ".join(map(str, numbers)).encode())


def pad_rows(rows: Sequence[Sequence[int]], pad: int) -> Tensor:
    """Pad rows on the right to one int64 tensor (len(rows), longest)."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows], dtype=torch.int64)
