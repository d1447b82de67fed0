"""A batch of sentence pairs with its masks, the padding mask, and the batches of the copy task."""

from collections.abc import Iterator

import torch
from torch import Tensor

from annotated.transformer.attention import subsequent_mask
from annotated.transformer.config import PAD


class Batch:
    """Sentence pairs, padded to one length a side, with the masks that training needs (section 5.1).

    The decoder reads `tgt`, the target without its last token, and is asked for `tgt_y`, the target without
    its first: at each position it must say what comes next.

    Args:
        src: source tokens (batch, src_len), int64, padded with `pad`.
        tgt: target tokens (batch, tgt_len), from `<s>` to `</s>`, padded likewise; without them, at
            inference, the batch has `src` and `src_mask` alone.
        pad: the padding symbol's number.

    Attributes:
        src_mask: bool (batch, 1, src_len).
        tgt, tgt_y: int64 (batch, tgt_len - 1).
        tgt_mask: bool (batch, tgt_len - 1, tgt_len - 1), padding and future hidden.
        ntokens: number of target tokens to predict, without padding.
    """

    def __init__(self, src: Tensor, tgt: Tensor | None = None, pad: int = PAD):
        for name, tokens in {"src": src, "tgt": tgt}.items():
            if tokens is not None and not (isinstance(tokens, Tensor) and tokens.dim() == 2):
                raise ValueError(f"{name} must be a tensor (batch, {name}_len), as torch.tensor([[5, 6]]) is")
        self.src = src
        self.src_mask = padding_mask(src, pad)
        self.pad = pad
        if tgt is not None:
            if len(tgt) != len(src):
                raise ValueError(f"a batch needs as many targets as sources, not {len(tgt)} for {len(src)}")
            self.tgt = tgt[:, :-1]
            self.tgt_y = tgt[:, 1:]
            self.tgt_mask = self.make_std_mask(self.tgt, pad)
            self.ntokens = int((self.tgt_y != pad).sum())

    def __repr__(self) -> str:
        sizes = f"src {tuple(self.src.shape)}"
        if hasattr(self, "tgt"):
            sizes += f", tgt {tuple(self.tgt.shape)}, ntokens {self.ntokens:,}"
        return f"Batch({sizes}, on {self.src.device})"

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


def padding_mask(tokens: Tensor, pad: int) -> Tensor:
    """Let every query see the real tokens and none of the padding.

    `tokens` (batch, len), integer; returns a bool tensor (batch, 1, len) that serves every query alike.
    """
    return (tokens != pad).unsqueeze(-2)
