"""The parts around attention: feed-forward network, embeddings, positions, and what wraps each sub-layer."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}


class PositionwiseFeedForward(nn.Module):
    """Two linear maps with a ReLU between, the same at every position (section 3.3, equation 2).

    `activation` is "relu" (the paper's), "gelu" or "swish"; `dropout` acts on what it gives.
    Takes and returns (..., d_model). Raises ValueError for an unknown activation.
    """

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.1, activation: str = "relu"):
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, not {activation!r}")
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> (..., d_ff) -> (..., d_model)."""
        return self.w_2(self.dropout(self.activation(self.w_1(x))))


class Embeddings(nn.Module):
    """A vector for each token, times sqrt(d_model) (section 3.4).

    Takes int64 tokens (batch, len), returns (batch, len, d_model).
    """

    def __init__(self, d_model: int, vocab: int):
        super().__init__()
        self.lut = nn.Embedding(vocab, d_model)
        self.d_model = d_model

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, len) -> (batch, len, d_model)."""
        return self.lut(tokens) * math.sqrt(self.d_model)


def sinusoids(length: int, d_model: int) -> Tensor:
    """The positional encodings of section 3.5, float32 (length, d_model).

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

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """(batch, len, d_model), whose first position is number `start` -> the same shape.

        Raises ValueError past the last position that was trained.
        """
        end = start + x.size(-2)
        if end > self.lut.num_embeddings:
            raise ValueError(f"{end} positions asked for, but only max_len={self.lut.num_embeddings} learned")
        return self.dropout(x + self.lut.weight[start:end])


class SublayerConnection(nn.Module):
    """What stands around each sub-layer: dropout, a residual connection and layer normalisation.

    Post-norm, the paper's, is LayerNorm(x + Dropout(Sublayer(x))) (sections 3.1 and 5.4);
    with `norm_first` it is pre-norm, x + Dropout(Sublayer(LayerNorm(x))).
    """

    def __init__(self, size: int, dropout: float, norm_first: bool = False, norm: nn.Module | None = None):
        super().__init__()
        self.norm = nn.LayerNorm(size) if norm is None else norm
        self.dropout = nn.Dropout(dropout)
        self.norm_first = norm_first

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(batch, len, size), and a function from that shape to that shape -> the same shape."""
        if self.norm_first:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))
