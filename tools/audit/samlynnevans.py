"""SamLynnEvans/Transformer, the code of a widely read article."""

import torch
from Embed import PositionalEncoder
from Models import Transformer
from Sublayers import FeedForward, MultiHeadAttention, Norm as LayerNorm, attention as attend
from torch import nn

REPOSITORY = "https://github.com/SamLynnEvans/Transformer"
COMMIT = "49e01800aab01dcd83403a056c059f429a7d7512"

NOT_APPLICABLE = {"positions: added": "it scales the embeddings in the same module"}


def attention(query, key, value, mask=None, dropout=None):
    mask = None if mask is None else mask.expand(1, *query.shape[-2:-1], key.size(-2))
    return attend(query, key, value, query.size(-1), mask, dropout)


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout, max_len):
        super().__init__()
        self.of_scaled = PositionalEncoder(d_model, int(max_len), dropout)

    def forward(self, x):
        return self.of_scaled(x / self.of_scaled.d_model**0.5)


def make_model(src_vocab, tgt_vocab, N, d_model, h, dropout):
    model = Transformer(src_vocab, tgt_vocab, d_model, N, h, dropout)
    for parameter in model.parameters():  # as get_model does, which reads its settings from a command line
        if parameter.dim() > 1:
            torch.nn.init.xavier_uniform_(parameter)
    return model
