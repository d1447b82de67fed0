"""dreamgonfly/transformer-pytorch."""

import models
from losses import LabelSmoothingLoss
from models import LayerNormalization, MultiHeadAttention as Heads, PointwiseFeedForwardNetwork
from torch import nn

REPOSITORY = "https://github.com/dreamgonfly/transformer-pytorch"
COMMIT = "c31e163ed57321e405771ef7fb556d4d92fd5efb"

TRUE_HIDES = True
later = models.subsequent_masking
models.subsequent_masking = lambda x: later(x).bool()  # as PyTorch wants it today


def MultiHeadAttention(h, d_model, dropout):
    return Heads(h, d_model, dropout)


class FeedForward(PointwiseFeedForwardNetwork):
    def __init__(self, d_model, d_ff, dropout):
        super().__init__(d_ff, d_model, dropout)


def LayerNorm(d_model):
    return LayerNormalization(d_model)


class LabelSmoothing(nn.Module):
    def __init__(self, size, padding_idx, smoothing):
        super().__init__()
        self.loss = LabelSmoothingLoss(smoothing, size, padding_idx)

    def forward(self, x, target):
        return self.loss(x[None], target[None])[0]


class Model(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, N, d_model, d_ff, h, dropout):
        super().__init__()
        config = {"positional_encoding": True, "layers_count": N, "d_model": d_model, "heads_count": h}
        config |= {"d_ff": d_ff, "dropout_prob": dropout}
        self.whole = models.build_model(config, src_vocab, tgt_vocab)

    def forward(self, src, tgt):
        return self.whole(src, tgt)


make_model = Model
PAD = models.PAD_TOKEN_ID
