"""Parameters in a plain matrix each, a loop over the heads, everything written out; no nn.Linear at all."""

import torch
from torch import nn


def attention(Q, K, V, M=None):
    S = torch.einsum("...td,...sd->...ts", Q, K) * Q.shape[-1] ** -0.5
    if M is not None:
        S = torch.where(M, S, torch.full_like(S, -1e30))
    E = (S - S.amax(dim=-1, keepdim=True)).exp()
    if M is not None:
        E = E * M
    return torch.einsum("...ts,...sd->...td", E / (E.sum(-1, keepdim=True) + 1e-20), V)


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        d = d_model // n_heads
        self.W = nn.ParameterList(
            nn.Parameter(torch.randn(3, d_model, d) * d_model**-0.5) for _ in range(n_heads)
        )
        self.O = nn.Parameter(torch.randn(d_model, d_model) * d_model**-0.5)

    def forward(self, Q, K, V, mask=None):
        outs = [attention(Q @ q, K @ k, V @ v, mask) for q, k, v in self.W]
        return torch.cat(outs, dim=-1) @ self.O


class PositionWiseFeedForward(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.A, self.B = (
            nn.Parameter(torch.randn(d_model, d_ff) / 8),
            nn.Parameter(torch.randn(d_ff, d_model) / 8),
        )
        self.a, self.b = nn.Parameter(torch.zeros(d_ff)), nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        return torch.clamp(x @ self.A + self.a, min=0) @ self.B + self.b


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=512):
        super().__init__()
        table = [[pos / 10000 ** (2 * (j // 2) / d_model) for j in range(d_model)] for pos in range(max_len)]
        table = torch.tensor(table)
        even = torch.arange(d_model) % 2 == 0
        self.register_buffer("table", torch.where(even, table.sin(), table.cos())[None])

    def forward(self, x):
        return x + self.table[:, : x.shape[1]]


class LayerNormalization(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.g, self.b, self.eps = (
            nn.Parameter(torch.ones(hidden_size)),
            nn.Parameter(torch.zeros(hidden_size)),
            eps,
        )

    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        return x * (x.pow(2).mean(-1, keepdim=True) + self.eps).rsqrt() * self.g + self.b


class Generator(nn.Module):
    def __init__(self, hidden_size, vocab_size):
        super().__init__()
        self.W = nn.Parameter(torch.randn(hidden_size, vocab_size) * hidden_size**-0.5)

    def forward(self, x):
        return torch.log_softmax(x @ self.W, -1)


def label_smoothing(log_probs, target, epsilon):
    V = log_probs.shape[-1]
    onehot = nn.functional.one_hot(target, V)
    q = onehot * (1 - epsilon) + (1 - onehot) * epsilon / (V - 1)
    return -(q * log_probs).sum(-1).mean()


def lr_schedule(t, d, warmup_steps):
    return d**-0.5 * (t * warmup_steps**-1.5 if t < warmup_steps else t**-0.5)


def look_ahead_mask(n):
    return torch.full((n, n), float("-inf")).triu(1)
