"""d2l-ai/d2l-en, "Dive into Deep Learning": the parts of its library."""

import math
from types import SimpleNamespace

import torch
from torch import nn

from tools.audit import clone_of, definitions

REPOSITORY = "https://github.com/d2l-ai/d2l-en"
COMMIT = "23d7a5aecceee57d1292c56e90cce307f183bb0a"

d2l = SimpleNamespace(Module=nn.Module, zeros=torch.zeros, arange=torch.arange)  # what its parts need of it
book = definitions((clone_of(__file__) / "d2l/torch.py").read_text("utf-8"), d2l=d2l)
d2l.DotProductAttention = book["DotProductAttention"]


def PositionalEncoding(d_model, dropout, max_len):
    return book["PositionalEncoding"](d_model, dropout, max_len)


class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.network = book["PositionWiseFFN"](d_ff, d_model)
        self.network(torch.zeros(1, 1, d_model))  # its layers learn their widths from what comes first

    def forward(self, x):
        return self.network(x)


class SublayerConnection(nn.Module):
    def __init__(self, d_model, dropout):
        super().__init__()
        self.around = book["AddNorm"](d_model, dropout)

    def forward(self, x, sublayer):
        return self.around(x, sublayer(x))


class MultiHeadAttention(nn.Module):
    """It takes how many keys each query may see, where others take masks."""

    def __init__(self, d_model, h, dropout):
        super().__init__()
        self.heads = book["MultiHeadAttention"](d_model, h, dropout)
        self.heads(*torch.zeros(3, 1, 1, d_model), None)

    def forward(self, query, key, value, mask=None):
        seen = None if mask is None else mask.sum(-1).expand(-1, query.size(1))
        return self.heads(query, key, value, seen)
