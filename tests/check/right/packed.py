"""One matrix for queries, keys and values; PyTorch's fused attention; pre-norm; GELU; functions for masks and loss."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def causal_mask(T):
    return torch.arange(T)[:, None] >= torch.arange(T)[None]


def scaled_dot_product(q, k, v, mask=None):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class MultiHeadAttention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)

    def forward(self, q, k, v, mask=None):
        w_q, w_k, w_v = self.qkv.weight.chunk(3)
        heads = (x @ w.T for x, w in ((q, w_q), (k, w_k), (v, w_v)))
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in heads)
        if mask is not None:
            mask = mask[:, None]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.proj(y.transpose(1, 2).reshape(y.size(0), y.size(2), -1))


class FeedForward(nn.Sequential):
    def __init__(self, dim, hidden_dim, dropout=0.0):
        super().__init__(
            nn.Linear(dim, hidden_dim), nn.GELU(), nn.Linear(hidden_dim, dim), nn.Dropout(dropout)
        )


class Residual(nn.Module):
    def __init__(self, dim, dropout=0.0):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, fn):
        return x + self.drop(fn(self.norm(x)))


class Layer(nn.Module):
    def __init__(self, dim, num_heads, hidden_dim, dropout, cross):
        super().__init__()
        self.attend = nn.ModuleList(MultiHeadAttention(dim, num_heads) for _ in range(1 + cross))
        self.ff = FeedForward(dim, hidden_dim)
        self.wraps = nn.ModuleList(Residual(dim, dropout) for _ in range(2 + cross))

    def forward(self, x, mask, memory=None, memory_mask=None):
        x = self.wraps[0](x, lambda y: self.attend[0](y, y, y, mask))
        if memory is not None:
            x = self.wraps[1](x, lambda y: self.attend[1](y, memory, memory, memory_mask))
        return self.wraps[-1](x, self.ff)


class Transformer(nn.Module):
    def __init__(self, num_tokens, dim=512, depth=6, num_heads=8, hidden_dim=2048, dropout=0.1):
        super().__init__()
        self.scale = math.sqrt(dim)
        self.table = nn.Parameter(torch.randn(num_tokens, dim) / self.scale)
        self.encoder = nn.ModuleList(Layer(dim, num_heads, hidden_dim, dropout, 0) for _ in range(depth))
        self.decoder = nn.ModuleList(Layer(dim, num_heads, hidden_dim, dropout, 1) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2))
        self.dropout = dropout

    def embed(self, tokens):
        pos = torch.arange(tokens.size(1)).unsqueeze(1)
        i = torch.arange(self.table.size(1))
        angle = pos / 10000 ** ((i - i % 2) / self.table.size(1))
        waves = torch.where(i % 2 == 0, angle.sin(), angle.cos())
        return F.dropout(self.table[tokens] * self.scale + waves, self.dropout, self.training)

    def encode(self, src, src_mask):
        x = self.embed(src)
        for layer in self.encoder:
            x = layer(x, src_mask)
        return self.norms[0](x)

    def decode(self, memory, src_mask, tgt, tgt_mask):
        x = self.embed(tgt)
        for layer in self.decoder:
            x = layer(x, tgt_mask, memory, src_mask)
        return self.norms[1](x) @ self.table.T

    def forward(self, src, tgt, src_mask, tgt_mask):
        return self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask)


def smoothed_cross_entropy(logits, target, smoothing=0.1, pad=0):
    return F.cross_entropy(logits, target, ignore_index=pad, label_smoothing=smoothing)


def noam(step, d_model, warmup):
    step = max(step, 1)
    return min(1 / math.sqrt(step), step / warmup**1.5) / math.sqrt(d_model)


def beam_search(model, src, src_mask, bos, eos, k, max_len, alpha=0.0):
    memory = model.encode(src, src_mask)
    beams, finished = torch.tensor([[bos]]), []
    scores = torch.zeros(1)
    for _ in range(max_len):
        n = len(beams)
        mask = None if src_mask is None else src_mask.expand(n, -1, -1)
        logits = model.decode(memory.expand(n, -1, -1), mask, beams, causal_mask(beams.size(1))[None])
        total = scores[:, None] + logits[:, -1].log_softmax(-1)
        scores, best = total.flatten().topk(min(k, total.numel()))
        beams = torch.cat([beams[best // total.size(1)], (best % total.size(1))[:, None]], dim=1)
        ended = beams[:, -1] == eos
        finished += [
            (s / b.numel() ** alpha, b.tolist()) for s, b in zip(scores[ended].tolist(), beams[ended])
        ]
        beams, scores = beams[~ended], scores[~ended]
        if not len(beams):
            break
    return max(finished)[1] if finished else beams[0].tolist()
