"""The parts around attention: feed-forward network, embeddings, and the connection around each sub-layer."""

import math
from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from annotated.transformer.attention import init_linear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}


class PositionwiseFeedForward(nn.Module):
    """Two linear maps with a ReLU between, the same at every position (section 3.3, equation 2).

    `activation` is "relu" (the paper's), "gelu" or "swish"; `dropout` acts on what it gives.
    """

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.1, activation: str = "relu"):
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)
        self.activation = ACTIVATIONS[activation]

    def reset_parameters(self) -> None:
        """Draw the matrices Xavier-uniformly and set the biases to 0."""
        init_linear(self.w_1)
        init_linear(self.w_2)

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> (..., d_ff) -> (..., d_model)."""
        return self.w_2(self.dropout(self.activation(self.w_1(x))))


class Embeddings(nn.Module):
    """A vector for each token, times sqrt(d_model) (section 3.4)."""

    def __init__(self, d_model: int, vocab: int):
        super().__init__()
        self.lut = nn.Embedding(vocab, d_model)
        self.d_model = d_model

    def reset_parameters(self) -> None:
        """Draw the vectors with deviation d_model^-1/2, so that those that `forward` returns have 1."""
        nn.init.normal_(self.lut.weight, std=1 / math.sqrt(self.d_model))

    def forward(self, tokens: Tensor) -> Tensor:
        """int64 (batch, len) -> (batch, len, d_model)."""
        return self.lut(tokens) * math.sqrt(self.d_model)


class SublayerConnection(nn.Module):
    """Surround a sub-layer with dropout, a residual connection and layer normalization.

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
