"""brandokoch/attention-is-all-you-need-paper."""

from architectures.multi_head_attention import ScaledDotProductAttention
from architectures.position_wise_feed_forward_net import PositionWiseFeedForwardNet
from architectures.positional_encoding import PositionalEncoding
from architectures.transformer_encoder_decoder import TransformerEncoderDecoder

REPOSITORY = "https://github.com/brandokoch/attention-is-all-you-need-paper"
COMMIT = "0ff17617e29e9d80219380665ae23772c81e9cd5"
FOLDER = "src"

MASK_DIMS = 4


def attention(query, key, value, mask=None):
    return ScaledDotProductAttention(query.size(-1)).eval()(query, key, value, mask)


def PositionwiseFeedForward(d_model, d_ff):
    return PositionWiseFeedForwardNet(d_model, d_ff)


def make_model(tgt_vocab, N, d_model, d_ff, h, dropout):
    return TransformerEncoderDecoder(d_model, N, tgt_vocab, tgt_vocab, h, d_ff, dropout)
