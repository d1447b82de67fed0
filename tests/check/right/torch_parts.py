"""PyTorch's own layers: batch second, with masks where True hides, an adapter in the file itself."""

import math

import torch
from torch import nn

BATCH_FIRST = False
TRUE_HIDES = True
PAD = 1


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout=0.1, max_len=5000):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * div_term)
        pe[:, 0, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return self.dropout(x + self.pe[: x.size(0)])


class TokenEmbedding(nn.Module):
    def __init__(self, vocab_size, emb_size):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, emb_size)
        self.emb_size = emb_size

    def forward(self, tokens):
        return self.embedding(tokens.long()) * math.sqrt(self.emb_size)


class Seq2SeqTransformer(nn.Module):
    def __init__(
        self, num_encoder_layers, num_decoder_layers, emb_size, nhead, src_vocab_size, tgt_vocab_size,
        dim_feedforward=512, dropout=0.1,
    ):  # fmt: skip
        super().__init__()
        sizes = (emb_size, nhead, num_encoder_layers, num_decoder_layers, dim_feedforward, dropout)
        self.transformer = nn.Transformer(*sizes)
        self.generator = nn.Linear(emb_size, tgt_vocab_size)
        self.src_tok_emb = TokenEmbedding(src_vocab_size, emb_size)
        self.tgt_tok_emb = TokenEmbedding(tgt_vocab_size, emb_size)
        self.positional_encoding = PositionalEncoding(emb_size, dropout=dropout)

    def forward(self, src, tgt, src_mask, tgt_mask):
        return self.generator(self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask))

    def encode(self, src, src_mask):
        x = self.positional_encoding(self.src_tok_emb(src))
        return self.transformer.encoder(x, src_key_padding_mask=src_mask.squeeze(1))

    def decode(self, memory, src_mask, tgt, tgt_mask):
        heads = self.transformer.nhead
        return self.transformer.decoder(
            self.positional_encoding(self.tgt_tok_emb(tgt)),
            memory,
            tgt_mask=tgt_mask.repeat_interleave(heads, dim=0),
            memory_key_padding_mask=src_mask.squeeze(1),
        )


class MultiHeadAttention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(embed_dim, num_heads)

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = mask.expand(-1, query.size(0), -1).repeat_interleave(self.attn.num_heads, dim=0)
        return self.attn(query, key, value, attn_mask=mask)[0]
