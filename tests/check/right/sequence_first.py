"""Length first; one matrix for all three maps; einsum; post-norm alone; a tied table that the model scales."""

import math

import torch
from torch import nn
from torch.nn import functional as F

BATCH_FIRST = False


def attention(q, k, v, mask=None):
    """(T, B, h, d), (S, B, h, d) twice, (B, T, S) -> (T, B, h, d)."""
    scores = torch.einsum("tbhd,sbhd->bhts", q, k) * q.size(-1) ** -0.5
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not().unsqueeze(1), -1e9)
    return torch.einsum("bhts,sbhd->tbhd", scores.softmax(-1), v)


NOT_APPLICABLE = {
    f"attention: {law}": "its heads are not second" for law in ("equation 1", "mask", "empty rows", "dropout")
}


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, h):
        super().__init__()
        self.h = h
        self.in_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, query, key, value, mask=None):
        maps = zip((query, key, value), self.in_proj.weight.chunk(3), self.in_proj.bias.chunk(3))
        q, k, v = (F.linear(x, w, b).unflatten(-1, (self.h, -1)) for x, w, b in maps)
        return self.out_proj(attention(q, k, v, mask).flatten(2))


class FeedForward(nn.Module):
    """The whole sub-layer: what is added and normalized is its own business."""

    def __init__(self, d_model, d_ff, dropout=0.1):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(d_model, d_ff), nn.LeakyReLU(0.1), nn.Linear(d_ff, d_model))
        self.norm, self.dropout = nn.LayerNorm(d_model), nn.Dropout(dropout)

    def forward(self, x):
        return self.norm(x + self.dropout(self.layers(x)))


class Layer(nn.Module):
    def __init__(self, d_model, d_ff, h, dropout, attentions):
        super().__init__()
        self.attentions = nn.ModuleList(MultiHeadAttention(d_model, h) for _ in range(attentions))
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(attentions))
        self.feed_forward, self.dropout = FeedForward(d_model, d_ff, dropout), nn.Dropout(dropout)

    def forward(self, x, *sources):
        for attend, norm, (memory, mask) in zip(self.attentions, self.norms, sources):
            memory = x if memory is None else memory
            x = norm(x + self.dropout(attend(x, memory, memory, mask)))
        return self.feed_forward(x)


class Embeddings(nn.Module):
    def __init__(self, vocab, d_model):
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocab, d_model) * d_model**-0.5)

    def forward(self, tokens):
        return self.table[tokens]


class Transformer(nn.Module):
    def __init__(self, vocab, N, d_model, d_ff, h, dropout):
        super().__init__()
        self.embeddings, self.dropout = Embeddings(vocab, d_model), nn.Dropout(dropout)
        self.encoder = nn.ModuleList(Layer(d_model, d_ff, h, dropout, 1) for _ in range(N))
        self.decoder = nn.ModuleList(Layer(d_model, d_ff, h, dropout, 2) for _ in range(N))

    def embed(self, tokens):
        x = self.embeddings(tokens)
        x = x * math.sqrt(x.size(-1))
        angles = torch.arange(len(x))[:, None] * 10000.0 ** (-torch.arange(0, x.size(-1), 2) / x.size(-1))
        return self.dropout(x + torch.cat([angles.sin(), angles.cos()], dim=-1)[:, None])

    def encode(self, src, src_mask):
        x = self.embed(src)
        for layer in self.encoder:
            x = layer(x, (None, src_mask))
        return x

    def decode(self, memory, src_mask, tgt, tgt_mask):
        x = self.embed(tgt)
        for layer in self.decoder:
            x = layer(x, (None, tgt_mask), (memory, src_mask))
        return x @ self.embeddings.table.T
