"""The stubs of `annotated build`, filled in: post-norm, bool masks, one table for all three."""

import math
from collections import Counter

import torch
from torch import nn

STUBS = True


def attention(query, key, value, mask=None, dropout=None):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)
    kept = weights if dropout is None else dropout(weights)
    return (kept @ value, weights)


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        self.h, self.d_k = (h, d_model // h)
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))
        self.dropout = nn.Dropout(dropout)

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            f(x).view(x.size(0), x.size(1), self.h, self.d_k).transpose(1, 2)
            for f, x in zip(self.linears, (query, key, value))
        )
        x, _ = attention(q, k, v, None if mask is None else mask.unsqueeze(1), self.dropout)
        return self.linears[3](x.transpose(1, 2).flatten(2))


class PositionwiseFeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.1):
        super().__init__()
        self.w_1, self.w_2 = (nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.w_2(self.dropout(self.w_1(x).relu()))


class Embeddings(nn.Module):
    def __init__(self, d_model, vocab):
        super().__init__()
        self.lut = nn.Embedding(vocab, d_model)
        self.d_model = d_model

    def forward(self, tokens):
        return self.lut(tokens) * math.sqrt(self.d_model)


class Generator(nn.Module):
    def __init__(self, d_model, vocab):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab)

    def forward(self, x):
        return self.proj(x).log_softmax(dim=-1)


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout, max_len=5000):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        angle = torch.arange(max_len).unsqueeze(1) * 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)
        self.register_buffer(
            "pe", torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1), persistent=False
        )

    def forward(self, x):
        return self.dropout(x + self.pe[: x.size(1)])


class SublayerConnection(nn.Module):
    def __init__(self, size, dropout):
        super().__init__()
        self.norm, self.dropout = (nn.LayerNorm(size), nn.Dropout(dropout))

    def forward(self, x, sublayer):
        return self.norm(x + self.dropout(sublayer(x)))


class EncoderLayer(nn.Module):
    def __init__(self, d_model, d_ff, h, dropout):
        super().__init__()
        self.self_attn = MultiHeadedAttention(h, d_model, dropout)
        self.feed_forward = PositionwiseFeedForward(d_model, d_ff, dropout)
        self.sublayer = nn.ModuleList(SublayerConnection(d_model, dropout) for _ in range(2))

    def forward(self, x, mask):
        x = self.sublayer[0](x, lambda y: self.self_attn(y, y, y, mask))
        return self.sublayer[1](x, self.feed_forward)


class Encoder(nn.Module):
    def __init__(self, N, d_model, d_ff, h, dropout):
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(d_model, d_ff, h, dropout) for _ in range(N))

    def forward(self, x, mask):
        for layer in self.layers:
            x = layer(x, mask)
        return x


class DecoderLayer(nn.Module):
    def __init__(self, d_model, d_ff, h, dropout):
        super().__init__()
        self.self_attn = MultiHeadedAttention(h, d_model, dropout)
        self.src_attn = MultiHeadedAttention(h, d_model, dropout)
        self.feed_forward = PositionwiseFeedForward(d_model, d_ff, dropout)
        self.sublayer = nn.ModuleList(SublayerConnection(d_model, dropout) for _ in range(3))

    def forward(self, x, memory, src_mask, tgt_mask):
        x = self.sublayer[0](x, lambda y: self.self_attn(y, y, y, tgt_mask))
        x = self.sublayer[1](x, lambda y: self.src_attn(y, memory, memory, src_mask))
        return self.sublayer[2](x, self.feed_forward)


class Decoder(nn.Module):
    def __init__(self, N, d_model, d_ff, h, dropout):
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(d_model, d_ff, h, dropout) for _ in range(N))

    def forward(self, x, memory, src_mask, tgt_mask):
        for layer in self.layers:
            x = layer(x, memory, src_mask, tgt_mask)
        return x


class Transformer(nn.Module):
    def __init__(self, vocab, N=6, d_model=512, d_ff=2048, h=8, dropout=0.1):
        super().__init__()
        self.src_embed = nn.Sequential(Embeddings(d_model, vocab), PositionalEncoding(d_model, dropout))
        self.tgt_embed = nn.Sequential(Embeddings(d_model, vocab), PositionalEncoding(d_model, dropout))
        self.encoder, self.decoder = (
            Encoder(N, d_model, d_ff, h, dropout),
            Decoder(N, d_model, d_ff, h, dropout),
        )
        self.generator = Generator(d_model, vocab)
        self.tgt_embed[0].lut.weight = self.generator.proj.weight = self.src_embed[0].lut.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)
        nn.init.normal_(self.src_embed[0].lut.weight, std=d_model ** (-0.5))

    def encode(self, src, src_mask):
        return self.encoder(self.src_embed(src), src_mask)

    def decode(self, memory, src_mask, tgt, tgt_mask):
        return self.generator(self.decoder(self.tgt_embed(tgt), memory, src_mask, tgt_mask))

    def forward(self, src, tgt, src_mask, tgt_mask):
        return self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask)


def subsequent_mask(size):
    return torch.ones(1, size, size, dtype=torch.bool).tril()


class Batch:
    def __init__(self, src, tgt, pad=0):
        self.src, self.src_mask = (src, (src != pad).unsqueeze(1))
        self.tgt, self.tgt_y = (tgt[:, :-1], tgt[:, 1:])
        self.tgt_mask = (self.tgt != pad).unsqueeze(1) & subsequent_mask(self.tgt.size(1))
        self.ntokens = (self.tgt_y != pad).sum()


class LabelSmoothing(nn.Module):
    def __init__(self, size, padding_idx, smoothing=0.0):
        super().__init__()
        self.size, self.padding_idx, self.smoothing = (size, padding_idx, smoothing)

    def forward(self, x, target):
        q = torch.full_like(x, self.smoothing / (self.size - 2)).scatter(
            1, target.unsqueeze(1), 1 - self.smoothing
        )
        q[:, self.padding_idx] = 0
        q[target == self.padding_idx] = 0
        return -(q * x).sum()


def rate(step, model_size, factor, warmup):
    step = max(step, 1)
    return factor * model_size ** (-0.5) * min(step ** (-0.5), step * warmup ** (-1.5))


def greedy_decode(model, src, src_mask, max_len, start_symbol, end_symbol=None):
    memory, tgt = (model.encode(src, src_mask), torch.full((1, 1), start_symbol))
    while tgt.size(1) < max_len and tgt[0, -1] != end_symbol:
        log_probs = model.decode(memory, src_mask, tgt, subsequent_mask(tgt.size(1)))[:, -1]
        tgt = torch.cat([tgt, log_probs.argmax(dim=-1, keepdim=True)], dim=1)
    return tgt


def beam_search(model, src, src_mask, max_len, start_symbol, end_symbol, beam=4, alpha=0.6):
    memory, kept, ended = (model.encode(src, src_mask), [(0.0, [start_symbol])], [])
    for _ in range(max_len):
        candidates = []
        for score, tokens in kept:
            p = model.decode(memory, src_mask, torch.tensor([tokens]), subsequent_mask(len(tokens)))[0, -1]
            candidates += [(score + q, [*tokens, t]) for t, q in enumerate(p.tolist())]
        kept = []
        for score, tokens in sorted(candidates, reverse=True)[:beam]:
            if tokens[-1] == end_symbol:
                ended.append((score / ((5 + len(tokens) - 1) / 6) ** alpha, tokens[1:-1]))
            else:
                kept.append((score, tokens))
        if not kept:
            break
    return max(ended)[1] if ended else kept[0][1][1:]


def bleu(hypotheses, references):
    right, total, c, r = [0] * 4, [0] * 4, 0, 0
    for hypothesis, reference in zip(hypotheses, references):
        h, ref = hypothesis.split(), reference.split()
        c, r = c + len(h), r + len(ref)
        for n in range(4):
            grams = [Counter(tuple(x[i : i + n + 1]) for i in range(len(x) - n)) for x in (h, ref)]
            right[n] += sum((grams[0] & grams[1]).values())
            total[n] += max(0, len(h) - n)
    if min(right) == 0:
        return 0.0
    logs = sum(math.log(a / b) for a, b in zip(right, total)) / 4
    return 100 * min(1, math.exp(1 - r / c)) * math.exp(logs)
