"""A project of several files: annotated check examples/check/project/model.py

What this file defines or imports from its neighbors is checked, under the names that it has here.
"""

import torch
from layers import scores_of


def attention(query, key, value, mask=None):
    scores = scores_of(query, key)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)
    return weights @ value, weights
