"""jsbaan/transformer-from-scratch, the code of a blog post."""

from multi_head_attention import MultiHeadAttention as Attention
from positional_encodings import SinusoidEncoding
from torch import nn
from transformer import Transformer
from utils import construct_future_mask

REPOSITORY = "https://github.com/jsbaan/transformer-from-scratch"
COMMIT = "d4841b21ffe24fd0f7de8352dae615d5a4148797"

MASK_DIMS = 3
PositionalEncoding = SinusoidEncoding


def attention(query, key, value, mask=None):
    return Attention.scaled_dot_product(Attention, query, key, value, future_mask=mask)


def subsequent_mask(size):
    return construct_future_mask(size)


class Model(nn.Module):
    def __init__(self, vocab, N, d_model, d_ff, h, dropout, pad):
        super().__init__()
        self.whole = Transformer(
            d_model, d_ff, h, N, 64, vocab, pad, 3, dropout, tie_output_to_embedding=True
        )

    def encode(self, src, src_mask):
        return self.whole.encoder(src, src_mask.squeeze(1))

    def decode(self, memory, src_mask, tgt, tgt_mask):
        future = construct_future_mask(tgt.size(1))
        return self.whole.decoder(tgt, memory, src_mask.squeeze(1), future)


make_model = Model
