"""Positional encodings (section 3.5): sinusoids, and learned positions."""

import math

import torch
from torch import Tensor, nn


def sinusoids(length: int, d_model: int) -> Tensor:
    """Compute the positional encodings of section 3.5, float32 (length, d_model).

    PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos of the same angle. The angles are
    taken in float64: at position 5,000 float32 would already be off in the fourth decimal.
    """
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)  # (length, 1)
    even = torch.arange(0, d_model, 2, dtype=torch.float64)  # (ceil(d_model / 2),)
    angles = position * 10000.0 ** (-even / d_model)  # (length, ceil(d_model / 2))
    waves = torch.stack([angles.sin(), angles.cos()], dim=-1)  # (length, ceil(d_model / 2), 2)
    return waves.flatten(1)[:, :d_model].float()


class PositionalEncoding(nn.Module):
    """Add sine and cosine waves of the position, then dropout (sections 3.5 and 5.4).

    `max_len` positions are computed ahead; further ones when a sentence needs them.
    """

    def __init__(self, d_model: int, dropout: float, max_len: int = 5000):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.pe: Tensor
        self.register_buffer("pe", sinusoids(max_len, d_model), persistent=False)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """(batch, len, d_model), whose first position is number `start` -> the same shape."""
        pe, end = self.pe, start + x.size(-2)
        if end > len(pe):
            pe = self.pe = sinusoids(max(end, 2 * len(pe)), x.size(-1)).to(pe)
        return self.dropout(x + pe[start:end])


class LearnedPositions(nn.Module):
    """Add a trained vector for each position, then dropout: the alternative of section 3.5, Table 3 row E."""

    def __init__(self, d_model: int, dropout: float, max_len: int = 5000):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.lut = nn.Embedding(max_len, d_model)

    def reset_parameters(self) -> None:
        """Draw the vectors with deviation d_model^-1/2, as those of the tokens are."""
        nn.init.normal_(self.lut.weight, std=1 / math.sqrt(self.lut.embedding_dim))

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """(batch, len, d_model), whose first position is number `start` -> the same shape."""
        end = start + x.size(-2)
        if end > self.lut.num_embeddings:
            raise ValueError(f"{end} positions asked for, but only max_len={self.lut.num_embeddings} learned")
        return self.dropout(x + self.lut.weight[start:end])
