"""The settings that decide the shape of a model (Table 3)."""

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args


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
    attention_dropout: float = 0.0  # on the attention weights; 0.1 in much code (section 6.3 names it)
    relu_dropout: float = 0.0  # inside the feed-forward networks; not in the paper, 0.1 in much code
    activation: Literal["relu", "gelu", "swish"] = "relu"  # inside the feed-forward networks
    norm_first: bool = False  # pre-norm; the paper normalises after the residual sum
    layer_norm_eps: float = 1e-5  # added to the variance, torch's default
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"  # section 3.5; Table 3 row E compares them
    max_len: int = 5000  # positions made ahead (sinusoidal, which then grow) or learned (a limit)
    tied_embeddings: Literal["all", "target", "none"] = "all"  # which share the output's matrix (section 3.4)
    parts: str = "paper"  # what it is put together from: the paper's parts, or a registered variant's

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
    def base(cls, src_vocab: int, tgt_vocab: int, **settings: Any) -> "TransformerConfig":
        """The base model of Table 3: 6 layers of width 512."""
        return cls(src_vocab, tgt_vocab, **settings)

    @classmethod
    def big(cls, src_vocab: int, tgt_vocab: int, **settings: Any) -> "TransformerConfig":
        """The big model of Table 3: 6 layers of width 1024, 16 heads, dropout 0.3."""
        settings = {"d_model": 1024, "d_ff": 4096, "h": 16, "dropout": 0.3, **settings}
        return cls(src_vocab, tgt_vocab, **settings)

    @classmethod
    def tiny(cls, src_vocab: int, tgt_vocab: int, **settings: Any) -> "TransformerConfig":
        """A model that two cores train on Multi30k in hours: 4 layers of width 128, 4 heads, dropout 0.3."""
        settings = {"N": 4, "d_model": 128, "d_ff": 256, "h": 4, "dropout": 0.3, **settings}
        return cls(src_vocab, tgt_vocab, **settings)
