"""tunz/transformer-pytorch, after tensor2tensor."""

import torch
from model import transformer
from torch import nn
from utils import utils

REPOSITORY = "https://github.com/tunz/transformer-pytorch"
COMMIT = "e7266679f0b32fd99135ea617213f986ceede056"

FeedForward = transformer.FeedForwardNetwork
TRUE_HIDES = True
NOT_APPLICABLE = {"model: both ways": "its first position reads zeros in place of the start symbol"}
later = utils.create_trg_self_mask
utils.create_trg_self_mask = lambda size, device=None: later(size, device).bool()  # as PyTorch wants it today


def MultiHeadAttention(d_model, h, dropout):
    return transformer.MultiHeadAttention(d_model, dropout, h)


class Model(nn.Module):
    """Its decoder shifts the target itself: position t reads what stands before t, and the first zeros."""

    def __init__(self, src_vocab, tgt_vocab, N, d_model, d_ff, dropout, pad):
        super().__init__()
        self.whole = transformer.Transformer(
            src_vocab, tgt_vocab, N, d_model, d_ff, dropout, False, src_pad_idx=pad, trg_pad_idx=pad
        )

    def forward(self, src, tgt):
        return self.whole(src, torch.cat([tgt[:, 1:], tgt[:, :1]], 1))


make_model = Model
