"""Find the parts of a Transformer in anyone's code, and call them whatever their names and signatures are."""

import inspect
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

NAMES = tomllib.loads(Path(__file__).with_name("names.toml").read_text(encoding="utf-8"))
PARTS: dict[str, list[str]] = {part: names.split() for part, names in NAMES["parts"].items()}


class Missing(Exception):  # noqa: N818 (it is no error)
    """A law does not apply: what it needs is not there."""


def plain(name: str) -> str:
    return name.replace("_", "").lower()


ARGUMENTS = {key: {plain(name) for name in names.split()} for key, names in NAMES["arguments"].items()}


def call(function: Callable[..., Any], /, **values: Any) -> Any:
    """Call with those of `values` that the function takes, found by the names of its parameters.

    Where it has a required parameter of an unknown name, the values are given in their order.
    """
    try:  # a module's own call says nothing about its arguments
        spoken = function.forward if isinstance(function, nn.Module) else function
        parameters = [*inspect.signature(spoken).parameters.values()]
    except (TypeError, ValueError):  # of C code
        return function(*values.values())
    keys = {
        p.name: [key for key in values if plain(p.name) in ARGUMENTS.get(key, {plain(key)})]
        for p in parameters
    }
    sure = {found[0] for found in keys.values() if len(found) == 1}
    known: dict[str, Any] = {}
    for name, found in keys.items():  # a name with two meanings has the one that no other parameter has
        exact = [key for key in found if plain(key) == plain(name)]
        if found:
            known[name] = values[[*exact, *(key for key in found if key not in sure), *found][0]]
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    strange = [p for p in named if p.default is p.empty and p.name not in known]
    if named and not strange and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return function(**known)
    room = len([p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)])
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return function(*list(values.values())[: None if variadic else room])


def takes(function: Any, *words: str) -> bool:
    """Whether a parameter's name has one of these words in it."""
    names = [name.lower() for name in inspect.signature(function).parameters]
    return any(word in name for word in words for name in names)


def first(result: Any) -> Tensor:
    """Return the tensor, or the first of several that a call has returned."""
    return result[0] if isinstance(result, tuple | list) else result


class Spy(TorchDispatchMode):
    """Keep what every softmax inside gives, wherever it is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if re.fullmatch(r"_(safe_)?softmax\.default", func.__name__):
            self.weights.append(result)
        return result


@contextmanager
def spied() -> Iterator[list[Tensor]]:
    """Collect the attention weights of everything that runs inside."""
    with sdpa_kernel(SDPBackend.MATH), Spy() as spy:
        yield spy.weights


@dataclass
class Linears:
    """The calls of linear maps within a module, in their order: the map, what it read, what it gave."""

    calls: list[tuple[nn.Linear, Tensor, Tensor]] = field(default_factory=list)

    @classmethod
    @contextmanager
    def of(cls, module: nn.Module) -> Iterator["Linears"]:
        seen = cls()
        handles = [
            m.register_forward_hook(lambda m, args, out: seen.calls.append((m, args[0], out)))
            for m in module.modules()
            if isinstance(m, nn.Linear)
        ]
        try:
            yield seen
        finally:
            for handle in handles:
                handle.remove()


@dataclass
class Code:
    """Code under test, and the conventions that it follows."""

    names: Mapping[str, Any]  # every name that it defines
    true_hides: bool = False  # whether True in a mask means hidden
    batch_first: bool = True  # (batch, length, ...) rather than (length, batch, ...)
    mask_dims: int = 3  # 3: masks (B, 1, S) and (B, T, T); 4: (B, 1, 1, S) and (B, 1, T, T)
    pad: int = 0
    not_applicable: Mapping[str, str] = field(default_factory=dict)  # laws that do not apply, and why
    integers: bool = False  # whether masks are numbers: learned from the first call that refuses bool

    @classmethod
    def of(cls, source: ModuleType | Mapping[str, Any], adapter: Mapping[str, Any] | None = None) -> "Code":
        """Read a module or a dictionary; names and conventions (in capitals) of an adapter win."""
        names = dict(source) if isinstance(source, Mapping) else {n: getattr(source, n) for n in dir(source)}
        names = {name: x for name, x in names.items() if not is_foreign(x)} | dict(adapter or {})
        settings = ("true_hides", "batch_first", "mask_dims", "pad", "not_applicable")
        code = cls(names, **{s: names[s.upper()] for s in settings if s.upper() in names})
        if "MASK_DIMS" not in names and makes_4d_masks(names):
            code.mask_dims = 4
        return code

    def __getitem__(self, part: str) -> Any:
        """Find a part by one of its names, the classic's first. Raises Missing if there is none."""
        by_name = {plain(name): x for name, x in self.names.items() if callable(x)}
        for name in map(plain, PARTS[part]):
            if name in by_name:
                return by_name[name]
        raise Missing(f"needs `{PARTS[part][0]}`")

    def is_stub(self, part: str) -> bool:
        """Whether a part is there, but not written yet."""
        with suppress(Missing, KeyError, OSError, TypeError):
            return "raise NotImplementedError" in inspect.getsource(self[part])
        return False

    def build(self, part: str, **values: Any) -> nn.Module:
        """Make a module, in evaluation mode, always with the same random numbers."""
        torch.manual_seed(0)
        module = call(self[part], **values)
        return module.eval() if isinstance(module, nn.Module) else module

    def flip(self, x: Tensor) -> Tensor:
        """Put batch and length in this code's order, or back."""
        return x if self.batch_first else x.transpose(0, 1)

    def with_masks(self, function: Callable[..., Any], *masks: Tensor | None, dims: int = 0) -> Any:
        """Call with masks as this code wants them: tried as bool, then as integers."""
        dims = dims or self.mask_dims
        told = [m if m is None or m.dim() >= dims else m.unsqueeze(1) for m in masks]
        told = [m if m is None or not self.true_hides else ~m for m in told]
        numbers = [m if m is None else m.int() for m in told]
        if self.integers or all(m is None for m in masks):
            return function(*numbers)
        try:
            return function(*told)
        except (TypeError, RuntimeError, ValueError, AssertionError):
            try:
                result = function(*numbers)
            except Exception:
                result = None
            if result is None:
                raise
            self.integers = True
            return result

    def attention(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, **more: Any
    ) -> Any:
        """Call `attention`, a function or a module."""
        function = self["attention"]
        if inspect.isclass(function):
            d_k = query.size(-1)
            function = self.build("attention", d_k=d_k, temperature=math.sqrt(d_k), dropout=0.0)
        given = {"query": query, "key": key, "value": value}
        return self.with_masks(lambda m: call(function, **given, mask=m, **more), mask, dims=1)

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Call multi-head attention, batch first."""
        if len(inspect.signature(module.forward).parameters) < 3:
            raise Missing("needs forward(query, key, value, mask)")
        given = {"query": self.flip(query), "key": self.flip(key), "value": self.flip(value)}
        return self.flip(first(self.with_masks(lambda m: call(module, **given, mask=m), mask)))

    def model(self, shake: float = 0.2, **sizes: Any) -> "Model":
        """Build a model of two layers, far enough from its first weights that every part counts."""
        sizes = {"src_vocab": 23, "tgt_vocab": 23, "N": 2, "d_model": 24, "d_ff": 40, "h": 4} | sizes
        sizes = {"dropout": 0.0, "pad": self.pad, "max_len": 64, "device": "cpu"} | sizes
        module = self.build("make_model", **sizes)
        if not isinstance(module, nn.Module):
            raise Missing("needs a `make_model` that returns a torch.nn.Module")
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=shake)
        return Model(self, module, cast(int, sizes["tgt_vocab"]), self.pad)


@dataclass
class Model:
    """A translation model of the code under test: tokens (B, S) and (B, T) in, log-probabilities out."""

    code: Code
    module: nn.Module
    vocab: int
    pad: int

    def masks(self, src: Tensor, tgt: Tensor) -> tuple[Tensor, Tensor]:
        """Hide padding, and in the target what follows: bool (B, 1, S) and (B, T, T), True allowed."""
        causal = torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool).tril()
        return (src != self.pad).unsqueeze(1), (tgt != self.pad).unsqueeze(1) & causal

    def encode(self, src: Tensor) -> Tensor:
        """Tokens (B, S) -> the memory (B, S, d_model). Raises Missing for a model without `encode`."""
        if not hasattr(self.module, "encode"):
            raise Missing("needs a model with `encode`")
        src_mask, _ = self.masks(src, src)
        return self.code.flip(
            first(
                self.code.with_masks(
                    lambda m: call(cast(Any, self.module.encode), src=self.code.flip(src), src_mask=m),
                    src_mask,
                )
            )
        )

    def raw(self, src: Tensor, tgt: Tensor, memory: Tensor | None = None) -> Tensor:
        """Return what the model gives for tokens (B, S) and (B, T), with its generator applied: (B, T, V)."""
        module, flip, masks = self.module, self.code.flip, self.masks(src, tgt)
        if hasattr(module, "encode") and hasattr(module, "decode"):
            memory = self.encode(src) if memory is None else memory
            states = self.code.with_masks(
                lambda s, t: call(
                    cast(Any, module.decode), memory=flip(memory), src_mask=s, tgt=flip(tgt), tgt_mask=t
                ),
                *masks,
            )
        else:
            states = self.code.with_masks(
                lambda s, t: call(module, src=flip(src), tgt=flip(tgt), src_mask=s, tgt_mask=t), *masks
            )
        states = first(states)
        if states.size(-1) != self.vocab:
            heads = [n for n in ("generator", "project", "projection", "fc_out", "out") if hasattr(module, n)]
            if not heads:
                raise Missing(f"needs log-probabilities (B, T, {self.vocab}), not {tuple(states.shape)}")
            states = getattr(module, heads[0])(states)
        if states.shape[:2] != flip(tgt).shape and states.numel() == tgt.numel() * self.vocab:
            states = states.view(*flip(tgt).shape, -1)
        return flip(states)

    def __call__(self, src: Tensor, tgt: Tensor, memory: Tensor | None = None) -> Tensor:
        """Log-probabilities (B, T, V), whether the model gives them, logits or probabilities."""
        out = self.raw(src, tgt, memory)
        if (out >= 0).all() and torch.allclose(out.sum(-1), torch.ones(()), atol=1e-3):
            return out.clamp_min(1e-30).log()
        return out.log_softmax(-1)


def is_foreign(x: Any) -> bool:
    """Whether a name is only imported, such as `torch.nn.Transformer`."""
    return str(getattr(x, "__module__", "")).partition(".")[0] in {"torch", "math", "copy", "typing", "numpy"}


def makes_4d_masks(names: Mapping[str, Any]) -> bool:
    """Whether a class or function writes masks of four dimensions, by the look of its source."""
    four = r"unsqueeze\(1\)\.unsqueeze\([12]\)|\[:, None, None|unsqueeze\(-2\)\.unsqueeze\(1\)"
    for x in names.values():
        with suppress(OSError, TypeError):
            if (inspect.isroutine(x) or inspect.isclass(x)) and re.search(four, inspect.getsource(x)):
                return True
    return False
