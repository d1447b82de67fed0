"""The settings that decide the shape of a model (Table 3)."""

from dataclasses import dataclass
from typing import Any, Literal

from annotated.settings import check_fields, explained

START, END, PAD, UNK = range(4)  # the symbols with which every vocabulary of ours begins


@explained
@dataclass(frozen=True)
class TransformerConfig:
    """The shape and behavior of a model. The defaults are the paper's base model, with nothing tied."""

    src_vocab: int  # source vocabulary size
    tgt_vocab: int  # target vocabulary size; with all embeddings tied, the same vocabulary
    N: int = 6  # layers in the encoder, and again in the decoder
    d_model: int = 512  # width of every state between layers
    d_ff: int = 2048  # width inside the feed-forward networks
    h: int = 8  # attention heads; each has d_k = d_v = d_model / h
    dropout: float = 0.1  # P_drop, of each sub-layer's output and of embeddings (section 5.4)
    attention_dropout: float = 0.0  # dropout of attention weights; 0.1 in much code (section 6.3)
    relu_dropout: float = 0.0  # dropout inside the feed-forward networks; 0.1 in much code
    activation: Literal["relu", "gelu", "swish"] = "relu"  # non-linearity of the feed-forward networks
    norm_first: bool = False  # pre-norm; the paper normalizes after the residual sum (post-norm)
    layer_norm_eps: float = 1e-5  # epsilon that layer norm adds to the variance
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"  # encoding of positions (section 3.5)
    max_len: int = 5000  # positions computed ahead (sinusoidal, which then grow) or learned (a limit)
    tied_embeddings: Literal["all", "target", "none"] = "none"  # embeddings that share the output matrix
    variant: str = "paper"  # the paper's own parts, or those of a registered variant

    def __post_init__(self) -> None:
        check_fields(self)
        if self.d_model % self.h:
            raise ValueError(f"d_model must be a multiple of h, but d_model={self.d_model} and h={self.h}")
        if self.tied_embeddings == "all" and self.src_vocab != self.tgt_vocab:
            two = f"src_vocab={self.src_vocab} and tgt_vocab={self.tgt_vocab}"
            raise ValueError(f"tied_embeddings='all' needs one vocabulary, not {two}; use 'target' or 'none'")

    @classmethod
    def base(cls, src_vocab: int, tgt_vocab: int, **settings: Any) -> "TransformerConfig":
        """The base model of Table 3, all embeddings tied: 6 layers of width 512."""
        return cls(src_vocab, tgt_vocab, **{"tied_embeddings": "all", **settings})

    @classmethod
    def big(cls, src_vocab: int, tgt_vocab: int, **settings: Any) -> "TransformerConfig":
        """The big model of Table 3: 6 layers of width 1024, 16 heads, dropout 0.3."""
        settings = {"d_model": 1024, "d_ff": 4096, "h": 16, "dropout": 0.3, **settings}
        return cls.base(src_vocab, tgt_vocab, **settings)

    @classmethod
    def tiny(cls, src_vocab: int, tgt_vocab: int, **settings: Any) -> "TransformerConfig":
        """A model that two cores train on Multi30k in hours: 4 layers of width 128, 4 heads, dropout 0.3."""
        settings = {"N": 4, "d_model": 128, "d_ff": 256, "h": 4, "dropout": 0.3, **settings}
        return cls.base(src_vocab, tgt_vocab, **settings)
