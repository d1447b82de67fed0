"""Embeddings, feed-forward network, the connection around each sub-layer, and the layers made of these."""

import math
from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from annotated.transformer.attention import Mask, clones, init_linear
from annotated.transformer.cache import LayerCache

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}


class PositionwiseFeedForward(nn.Module):
    """Two linear maps with a ReLU between, the same at every position (section 3.3, equation 2).

    `activation` is "relu" (the paper's), "gelu" or "swish"; `dropout` is applied to its output.
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


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network (Figure 1, left).

    `norm_first` and `norm` are those of each `SublayerConnection`, which copies the norm.
    """

    def __init__(
        self,
        size: int,
        self_attn: nn.Module,
        feed_forward: nn.Module,
        dropout: float,
        norm_first: bool = False,
        norm: nn.Module | None = None,
    ):
        super().__init__()
        self.self_attn = self_attn
        self.feed_forward = feed_forward
        self.sublayer = clones(SublayerConnection(size, dropout, norm_first, norm), 2)

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """(batch, src_len, d_model), mask (batch, 1, src_len) -> (batch, src_len, d_model)."""

        def self_attention(y: Tensor) -> Tensor:
            return self.self_attn(y, y, y, mask)

        x = self.sublayer[0](x, self_attention)
        return self.sublayer[1](x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Self-attention, attention to the memory, then a feed-forward network (Figure 1, right)."""

    def __init__(
        self,
        size: int,
        self_attn: nn.Module,
        src_attn: nn.Module,
        feed_forward: nn.Module,
        dropout: float,
        norm_first: bool = False,
        norm: nn.Module | None = None,
    ):
        super().__init__()
        self.self_attn = self_attn
        self.src_attn = src_attn
        self.feed_forward = feed_forward
        self.sublayer = clones(SublayerConnection(size, dropout, norm_first, norm), 3)

    def forward(
        self, x: Tensor, memory: Tensor, src_mask: Mask, tgt_mask: Mask, cache: LayerCache | None = None
    ) -> Tensor:
        """(batch, tgt_len, d_model), memory (batch, src_len, d_model) -> (batch, tgt_len, d_model)."""
        target_cache, memory_cache = (cache.target, cache.memory) if cache is not None else (None, None)

        def self_attention(y: Tensor) -> Tensor:
            return self.self_attn(y, y, y, tgt_mask, target_cache)

        def encoder_decoder_attention(y: Tensor) -> Tensor:
            return self.src_attn(y, memory, memory, src_mask, memory_cache)

        x = self.sublayer[0](x, self_attention)
        x = self.sublayer[1](x, encoder_decoder_attention)
        return self.sublayer[2](x, self.feed_forward)
