"""Khaliladib11/Transformer-from-scratch."""

from src.attention import MultiHeadAttention as Heads
from src.embed import Embedding, PositionalEncoding
from src.transformer import Transformer

REPOSITORY = "https://github.com/Khaliladib11/Transformer-from-scratch"
COMMIT = "9769f5cd82851885ee386962b56aaf749435067c"

MASK_DIMS = 4


def MultiHeadAttention(d_model, h):
    return Heads(d_model, h)


def make_model(src_vocab, tgt_vocab, N, d_model, h, dropout, max_len, pad):
    return Transformer(d_model, src_vocab, tgt_vocab, max_len, N, 4, h, dropout, pad)
