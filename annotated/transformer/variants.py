"""The parts of a model. A variant replaces some of them in a few lines:

    @variant("rms")
    class RMS(Parts):
        def norm(self):
            return nn.RMSNorm(self.config.d_model)

    make_model(100, 100, variant="rms")

The name is a setting of the model, `variant`, by which a saved model finds its variant again.
"""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from torch import nn

from annotated.transformer.attention import MultiHeadedAttention
from annotated.transformer.config import TransformerConfig
from annotated.transformer.layers import PositionwiseFeedForward
from annotated.transformer.positions import LearnedPositions, PositionalEncoding


class Parts:
    """Build the paper's parts as `config` says; a variant is a subclass that builds some differently.

    A variant's parts are built for each layer. The whole model then draws the weights of the paper's modules
    and of their subclasses by `reset_parameters`: override that where yours should begin otherwise. Other
    modules begin as you built them.
    """

    def __init__(self, config: TransformerConfig):
        self.config = config

    def attention(self) -> nn.Module:
        """Build a `MultiHeadedAttention` or its like, the self-attention of both stacks (section 3.2.3)."""
        return MultiHeadedAttention(self.config.h, self.config.d_model, self.config.attention_dropout)

    def cross_attention(self) -> nn.Module | None:
        """Build encoder-decoder attention; None for one of the same kind as the others."""
        return None

    def feed_forward(self) -> nn.Module:
        """Build what maps (..., d_model) to the same shape, position by position (section 3.3)."""
        c = self.config
        return PositionwiseFeedForward(c.d_model, c.d_ff, c.relu_dropout, c.activation)

    def norm(self) -> nn.Module:
        """Build the normalization of (..., d_model)."""
        return nn.LayerNorm(self.config.d_model, eps=self.config.layer_norm_eps)

    def positions(self) -> nn.Module:
        """Build what adds positions to embeddings, as `PositionalEncoding` does (section 3.5).

        It is called as `(x, start)`, x (batch, len, d_model): x[:, 0] has the position `start`, which is
        above 0 where a search goes on from its cache.
        """
        kind = PositionalEncoding if self.config.positions == "sinusoidal" else LearnedPositions
        return kind(self.config.d_model, self.config.dropout, self.config.max_len)


BUILDERS = [name for name in vars(Parts) if not name.startswith("_")]
VARIANTS: dict[str, type[Parts]] = {"paper": Parts}


def variant(name: str) -> Callable[[type[Parts]], type[Parts]]:
    """Register a subclass of `Parts` under a name that the setting `variant` then takes.

    Raises ValueError for one that overrides none of the methods by which `Parts` builds.
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f'a variant needs a name, as in @variant("mine"), not {name!r}')
    if name == "paper":
        raise ValueError('"paper" names the paper\'s own parts: give the variant another name')

    def register(parts: type[Parts]) -> type[Parts]:
        if not isinstance(parts, type) or not issubclass(parts, Parts):
            raise TypeError(f"a variant is a subclass of annotated.Parts, which {parts!r} is not")
        check_names(parts, Parts)
        if not replaced(parts):
            raise ValueError(f"{parts.__name__} replaces no part: override one of {', '.join(BUILDERS)}")
        VARIANTS[name] = parts
        return parts

    return register


def check_names(kind: type, base: type) -> None:
    """Raise ValueError for a method whose name is nearly one of the base's, for then it overrides none."""
    names = ["forward", *(name for name in dir(base) if not hasattr(nn.Module, name))]
    for method in [name for name in vars(kind) if not (hasattr(base, name) or name.startswith("_"))]:
        if meant := get_close_matches(method, names, n=1, cutoff=0.8):
            raise ValueError(f"{kind.__name__}.{method} overrides nothing: is {meant[0]} meant?")


def replaced(parts: type[Parts]) -> list[str]:
    """List the parts that a variant builds in a way of its own."""
    return [name for name in BUILDERS if getattr(parts, name) is not getattr(Parts, name)]


def build(parts: Parts, name: str) -> Any:
    """Build the part of this name. Raises TypeError if it is no module, and as `check_names` does."""
    part = getattr(parts, name)()
    for base in type(part).__mro__[1:]:
        if base.__module__.startswith("annotated."):
            check_names(type(part), base)
    if not isinstance(part, nn.Module) and not (name == "cross_attention" and part is None):
        raise TypeError(f"{type(parts).__name__}.{name} must return a torch.nn.Module, not {part!r}")
    return part


def find_parts(config: TransformerConfig) -> Parts:
    """Get the parts that the settings name."""
    if config.variant not in VARIANTS:
        remedy = "import the file that registers them (on the command line: --variants FILE.py)"
        raise ValueError(f"there is no variant {config.variant!r} among {', '.join(VARIANTS)}; {remedy}")
    return VARIANTS[config.variant](config)
