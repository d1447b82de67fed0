"""As many tutorials have it: the model makes its own masks of four dimensions, learned positions, logits."""

import torch
import torch.nn as nn


class MultiHeadAttention(nn.Module):
    def __init__(self, embed_size, heads):
        super().__init__()
        self.heads = heads
        self.head_dim = embed_size // heads
        self.values = nn.Linear(embed_size, embed_size)
        self.keys = nn.Linear(embed_size, embed_size)
        self.queries = nn.Linear(embed_size, embed_size)
        self.fc_out = nn.Linear(embed_size, embed_size)

    def forward(self, values, keys, query, mask):
        n = query.shape[0]
        values = self.values(values).reshape(n, -1, self.heads, self.head_dim)
        keys = self.keys(keys).reshape(n, -1, self.heads, self.head_dim)
        queries = self.queries(query).reshape(n, -1, self.heads, self.head_dim)
        energy = torch.einsum("nqhd,nkhd->nhqk", [queries, keys])
        if mask is not None:
            energy = energy.masked_fill(mask == 0, float("-1e20"))
        weights = torch.softmax(energy / (self.head_dim ** (1 / 2)), dim=3)
        out = torch.einsum("nhql,nlhd->nqhd", [weights, values]).reshape(n, query.shape[1], -1)
        return self.fc_out(out)


class Block(nn.Module):
    def __init__(self, embed_size, heads, hidden, dropout):
        super().__init__()
        self.attention = MultiHeadAttention(embed_size, heads)
        self.norm1 = nn.LayerNorm(embed_size)
        self.norm2 = nn.LayerNorm(embed_size)
        self.ff = nn.Sequential(nn.Linear(embed_size, hidden), nn.ReLU(), nn.Linear(hidden, embed_size))
        self.dropout = nn.Dropout(dropout)

    def forward(self, value, key, query, mask):
        x = self.norm1(query + self.dropout(self.attention(value, key, query, mask)))
        return self.norm2(x + self.dropout(self.ff(x)))


class DecoderBlock(nn.Module):
    def __init__(self, embed_size, heads, hidden, dropout):
        super().__init__()
        self.attention = MultiHeadAttention(embed_size, heads)
        self.norm = nn.LayerNorm(embed_size)
        self.block = Block(embed_size, heads, hidden, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, memory, src_mask, trg_mask):
        query = self.norm(x + self.dropout(self.attention(x, x, x, trg_mask)))
        return self.block(memory, memory, query, src_mask)


class Stack(nn.Module):
    def __init__(self, block, vocab_size, embed_size, num_layers, heads, hidden, dropout, max_length):
        super().__init__()
        self.words = nn.Embedding(vocab_size, embed_size)
        self.places = nn.Embedding(max_length, embed_size)
        self.layers = nn.ModuleList([block(embed_size, heads, hidden, dropout) for _ in range(num_layers)])
        self.dropout = nn.Dropout(dropout)

    def embed(self, x):
        positions = torch.arange(0, x.shape[1]).expand(x.shape)
        return self.dropout(self.words(x) + self.places(positions))


class Transformer(nn.Module):
    def __init__(
        self,
        src_vocab_size,
        trg_vocab_size,
        src_pad_idx,
        trg_pad_idx,
        embed_size=256,
        num_layers=6,
        hidden=1024,
        heads=8,
        dropout=0.0,
        device="cpu",
        max_length=10000,
    ):
        super().__init__()
        sizes = (embed_size, num_layers, heads, hidden, dropout, 100)
        self.encoder = Stack(Block, src_vocab_size, *sizes)
        self.decoder = Stack(DecoderBlock, trg_vocab_size, *sizes)
        self.fc_out = nn.Linear(embed_size, trg_vocab_size)
        self.src_pad_idx = src_pad_idx

    def make_src_mask(self, src):
        return (src != self.src_pad_idx).unsqueeze(1).unsqueeze(2)

    def make_trg_mask(self, trg):
        n, trg_len = trg.shape
        return torch.tril(torch.ones((trg_len, trg_len))).expand(n, 1, trg_len, trg_len)

    def forward(self, src, trg):
        src_mask, trg_mask = self.make_src_mask(src), self.make_trg_mask(trg)
        memory = self.encoder.embed(src)
        for layer in self.encoder.layers:
            memory = layer(memory, memory, memory, src_mask)
        x = self.decoder.embed(trg)
        for layer in self.decoder.layers:
            x = layer(x, memory, src_mask, trg_mask)
        return self.fc_out(x)


def greedy(model, src, src_mask, max_len, start, end):
    tokens = [start]
    for _ in range(max_len):
        tokens.append(model(src, torch.tensor([tokens]))[0, -1].argmax().item())
        if tokens[-1] == end:
            break
    return tokens
