"""hkproj/pytorch-transformer, the code of a popular video course."""

from model import *
from model import (
    LayerNormalization as LayerNorm,
    MultiHeadAttentionBlock as MultiHeadAttention,
    build_transformer as make_model,
)

REPOSITORY = "https://github.com/hkproj/pytorch-transformer"
COMMIT = "3beddd2604bfa5e0fbd53f52361bd887dc027a8c"

MASK_DIMS = 4


def attention(query, key, value, mask=None, dropout=None):
    return MultiHeadAttention.attention(query, key, value, mask, dropout)
