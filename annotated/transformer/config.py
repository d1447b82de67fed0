"""The settings that decide the shape of a model (Table 3)."""

import inspect
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar, get_args

Dataclass = TypeVar("Dataclass")
START, END, PAD, UNK = range(4)  # the symbols with which every vocabulary of ours begins


def field_comments(settings: type) -> dict[str, str]:
    """Read the comment behind each field of a dataclass; none where only the byte code is installed."""
    try:
        source = inspect.getsource(sys.modules[settings.__module__])  # of a class it takes longer
    except OSError:
        return {}
    return dict(re.findall(r"^    (\w+): .*?  # (.+)$", source, flags=re.MULTILINE))


def explained(settings: type[Dataclass]) -> type[Dataclass]:
    """Add the comment behind each field of a dataclass to its docstring, for `help` and a notebook's `?`."""
    comments = field_comments(settings)
    lines = [f"        {field.name}: {comments.get(field.name, '')}." for field in fields(settings)]  # type: ignore[arg-type]
    settings.__doc__ = "\n".join([f"{settings.__doc__ or ''}\n    Args:", *lines])
    return settings


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


def check_fields(
    settings: Any, may_be_0: Sequence[str] = (), unbounded: Sequence[str] = (), **most: int
) -> None:
    """Raise ValueError for a field of a dataclass that is of another type, or out of range.

    Whole numbers begin at 1, those named in `may_be_0` at 0; `most` bounds those that it names. Other numbers
    are in [0, 1), unless `unbounded`. NumPy's numbers become Python's.
    """
    for field in fields(settings):
        name, kind = field.name, field.type
        value = getattr(settings, name)
        if hasattr(value, "item"):  # a number of NumPy's
            value = value.item()
            object.__setattr__(settings, name, value)
        if choices := get_args(kind):
            valid, wanted = value in choices, f"be one of {', '.join(choices)}"
        elif kind is int:
            low = 0 if name in may_be_0 else 1
            valid = type(value) is int and low <= value <= most.get(name, 2**31 - 1)
            wanted = f"be a whole number from {low} to {most.get(name, '2^31 - 1')}"
        elif kind is float:
            valid = type(value) in (int, float) and 0 <= value < (2**31 if name in unbounded else 1)
            wanted = f"be in [0, {'2^31' if name in unbounded else 1})"
        else:  # the text "no" would switch on what False switches off
            valid, wanted = type(value) is kind, f"be a {kind.__name__}"  # type: ignore[union-attr]
        if not valid:
            raise ValueError(f"{name} must {wanted}, not {value!r}")
