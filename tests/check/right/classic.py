"""A Transformer in the manner of 2018: pre-norm, masks of integers, its own norm, the generator apart."""

import copy
import math
from collections import Counter

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def copies(layer, count):
    return nn.ModuleList([copy.deepcopy(layer) for _ in range(count)])


def subsequent_mask(size):
    later = np.triu(np.ones((1, size, size)), k=1).astype("uint8")
    return torch.from_numpy(later) == 0


def attention(query, key, value, mask=None, dropout=None):
    width = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(width)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    weights = F.softmax(scores, dim=-1)
    if dropout is not None:
        weights = dropout(weights)
    return torch.matmul(weights, value), weights


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        assert d_model % h == 0
        self.d_k = d_model // h
        self.h = h
        self.linears = copies(nn.Linear(d_model, d_model), 4)
        self.attn = None
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = mask.unsqueeze(1)
        batches = query.size(0)
        query = self.linears[0](query).view(batches, -1, self.h, self.d_k).transpose(1, 2)
        key = self.linears[1](key).view(batches, -1, self.h, self.d_k).transpose(1, 2)
        value = self.linears[2](value).view(batches, -1, self.h, self.d_k).transpose(1, 2)
        x, self.attn = attention(query, key, value, mask=mask, dropout=self.dropout)
        x = x.transpose(1, 2).contiguous().view(batches, -1, self.h * self.d_k)
        return self.linears[3](x)


class PositionwiseFeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.1):
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.w_2(self.dropout(F.relu(self.w_1(x))))


class LayerNorm(nn.Module):
    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        std = x.std(-1, keepdim=True)
        return self.gain * (x - mean) / (std + self.eps) + self.bias


class SublayerConnection(nn.Module):
    def __init__(self, size, dropout):
        super().__init__()
        self.norm = LayerNorm(size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, sublayer):
        return x + self.dropout(sublayer(self.norm(x)))


class EncoderLayer(nn.Module):
    def __init__(self, size, self_attn, feed_forward, dropout):
        super().__init__()
        self.self_attn = self_attn
        self.feed_forward = feed_forward
        self.sublayer = copies(SublayerConnection(size, dropout), 2)
        self.size = size

    def forward(self, x, mask):
        x = self.sublayer[0](x, lambda y: self.self_attn(y, y, y, mask))
        return self.sublayer[1](x, self.feed_forward)


class DecoderLayer(nn.Module):
    def __init__(self, size, self_attn, src_attn, feed_forward, dropout):
        super().__init__()
        self.size = size
        self.self_attn = self_attn
        self.src_attn = src_attn
        self.feed_forward = feed_forward
        self.sublayer = copies(SublayerConnection(size, dropout), 3)

    def forward(self, x, memory, src_mask, tgt_mask):
        x = self.sublayer[0](x, lambda y: self.self_attn(y, y, y, tgt_mask))
        x = self.sublayer[1](x, lambda y: self.src_attn(y, memory, memory, src_mask))
        return self.sublayer[2](x, self.feed_forward)


class Encoder(nn.Module):
    def __init__(self, layer, N):
        super().__init__()
        self.layers = copies(layer, N)
        self.norm = LayerNorm(layer.size)

    def forward(self, x, mask):
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class Decoder(nn.Module):
    def __init__(self, layer, N):
        super().__init__()
        self.layers = copies(layer, N)
        self.norm = LayerNorm(layer.size)

    def forward(self, x, memory, src_mask, tgt_mask):
        for layer in self.layers:
            x = layer(x, memory, src_mask, tgt_mask)
        return self.norm(x)


class Embeddings(nn.Module):
    def __init__(self, d_model, vocab):
        super().__init__()
        self.lut = nn.Embedding(vocab, d_model)
        self.d_model = d_model

    def forward(self, x):
        return self.lut(x) * math.sqrt(self.d_model)


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout, max_len=5000):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        pe = torch.zeros(max_len, d_model)
        position = torch.arange(0, max_len).float().unsqueeze(1)
        step = torch.exp(torch.arange(0, d_model, 2).float() * -(math.log(10000.0) / d_model))
        pe[:, 0::2] = torch.sin(position * step)
        pe[:, 1::2] = torch.cos(position * step)
        self.register_buffer("pe", pe.unsqueeze(0))

    def forward(self, x):
        x = x + self.pe[:, : x.size(1)]
        return self.dropout(x)


class Generator(nn.Module):
    def __init__(self, d_model, vocab):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab)

    def forward(self, x):
        return F.log_softmax(self.proj(x), dim=-1)


class EncoderDecoder(nn.Module):
    def __init__(self, encoder, decoder, src_embed, tgt_embed, generator):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.src_embed = src_embed
        self.tgt_embed = tgt_embed
        self.generator = generator

    def forward(self, src, tgt, src_mask, tgt_mask):
        return self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask)

    def encode(self, src, src_mask):
        return self.encoder(self.src_embed(src), src_mask)

    def decode(self, memory, src_mask, tgt, tgt_mask):
        return self.decoder(self.tgt_embed(tgt), memory, src_mask, tgt_mask)


def make_model(src_vocab, tgt_vocab, N=6, d_model=512, d_ff=2048, h=8, dropout=0.1):
    c = copy.deepcopy
    attn = MultiHeadedAttention(h, d_model, dropout)
    ff = PositionwiseFeedForward(d_model, d_ff, dropout)
    position = PositionalEncoding(d_model, dropout)
    model = EncoderDecoder(
        Encoder(EncoderLayer(d_model, c(attn), c(ff), dropout), N),
        Decoder(DecoderLayer(d_model, c(attn), c(attn), c(ff), dropout), N),
        nn.Sequential(Embeddings(d_model, src_vocab), c(position)),
        nn.Sequential(Embeddings(d_model, tgt_vocab), c(position)),
        Generator(d_model, tgt_vocab),
    )
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.xavier_uniform_(p)
    return model


class Batch:
    def __init__(self, src, tgt=None, pad=0):
        self.src = src
        self.src_mask = (src != pad).unsqueeze(-2)
        if tgt is not None:
            self.tgt = tgt[:, :-1]
            self.tgt_y = tgt[:, 1:]
            self.tgt_mask = self.make_std_mask(self.tgt, pad)
            self.ntokens = (self.tgt_y != pad).sum()

    @staticmethod
    def make_std_mask(tgt, pad):
        mask = (tgt != pad).unsqueeze(-2)
        return mask & subsequent_mask(tgt.size(-1))


class LabelSmoothing(nn.Module):
    def __init__(self, size, padding_idx, smoothing=0.0):
        super().__init__()
        self.criterion = nn.KLDivLoss(reduction="sum")
        self.padding_idx = padding_idx
        self.confidence = 1.0 - smoothing
        self.smoothing = smoothing
        self.size = size

    def forward(self, x, target):
        dist = x.detach().clone()
        dist.fill_(self.smoothing / (self.size - 2))
        dist.scatter_(1, target.unsqueeze(1), self.confidence)
        dist[:, self.padding_idx] = 0
        rows = torch.nonzero(target == self.padding_idx)
        if len(rows) > 0:
            dist.index_fill_(0, rows.squeeze(-1), 0.0)
        return self.criterion(x, dist)


def rate(step, model_size, factor, warmup):
    if step == 0:
        step = 1
    return factor * (model_size ** (-0.5) * min(step ** (-0.5), step * warmup ** (-1.5)))


def greedy_decode(model, src, src_mask, max_len, start_symbol, end_symbol=None):
    memory = model.encode(src, src_mask)
    ys = torch.full((1, 1), start_symbol).type_as(src)
    for _ in range(max_len - 1):
        out = model.decode(memory, src_mask, ys, subsequent_mask(ys.size(1)))
        prob = model.generator(out[:, -1])
        next_word = prob.argmax(dim=1).item()
        ys = torch.cat([ys, torch.full((1, 1), next_word).type_as(src)], dim=1)
        if next_word == end_symbol:
            break
    return ys


def beam_search(model, src, src_mask, max_len, start_symbol, end_symbol, beam_size=4, alpha=0.6):
    memory = model.encode(src, src_mask)
    hypotheses = [([start_symbol], 0.0)]
    done = []
    for _ in range(max_len):
        candidates = []
        for tokens, score in hypotheses:
            ys = torch.tensor([tokens])
            out = model.decode(memory, src_mask, ys, subsequent_mask(len(tokens)))
            log_probs = model.generator(out[:, -1])[0]
            for token, log_prob in enumerate(log_probs.tolist()):
                candidates.append((tokens + [token], score + log_prob))
        candidates.sort(key=lambda c: c[1], reverse=True)
        hypotheses = []
        for tokens, score in candidates[:beam_size]:
            if tokens[-1] == end_symbol:
                done.append((tokens, score / ((5 + len(tokens) - 1) / 6) ** alpha))
            else:
                hypotheses.append((tokens, score))
        if not hypotheses:
            break
    done.sort(key=lambda c: c[1], reverse=True)
    return done[0][0] if done else hypotheses[0][0]


def bleu(hypotheses, references):
    log_precision = 0.0
    for n in range(1, 5):
        matches = total = 0
        for hypothesis, reference in zip(hypotheses, references):
            a, b = hypothesis.split(), reference.split()
            grams = Counter(tuple(a[i : i + n]) for i in range(len(a) - n + 1))
            known = Counter(tuple(b[i : i + n]) for i in range(len(b) - n + 1))
            matches += sum(min(count, known[gram]) for gram, count in grams.items())
            total += sum(grams.values())
        log_precision += math.log(max(matches, 1e-9) / max(total, 1)) / 4
    c = sum(len(h.split()) for h in hypotheses)
    r = sum(len(r.split()) for r in references)
    brevity = 1.0 if c > r else math.exp(1 - r / c)
    return 100 * brevity * math.exp(log_precision)
