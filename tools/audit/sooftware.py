"""sooftware/transformer."""

from torch import nn
from transformer import AddNorm, MultiHeadAttention as Heads, PoswiseFeedForwardNet, Transformer

REPOSITORY = "https://github.com/sooftware/transformer"
COMMIT = "fdb42fe4cd6601619fc671c0c223cc66b4f38e8c"

TRUE_HIDES = True
FeedForward = PoswiseFeedForwardNet


class MultiHeadAttention(Heads):
    def forward(self, query, key, value, mask=None):
        mask = None if mask is None else mask.expand(-1, query.size(1), -1)
        return super().forward(query, key, value, mask)


class Model(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, N, d_model, d_ff, h, dropout, pad):
        super().__init__()
        self.pad = pad
        self.whole = Transformer(src_vocab, tgt_vocab, d_model, d_ff, h, N, N, dropout, pad, eos_id=-1)

    def forward(self, src, tgt):
        lengths = [(x != self.pad).sum(1) for x in (src, tgt)]
        return self.whole(src, lengths[0], tgt, lengths[1])


make_model = Model
