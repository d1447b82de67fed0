"""A batch of sentence pairs, with the masks that training needs; those of the copy task are made here."""

from collections.abc import Iterator

import torch
from torch import Tensor

from annotated.transformer.masks import padding_mask, subsequent_mask


class Batch:
    """Sentence pairs, padded to one length a side, with the masks that training needs (section 5.1).

    The decoder reads `tgt`, the target without its last token, and is asked for `tgt_y`, the target without
    its first: at each position it must say what comes next.

    Args:
        src: source tokens (batch, src_len), int64, padded with `pad`.
        tgt: target tokens (batch, tgt_len), from `<s>` to `</s>`, padded likewise; None at inference.
        pad: the padding symbol's number.
        lines: for each row the line of the corpus that it came from, so that an error can name it.

    Attributes:
        src_mask: bool (batch, 1, src_len).
        tgt, tgt_y: int64 (batch, tgt_len - 1).
        tgt_mask: bool (batch, tgt_len - 1, tgt_len - 1), padding and future hidden.
        ntokens: how many target tokens are predicted, padding not counted.
    """

    def __init__(self, src: Tensor, tgt: Tensor | None = None, pad: int = 2, lines: list[int] | None = None):
        self.src = src
        self.src_mask = padding_mask(src, pad)
        self.lines = lines
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
        # Nobody waits for what comes back from a GPU, so copying must.
        there = torch.device(device).type != "cpu"
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value.to(device, non_blocking=there))
        return self


def data_gen(V: int, batch_size: int, nbatches: int, length: int = 10) -> Iterator[Batch]:
    """The copy task: `nbatches` batches of `batch_size` random rows, from torch's global random stream.

    Each row has `length` symbols from 1 to V - 1, the first always 1, as a start symbol; nothing is
    padding (0). Raises ValueError if V leaves no symbol, or length none to predict.
    """
    if V < 2 or length < 2:
        raise ValueError(f"the copy task needs V and length of 2 or more, not {V} and {length}")

    def batch() -> Batch:
        data = torch.randint(1, V, (batch_size, length))
        data[:, 0] = 1
        return Batch(data, data.clone(), pad=0)

    return (batch() for _ in range(nbatches))
