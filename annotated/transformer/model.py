"""The Transformer (section 3): encoder, decoder, generator, and the whole model."""

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from inspect import signature
from typing import Any, cast

from torch import Tensor, nn

from annotated.transformer.attention import Mask, MultiHeadedAttention, clones, init_linear
from annotated.transformer.cache import DecoderCache
from annotated.transformer.config import TransformerConfig
from annotated.transformer.layers import DecoderLayer, Embeddings, EncoderLayer, PositionwiseFeedForward
from annotated.transformer.positions import LearnedPositions
from annotated.transformer.variants import BUILDERS, build, find_parts


class Stack(nn.Module):
    """N layers, and the final norm that pre-norm layers leave undone.

    `layer` is one layer, of which N copies (6) are made, or a list of all N layers.
    """

    def __init__(self, layer: nn.Module | Sequence[nn.Module], N: int | None = None):
        super().__init__()
        if isinstance(layer, nn.Module) and not isinstance(layer, nn.ModuleList):
            self.layers = clones(layer, 6 if N is None else N)
        else:
            self.layers = nn.ModuleList(layer)
        if N not in (None, len(self.layers)):
            raise ValueError(f"a list of {len(self.layers)} layers makes a stack of as many, not of N={N}")
        first: Any = next(iter(self.layers), None)
        if not hasattr(first, "sublayer"):
            raise ValueError("a stack needs layers like EncoderLayer, whose `sublayer` says where norms are")
        connection = first.sublayer[0]
        self.norm: nn.Module = deepcopy(connection.norm) if connection.norm_first else nn.Identity()


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
        self, x: Tensor, memory: Tensor, src_mask: Mask, tgt_mask: Mask, cache: DecoderCache | None = None
    ) -> Tensor:
        """(batch, tgt_len, d_model), memory (batch, src_len, d_model) -> (batch, tgt_len, d_model)."""
        if cache is not None:
            cache.check(memory)
        before = 0 if cache is None else len(cache)
        for i, layer in enumerate(self.layers):
            x = layer(x, memory, src_mask, tgt_mask, None if cache is None else cache.layers[i])
        if cache is not None and len(cache) != before + x.size(1):
            raise ValueError("the decoder's self-attention has added nothing to its cache: use cache.extend")
        return self.norm(x)


class Generator(nn.Module):
    """From the decoder's states to log-probabilities of the next token: linear, softmax (section 3.4)."""

    def __init__(self, d_model: int, vocab: int):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab)

    def reset_parameters(self) -> None:
        """Draw the matrix Xavier-uniformly and set the bias to 0."""
        init_linear(self.proj)

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> (..., vocab); the exponentials of a row sum to 1."""
        return self.proj(x).log_softmax(dim=-1)


class EmbeddedPositions(nn.Sequential):
    """Embed tokens, then add their positions, which in a search do not begin with the first."""

    def __init__(self, embed: nn.Module, positions: nn.Module):
        try:
            signature(positions.forward).bind(None, 0)
        except TypeError:
            remedy = f"let {type(positions).__name__} take start, the position of x[:, 0]"
            raise ValueError(f"positions are called as (x, start): {remedy}") from None
        super().__init__(embed, positions)

    def forward(self, tokens: Tensor, start: int = 0) -> Tensor:
        """(batch, len), whose first position is number `start` -> (batch, len, d_model)."""
        embed, positions = self
        return positions(embed(tokens), start)


class EncoderDecoder(nn.Module):
    """The whole model. It gives the decoder's states; `generator` turns those into log-probabilities.

    Build it with `make_model`, with `EncoderDecoder.from_config`, or of parts; there `src_embed` and
    `tgt_embed` are each `nn.Sequential(embeddings, positions)`.
    """

    config: TransformerConfig  # where `from_config` built it

    def __init__(
        self,
        encoder: Encoder,
        decoder: Decoder,
        src_embed: nn.Sequential,
        tgt_embed: nn.Sequential,
        generator: Generator,
    ):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.src_embed, self.tgt_embed = (
            EmbeddedPositions(*embed) if type(embed) is nn.Sequential else embed
            for embed in (src_embed, tgt_embed)
        )
        self.generator = generator

    @classmethod
    def from_config(cls, config: TransformerConfig) -> "EncoderDecoder":
        """Build a freshly initialized model; its settings stay at hand as `.config`."""
        if not isinstance(config, TransformerConfig):
            raise TypeError(f"config is made by TransformerConfig(...), not a {type(config).__name__}")
        parts = find_parts(config)
        builders = (partial(build, parts, name) for name in BUILDERS)
        attention, cross_attention, feed_forward, norm, positions = builders
        if config.variant == "paper":  # copying is faster than drawing weights, which are drawn again below
            attention, feed_forward = partial(deepcopy, attention()), partial(deepcopy, feed_forward())
        around: Any = {"size": config.d_model, "dropout": config.dropout, "norm_first": config.norm_first}
        encoder_layers = [
            EncoderLayer(self_attn=attention(), feed_forward=feed_forward(), norm=norm(), **around)
            for _ in range(config.N)
        ]
        decoder_layers = [
            DecoderLayer(
                self_attn=attention(),
                src_attn=cross_attention() or attention(),
                feed_forward=feed_forward(),
                norm=norm(),
                **around,
            )
            for _ in range(config.N)
        ]
        model = cls(
            Encoder(encoder_layers),
            Decoder(decoder_layers),
            nn.Sequential(Embeddings(config.d_model, config.src_vocab), positions()),
            nn.Sequential(Embeddings(config.d_model, config.tgt_vocab), positions()),
            Generator(config.d_model, config.tgt_vocab),
        )
        model.config = config
        model.tie_embeddings()
        model.reset_parameters()
        return model

    @property
    def max_positions(self) -> int | None:
        """The number of positions that were learned, which limits source and target; None for sinusoids."""
        learned = (module for module in self.modules() if isinstance(module, LearnedPositions))
        return min((module.lut.num_embeddings for module in learned), default=None)

    def tie_embeddings(self) -> None:
        """Share the output projection's matrix with the embeddings that the settings name (section 3.4)."""
        src, tgt = (cast(Embeddings, embed[0]).lut for embed in (self.src_embed, self.tgt_embed))
        if self.config.tied_embeddings != "none":
            self.generator.proj.weight = tgt.weight
        if self.config.tied_embeddings == "all":
            src.weight = tgt.weight

    def reset_parameters(self) -> None:
        """Draw the weights of the paper's modules, each by its own `reset_parameters`.

        Modules of another kind, which a variant brings, keep what their constructors gave them.
        """
        linear_maps = MultiHeadedAttention, PositionwiseFeedForward, Generator
        # Embeddings come last: the output projection may share their matrix.
        for classes in (linear_maps, (Embeddings, LearnedPositions)):
            for module in self.modules():
                if isinstance(module, classes):
                    module.reset_parameters()

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Mask, tgt_mask: Mask) -> Tensor:
        """Tokens (batch, src_len) and (batch, tgt_len), their masks -> states (batch, tgt_len, d_model)."""
        return self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask)

    def encode(self, src: Tensor, src_mask: Mask) -> Tensor:
        """Tokens (batch, src_len), mask (batch, 1, src_len) -> the memory (batch, src_len, d_model)."""
        return self.encoder(self.src_embed(src), src_mask)

    def decode(
        self, memory: Tensor, src_mask: Mask, tgt: Tensor, tgt_mask: Mask, cache: DecoderCache | None = None
    ) -> Tensor:
        """Memory (batch, src_len, d_model) and tokens (batch, tgt_len) -> states (batch, tgt_len, d_model).

        With a `cache`, `tgt` holds only the tokens that the cache has not seen, and so do the states.
        """
        before = 0 if cache is None else len(cache)
        return self.decoder(self.tgt_embed(tgt, before), memory, src_mask, tgt_mask, cache)


def make_model(
    src_vocab: int,
    tgt_vocab: int,
    N: int = 6,
    d_model: int = 512,
    d_ff: int = 2048,
    h: int = 8,
    dropout: float = 0.1,
    **settings: Any,
) -> EncoderDecoder:
    """Build a model with fresh weights, by default the paper's base model with nothing tied (Table 3).

    Args:
        src_vocab, tgt_vocab: sizes of the vocabularies.
        N, d_model, d_ff, h, dropout: layers in each stack, widths, heads and P_drop.
        settings: further fields of `TransformerConfig`, such as `norm_first=True`.

    Raises ValueError as `TransformerConfig` does.
    """
    config = TransformerConfig(src_vocab, tgt_vocab, N, d_model, d_ff, h, dropout, **settings)
    return EncoderDecoder.from_config(config)
