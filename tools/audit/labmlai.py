"""labmlai/annotated_deep_learning_paper_implementations."""

from labml_nn.transformers.feed_forward import FeedForward
from labml_nn.transformers.label_smoothing_loss import LabelSmoothingLoss
from labml_nn.transformers.mha import MultiHeadAttention as Heads
from labml_nn.transformers.models import (
    Decoder,
    EmbeddingsWithPositionalEncoding,
    Encoder,
    EncoderDecoder,
    Generator,
    TransformerLayer,
)
from labml_nn.transformers.positional_encoding import PositionalEncoding
from torch import nn

REPOSITORY = "https://github.com/labmlai/annotated_deep_learning_paper_implementations"
COMMIT = "e6b3c8a6a2cdae4071bcde1abeaaf9a2bc37bd53"
NEEDS = "labml==0.4.168 labml-helpers"

BATCH_FIRST = False


def lengths_first(mask):
    """Masks (B, 1 or T, S) as (1 or T, S, B)."""
    return None if mask is None else mask.permute(1, 2, 0)


class MultiHeadAttention(nn.Module):
    def __init__(self, h, d_model, dropout):
        super().__init__()
        self.heads = Heads(h, d_model, dropout)

    def forward(self, query, key, value, mask=None):
        return self.heads(query=query, key=key, value=value, mask=lengths_first(mask))


class Model(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, N, d_model, d_ff, h, dropout):
        super().__init__()

        def layer(attentions):
            heads = [Heads(h, d_model, dropout) for _ in range(attentions)]
            network = FeedForward(d_model, d_ff, dropout)
            parts = dict(zip(("self_attn", "src_attn"), heads, strict=False))
            return TransformerLayer(d_model=d_model, feed_forward=network, dropout_prob=dropout, **parts)

        sides = Encoder(layer(1), N), Decoder(layer(2), N)
        tables = [EmbeddingsWithPositionalEncoding(d_model, n, 64) for n in (src_vocab, tgt_vocab)]
        self.whole = EncoderDecoder(*sides, *tables, Generator(tgt_vocab, d_model))

    def encode(self, src, src_mask):
        return self.whole.encode(src, lengths_first(src_mask))

    def decode(self, memory, src_mask, tgt, tgt_mask):
        masks = lengths_first(src_mask), lengths_first(tgt_mask)
        return self.whole.generator(self.whole.decode(memory, masks[0], tgt, masks[1]))


make_model = Model
