"""tanjeffreyz/attention-is-all-you-need."""

from modules import Transformer
from modules.attention import MultiHeadAttention as Heads
from modules.feed_forward import FeedForwardNetwork

REPOSITORY = "https://github.com/tanjeffreyz/attention-is-all-you-need"
COMMIT = "2a2c0bd386c81e6118f1d23e9a2a3f54ace93e50"

FeedForward = FeedForwardNetwork


def MultiHeadAttention(d_model, h):
    return Heads(d_model, h)


def make_model(src_vocab, tgt_vocab, N, d_model, h, dropout, pad):
    return Transformer(d_model, src_vocab, tgt_vocab, pad, pad, h, N, dropout, seed=0)
