"""The Transformer (section 3): encoder, decoder, generator, and the settings that decide their shape."""

import math
from copy import deepcopy
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, get_args

from torch import Tensor, nn

from annotated.transformer.attention import MultiHeadedAttention, clones
from annotated.transformer.layers import (
    Embeddings,
    LearnedPositions,
    PositionalEncoding,
    PositionwiseFeedForward,
    SublayerConnection,
)
from annotated.transformer.masks import Mask

if TYPE_CHECKING:
    from annotated.translation.cache import DecoderCache, LayerCache


@dataclass(frozen=True)
class TransformerConfig:
    """Everything that decides the shape and behaviour of a model. The defaults are the paper's base model.

    Raises ValueError for a setting that cannot be, and for settings that contradict each other, naming them.
    """

    src_vocab: int  # source vocabulary size
    tgt_vocab: int  # target vocabulary size; with all embeddings tied, the same vocabulary
    N: int = 6  # layers in the encoder, and again in the decoder
    d_model: int = 512  # width of every state between layers
    d_ff: int = 2048  # width inside the feed-forward networks
    h: int = 8  # attention heads; each has d_k = d_v = d_model / h
    dropout: float = 0.1  # P_drop, on every sub-layer's output and on embeddings plus positions (section 5.4)
    attention_dropout: float = 0.0  # on the attention weights; not in the paper, 0.1 in much code
    relu_dropout: float = 0.0  # inside the feed-forward networks; not in the paper, 0.1 in much code
    activation: Literal["relu", "gelu", "swish"] = "relu"  # inside the feed-forward networks
    norm_first: bool = False  # pre-norm; the paper normalises after the residual sum
    layer_norm_eps: float = 1e-5  # added to the variance, torch's default
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"  # section 3.5; Table 3 row E compares them
    max_len: int = 5000  # positions made ahead (sinusoidal, which then grow) or learned (a limit)
    tied_embeddings: Literal["all", "target", "none"] = "all"  # which share the output's matrix (section 3.4)

    def __post_init__(self) -> None:
        for field in fields(self):
            value, choices = getattr(self, field.name), get_args(field.type)
            if field.type is int and not (type(value) is int and 1 <= value < 2**31):
                raise ValueError(f"{field.name} must be a whole number from 1 to 2^31 - 1, not {value!r}")
            if field.type is float and not (isinstance(value, int | float) and 0 <= value < 1):
                raise ValueError(f"{field.name} must be in [0, 1), not {value!r}")
            if choices and value not in choices:
                raise ValueError(f"{field.name} must be one of {', '.join(choices)}, not {value!r}")
        if self.d_model % self.h:
            raise ValueError(f"d_model must be a multiple of h, but d_model={self.d_model} and h={self.h}")
        if self.tied_embeddings == "all" and self.src_vocab != self.tgt_vocab:
            two = f"src_vocab={self.src_vocab} and tgt_vocab={self.tgt_vocab}"
            raise ValueError(f"tied_embeddings='all' needs one vocabulary, not {two}; use 'target' or 'none'")

    @classmethod
    def base(cls, src_vocab: int, tgt_vocab: int, **settings) -> "TransformerConfig":
        """The base model of Table 3: 6 layers of width 512."""
        return cls(src_vocab, tgt_vocab, **settings)

    @classmethod
    def big(cls, src_vocab: int, tgt_vocab: int, **settings) -> "TransformerConfig":
        """The big model of Table 3: 6 layers of width 1024, 16 heads, dropout 0.3."""
        settings = {"d_model": 1024, "d_ff": 4096, "h": 16, "dropout": 0.3, **settings}
        return cls(src_vocab, tgt_vocab, **settings)

    @classmethod
    def tiny(cls, src_vocab: int, tgt_vocab: int, **settings) -> "TransformerConfig":
        """A model that two cores train on Multi30k in hours: 4 layers of width 128, 4 heads, dropout 0.3."""
        settings = {"N": 4, "d_model": 128, "d_ff": 256, "h": 4, "dropout": 0.3, **settings}
        return cls(src_vocab, tgt_vocab, **settings)


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network, each in a `SublayerConnection` (Figure 1, left).

    `norm` holds the further settings of `SublayerConnection`: norm_first, layer_norm_eps.
    """

    def __init__(
        self, size: int, self_attn: MultiHeadedAttention, feed_forward: nn.Module, dropout: float, **norm
    ):
        super().__init__()
        self.self_attn = self_attn
        self.feed_forward = feed_forward
        self.sublayer = clones(SublayerConnection(size, dropout, **norm), 2)

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """(batch, src_len, d_model), mask (batch, 1, src_len) -> (batch, src_len, d_model)."""

        def self_attention(y: Tensor) -> Tensor:
            return self.self_attn(y, y, y, mask)

        x = self.sublayer[0](x, self_attention)
        return self.sublayer[1](x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Self-attention, attention to the memory, then a feed-forward network (Figure 1, right).

    `norm` holds the further settings of `SublayerConnection`: norm_first, layer_norm_eps.
    """

    def __init__(
        self,
        size: int,
        self_attn: MultiHeadedAttention,
        src_attn: MultiHeadedAttention,
        feed_forward: nn.Module,
        dropout: float,
        **norm,
    ):
        super().__init__()
        self.self_attn = self_attn
        self.src_attn = src_attn
        self.feed_forward = feed_forward
        self.sublayer = clones(SublayerConnection(size, dropout, **norm), 3)

    def forward(
        self, x: Tensor, memory: Tensor, src_mask: Mask, tgt_mask: Mask, cache: "LayerCache | None" = None
    ) -> Tensor:
        """(batch, tgt_len, d_model), memory (batch, src_len, d_model) -> (batch, tgt_len, d_model)."""
        known, projected = (cache.target, cache.memory) if cache is not None else (None, None)

        def self_attention(y: Tensor) -> Tensor:
            return self.self_attn(y, y, y, tgt_mask, known)

        def encoder_decoder_attention(y: Tensor) -> Tensor:
            return self.src_attn(y, memory, memory, src_mask, projected)

        x = self.sublayer[0](x, self_attention)
        x = self.sublayer[1](x, encoder_decoder_attention)
        return self.sublayer[2](x, self.feed_forward)


class Stack(nn.Module):
    """N layers, equal at birth, and a final norm if they are pre-norm.

    Pre-norm leaves its last sum unnormalised; post-norm has just normalised it and must not do so again.
    """

    def __init__(self, layer: EncoderLayer | DecoderLayer, N: int):
        super().__init__()
        self.layers = clones(layer, N)
        connection = layer.sublayer[0]
        self.norm = deepcopy(connection.norm) if connection.norm_first else nn.Identity()


class Encoder(Stack):
    """N encoder layers (section 3.1)."""

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """(batch, src_len, d_model), mask (batch, 1, src_len) -> the memory (batch, src_len, d_model)."""
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class Decoder(Stack):
    """N decoder layers (section 3.1)."""

    def forward(
        self, x: Tensor, memory: Tensor, src_mask: Mask, tgt_mask: Mask, cache: "DecoderCache | None" = None
    ) -> Tensor:
        """(batch, tgt_len, d_model), memory (batch, src_len, d_model) -> (batch, tgt_len, d_model)."""
        for i, layer in enumerate(self.layers):
            x = layer(x, memory, src_mask, tgt_mask, None if cache is None else cache.layers[i])
        return self.norm(x)


class Generator(nn.Module):
    """From the decoder's states to log-probabilities of the next token: linear, softmax (section 3.4)."""

    def __init__(self, d_model: int, vocab: int):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab)

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> (..., vocab); the exponentials of a row sum to 1."""
        return self.proj(x).log_softmax(dim=-1)


class EmbeddedPositions(nn.Sequential):
    """Tokens to vectors, then their positions added: what enters either stack."""

    def forward(self, tokens: Tensor, start: int = 0) -> Tensor:
        """(batch, len), whose first position is number `start` -> (batch, len, d_model)."""
        return self[1](self[0](tokens), start)


class EncoderDecoder(nn.Module):
    """The whole model. It gives the decoder's states; `generator` turns those into log-probabilities.

    Build it with `make_model`, or with `EncoderDecoder.from_config`.
    """

    def __init__(
        self,
        encoder: Encoder,
        decoder: Decoder,
        src_embed: nn.Module,
        tgt_embed: nn.Module,
        generator: Generator,
    ):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.src_embed = src_embed
        self.tgt_embed = tgt_embed
        self.generator = generator

    @classmethod
    def from_config(cls, config: TransformerConfig) -> "EncoderDecoder":
        """Build a freshly initialised model; its settings stay at hand as `.config`."""
        c = config
        attn = MultiHeadedAttention(c.h, c.d_model, c.attention_dropout)
        ff = PositionwiseFeedForward(c.d_model, c.d_ff, c.relu_dropout, c.activation)
        norm = {"norm_first": c.norm_first, "layer_norm_eps": c.layer_norm_eps}
        positions = PositionalEncoding if c.positions == "sinusoidal" else LearnedPositions
        model = cls(
            Encoder(EncoderLayer(c.d_model, attn, ff, c.dropout, **norm), c.N),
            # The layer's two attentions start as two modules: `clones` would keep one shared by both shared.
            Decoder(DecoderLayer(c.d_model, *clones(attn, 2), ff, c.dropout, **norm), c.N),
            EmbeddedPositions(Embeddings(c.d_model, c.src_vocab), positions(c.d_model, c.dropout, c.max_len)),
            EmbeddedPositions(Embeddings(c.d_model, c.tgt_vocab), positions(c.d_model, c.dropout, c.max_len)),
            Generator(c.d_model, c.tgt_vocab),
        )
        model.config = c
        model.tie_embeddings()
        model.reset_parameters()
        return model

    @property
    def max_positions(self) -> int | None:
        """How many positions a source may have, and a target as it is read; None where any number will do."""
        learned = (module for module in self.modules() if isinstance(module, LearnedPositions))
        return min((module.lut.num_embeddings for module in learned), default=None)

    def tie_embeddings(self) -> None:
        """Let the embeddings named by the settings be one matrix with the output projection (section 3.4)."""
        if self.config.tied_embeddings != "none":
            self.generator.proj.weight = self.tgt_embed[0].lut.weight
        if self.config.tied_embeddings == "all":
            self.src_embed[0].lut.weight = self.tgt_embed[0].lut.weight

    def reset_parameters(self) -> None:
        """Xavier-uniform matrices, zero biases; embeddings normal with deviation d_model^-1/2.

        So a token's vector times sqrt(d_model) has entries of variance 1, beside the waves' 1/2. W^Q, W^K and
        W^V count as one matrix (3 d_model, d_model), as in `torch.nn.MultiheadAttention`, which makes their
        entries smaller by sqrt(2): with larger ones, a post-norm encoder trained at a high rate mixes its
        positions until they are all alike, and the decoder cannot tell them apart.
        """
        heads = [module for module in self.modules() if isinstance(module, MultiHeadedAttention)]
        packed = {linear for module in heads for linear in module.linears[:3]}
        # Embeddings come last: the output projection may share their matrix.
        for module in sorted(self.modules(), key=lambda m: isinstance(m, nn.Embedding)):
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight, gain=2**-0.5 if module in packed else 1)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=1 / math.sqrt(module.embedding_dim))

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Mask, tgt_mask: Mask) -> Tensor:
        """Tokens (batch, src_len) and (batch, tgt_len), their masks -> states (batch, tgt_len, d_model)."""
        return self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask)

    def encode(self, src: Tensor, src_mask: Mask) -> Tensor:
        """Tokens (batch, src_len), mask (batch, 1, src_len) -> the memory (batch, src_len, d_model)."""
        return self.encoder(self.src_embed(src), src_mask)

    def decode(
        self, memory: Tensor, src_mask: Mask, tgt: Tensor, tgt_mask: Mask, cache: "DecoderCache | None" = None
    ) -> Tensor:
        """Memory (batch, src_len, d_model) and tokens (batch, tgt_len) -> states (batch, tgt_len, d_model).

        With a `cache`, `tgt` holds only the tokens that the cache has not seen, and so do the states.
        """
        x = self.tgt_embed(tgt, len(cache) if cache is not None else 0)
        return self.decoder(x, memory, src_mask, tgt_mask, cache)


def make_model(
    src_vocab: int,
    tgt_vocab: int,
    N: int = 6,
    d_model: int = 512,
    d_ff: int = 2048,
    h: int = 8,
    dropout: float = 0.1,
    **settings,
) -> EncoderDecoder:
    """Build a model with separate vocabularies and embeddings, unless `settings` say otherwise.

    `settings` are the further fields of `TransformerConfig`, such as `norm_first=True` or
    `tied_embeddings="all"`. Raises ValueError for settings that contradict each other.
    """
    settings = {"tied_embeddings": "none", **settings}
    config = TransformerConfig(src_vocab, tgt_vocab, N, d_model, d_ff, h, dropout, **settings)
    return EncoderDecoder.from_config(config)
