"""A language model whose parts read their sizes from one object, so that nothing but functions can be called."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Sizes:
    width: int = 32
    heads: int = 4
    context: int = 64
    words: int = 100
    with_bias: bool = True


class LayerNorm(nn.Module):
    """One whose bias can be left out, which must be said."""

    def __init__(self, features_of_x, with_bias):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(features_of_x))
        self.shift = nn.Parameter(torch.zeros(features_of_x)) if with_bias else None

    def forward(self, vectors):
        return F.layer_norm(vectors, self.gain.shape, self.gain, self.shift)


class MultiHeadAttention(nn.Module):
    """Causal self-attention: it is given neither keys nor a mask."""

    def __init__(self, sizes):
        super().__init__()
        self.heads = sizes.heads
        self.all_three = nn.Linear(sizes.width, 3 * sizes.width)
        self.last = nn.Linear(sizes.width, sizes.width)

    def forward(self, x):
        q, k, v = (
            y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.all_three(x).chunk(3, dim=-1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.last(y.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.wide = nn.Linear(sizes.width, 4 * sizes.width)
        self.narrow = nn.Linear(4 * sizes.width, sizes.width)

    def forward(self, x):
        return self.narrow(F.gelu(self.wide(x), approximate="tanh"))


class Transformer(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.words = nn.Embedding(sizes.words, sizes.width)
        self.places = nn.Embedding(sizes.context, sizes.width)
        self.attention, self.mlp = MultiHeadAttention(sizes), MLP(sizes)
        self.norms = nn.ModuleList(LayerNorm(sizes.width, sizes.with_bias) for _ in range(3))

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.size(1)))
        x = x + self.attention(self.norms[0](x))
        x = x + self.mlp(self.norms[1](x))
        return self.norms[2](x) @ self.words.weight.T
