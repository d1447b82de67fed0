"""jadore801120/attention-is-all-you-need-pytorch."""

import torch
from transformer import Models
from transformer.Modules import ScaledDotProductAttention
from transformer.Optim import ScheduledOptim

REPOSITORY = "https://github.com/jadore801120/attention-is-all-you-need-pytorch"
COMMIT = "132907dd272e2cc92e3c10e6c4e783a87ff8893d"


def PositionalEncoding(d_model, max_len):
    return Models.PositionalEncoding(d_model, max_len)


def attention(query, key, value, mask=None):
    return ScaledDotProductAttention(query.size(-1) ** 0.5).eval()(query, key, value, mask)


def subsequent_mask(size):
    return Models.get_subsequent_mask(torch.zeros(1, size))


def rate(step, model_size, factor, warmup):
    schedule = ScheduledOptim(None, factor, model_size, warmup)
    schedule.n_steps = max(step, 1)  # it counts from 1
    return schedule.lr_mul * schedule._get_lr_scale()


def make_model(src_vocab, tgt_vocab, N, d_model, d_ff, h, dropout, pad):
    width = d_model // h
    return Models.Transformer(
        src_vocab, tgt_vocab, pad, pad, d_model, d_model, d_ff, N, h, width, width, dropout
    )
