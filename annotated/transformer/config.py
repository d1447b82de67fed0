"""The settings that decide the shape of a model (Table 3)."""

import dataclasses
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from annotated.files import fits


def setting(default: Any, text: str, **flag: Any) -> Any:
    """Declare a field of a settings class by its default and what it is, in the words of `--help`.

    `flag` says what else the command line has to know: arguments of `argparse`'s `add_argument`.
    """
    return dataclasses.field(default=default, metadata={"help": text, **flag})


KINDS: dict[Any, str] = {int: "a whole number", float: "a number", bool: "True or False", str: "text"}


def check_types(settings: Any) -> None:
    """Raise ValueError for a field of a settings class that is not of its type, or not one of its choices.

    "no" would switch on what False switches off, and what holds 3.0 updates could not be resumed.
    """
    for field in fields(settings):
        value, choices = getattr(settings, field.name), get_args(field.type)
        if not fits(value, field.type):
            wanted = f"one of {', '.join(choices)}" if choices else KINDS[field.type]
            raise ValueError(f"{field.name} must be {wanted}, not {value!r}")


@dataclass(frozen=True)
class TransformerConfig:
    """Everything that decides the shape and behaviour of a model. The defaults are the paper's base model.

    Raises ValueError for a setting that cannot be, and for settings that contradict each other, naming them.
    """

    src_vocab: int  # source vocabulary size
    tgt_vocab: int  # target vocabulary size; with all embeddings tied, the same vocabulary
    N: int = setting(6, "layers in the encoder, and again in the decoder")
    d_model: int = setting(512, "width of every state between layers")
    d_ff: int = setting(2048, "width inside the feed-forward networks")
    h: int = setting(8, "attention heads; each has d_k = d_v = d_model / h")
    dropout: float = setting(0.1, "P_drop, of each sub-layer's output and of embeddings (section 5.4)")
    attention_dropout: float = setting(0.0, "dropout of attention weights; 0.1 in much code (section 6.3)")
    relu_dropout: float = setting(0.0, "dropout inside the feed-forward networks; 0.1 in much code")
    activation: Literal["relu", "gelu", "swish"] = setting(
        "relu", "what the feed-forward networks apply inside"
    )
    norm_first: bool = setting(False, "pre-norm; the paper normalises after the residual sum")
    layer_norm_eps: float = setting(1e-5, "what layer norm adds to the variance")
    positions: Literal["sinusoidal", "learned"] = setting("sinusoidal", "encoding of positions (section 3.5)")
    max_len: int = setting(5000, "positions made ahead (sinusoidal, which then grow) or learned (a limit)")
    tied_embeddings: Literal["all", "target", "none"] = setting(
        "all", "embeddings that share the output's matrix (section 3.4)"
    )
    parts: str = setting("paper", "parts of the model: the paper's, or those of a registered variant")

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is int and not (type(value) is int and 1 <= value < 2**31):
                raise ValueError(f"{field.name} must be a whole number from 1 to 2^31 - 1, not {value!r}")
            if field.type is float and not (isinstance(value, int | float) and 0 <= value < 1):
                raise ValueError(f"{field.name} must be in [0, 1), not {value!r}")
        check_types(self)
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
