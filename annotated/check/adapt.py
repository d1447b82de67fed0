"""Find the parts of a Transformer in anyone's code, and call them whatever their names and signatures are."""

import inspect
import math
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor, nn


def plain(name: str) -> str:
    return name.replace("_", "").lower()


NAMES = tomllib.loads(Path(__file__).with_name("names.toml").read_text(encoding="utf-8"))
PARTS: dict[str, list[str]] = {part: names.split() for part, names in NAMES["parts"].items()}
ARGUMENTS = {key: {plain(name) for name in names.split()} for key, names in NAMES["arguments"].items()}
CONVENTIONS = ("true_hides", "batch_first", "mask_dims", "pad", "not_applicable")
LIBRARIES = {"torch", "math", "copy", "typing", "numpy"}
FOUR_DIMENSIONS = r"unsqueeze\(1\)\.unsqueeze\([12]\)|\[:, None, None|unsqueeze\(-2\)\.unsqueeze\(1\)"


class Missing(Exception):  # noqa: N818 (it is no error)
    """A law does not apply: what it needs is not there."""


def call(function: Callable[..., Any], /, **values: Any) -> Any:
    """Call with those of `values` that the function takes, found by the names of its parameters.

    Where it has a required parameter of an unknown name, the values are given in their order.
    """
    parameters = parameters_of(function)
    keys = {p.name: [key for key in values if plain(p.name) in ARGUMENTS[key]] for p in parameters}
    sure = {found[0] for found in keys.values() if len(found) == 1}
    known: dict[str, Any] = {}
    for name, found in keys.items():  # a name with two meanings has the one that no other parameter has
        exact = [key for key in found if plain(key) == plain(name)]
        if found:
            known[name] = values[[*exact, *(key for key in found if key not in sure), *found][0]]
    if known and not strange(function, values):
        return function(**known)
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    room = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    return function(*list(values.values())[: None if variadic else room])


def parameters_of(function: Any) -> list[inspect.Parameter]:
    """Return the parameters of a function, class or module; of C code, which does not tell, any."""
    with suppress(TypeError, ValueError):  # a module's own call says nothing about its arguments
        spoken = function.forward if isinstance(function, nn.Module) else function
        return [*inspect.signature(spoken).parameters.values()]
    return [inspect.Parameter("values", inspect.Parameter.VAR_POSITIONAL)]


def strange(function: Any, values: Iterable[str]) -> list[str]:
    """Return the required parameters whose names do not tell which of `values` they take."""
    known = set[str]().union(*(ARGUMENTS[key] for key in values))
    required = [p for p in parameters_of(function) if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    return [p.name for p in required if plain(p.name) not in known or p.kind is p.VAR_POSITIONAL]


def takes(function: Any, *words: str) -> bool:
    """Tell whether a parameter's name has one of these words in it."""
    return any(word in p.name.lower() for word in words for p in parameters_of(function))


def first(result: Any) -> Tensor:
    """Return the tensor, or the first of several that a call has returned."""
    return result[0] if isinstance(result, tuple | list) else result


def load(path: Path, before: Mapping[str, Any] | None = None) -> ModuleType:
    """Execute a Python file as a module, with names `before`; what lies beside it can be imported."""
    loader = SourceFileLoader(f"checked_{path.stem}", str(path))
    module = sys.modules[loader.name] = module_from_spec(cast(Any, spec_from_loader(loader.name, loader)))
    vars(module).update(before or {})
    folder = str(path.parent.absolute())
    sys.path.insert(0, folder)
    try:
        loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    return module


@dataclass(eq=False)
class Code:
    """Code under test, and the conventions that it follows."""

    names: Mapping[str, Any]  # every name that it defines
    true_hides: bool = False  # whether True in a mask means hidden
    batch_first: bool = True  # (batch, length, ...) rather than (length, batch, ...)
    mask_dims: int = 3  # 3: masks (B, 1, S) and (B, T, T); 4: (B, 1, 1, S) and (B, 1, T, T)
    pad: int = 0
    not_applicable: Mapping[str, str] = field(default_factory=dict)  # laws that do not apply, and why
    integers: bool = False  # whether masks are numbers: learned from the first call that refuses bool
    guessed: str = ""  # what was built last, if from values in an order that is guessed

    @classmethod
    def of(cls, source: ModuleType | Mapping[str, Any], adapter: Mapping[str, Any] | None = None) -> "Code":
        """Read a module or a dictionary; names and conventions (in capitals) of an adapter win."""
        names = dict(source) if isinstance(source, Mapping) else {n: getattr(source, n) for n in dir(source)}
        names = {name: x for name, x in names.items() if origin(x) not in LIBRARIES} | dict(adapter or {})
        code = cls(names, **{s: names[s.upper()] for s in CONVENTIONS if s.upper() in names})
        if "MASK_DIMS" not in names and any(map(makes_4d_masks, names.values())):
            code.mask_dims = 4
        return code

    @classmethod
    def load(cls, path: Path, adapter: Path | None = None) -> "Code":
        """Execute a file, and an adapter, in which `mine` is the file's module.

        What the file only imports from this package is nobody's own work, and does not count.
        """
        module = load(path)
        own = {name: x for name, x in vars(module).items() if origin(x) != "annotated"}
        return cls.of(own, vars(load(adapter, {"mine": module})) if adapter else None)

    def __getitem__(self, part: str) -> Any:
        """Find a part by one of its names, the classic's first. Raises Missing if there is none."""
        by_name = {plain(name): x for name, x in sorted(self.names.items()) if callable(x)}
        for name in PARTS[part]:  # as it is spelled, then whatever its case and underscores
            for found in (self.names.get(name), by_name.get(plain(name))):
                if callable(found):
                    return found
        raise Missing(f"needs `{PARTS[part][0]}`")

    def is_stub(self, part: str) -> bool:
        """Tell whether a part is there, but not written yet."""
        with suppress(Missing, KeyError, OSError, TypeError):
            return "raise NotImplementedError\n" in inspect.getsource(self[part])
        return False

    def build(self, part: str, **values: Any) -> nn.Module:
        """Make a module, in evaluation mode, always with the same random numbers."""
        torch.manual_seed(0)
        if unknown := strange(self[part], values):
            what = getattr(self[part], "__name__", part)
            self.guessed = f"`{what}` cannot be built: what is `{', '.join(unknown)}`? Say how in an adapter"
        module = call(self[part], **values)
        return module.eval() if isinstance(module, nn.Module) else module

    def flip(self, x: Tensor) -> Tensor:
        """Put batch and length in this code's order, or back."""
        return x if self.batch_first else x.transpose(0, 1)

    def call(self, function: Callable[..., Any], dims: int = 0, /, **values: Any) -> Any:
        """Call with masks as this code wants them: tried as bool, then as integers."""
        masks = {key: m for key, m in values.items() if key.endswith("mask") and m is not None}
        for key, m in masks.items():
            shaped = m if m.dim() >= (dims or self.mask_dims) else m.unsqueeze(1)
            masks[key] = ~shaped if self.true_hides else shaped
        numbers = values | {key: m.int() for key, m in masks.items()}
        if self.integers or not masks:
            return call(function, **numbers)
        try:
            return call(function, **values | masks)
        except (TypeError, RuntimeError, ValueError, AssertionError):
            with suppress(Exception):
                result = call(function, **numbers)
                self.integers = True
                return result
            raise

    def attention(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, **more: Any
    ) -> Any:
        """Call `attention`, a function or a module."""
        function, d_k = self["attention"], query.size(-1)
        if inspect.isclass(function):
            function = self.build("attention", d_k=d_k, temperature=math.sqrt(d_k), dropout=0.0)
        expect_mask(function, mask)
        return self.call(function, 1, query=query, key=key, value=value, mask=mask, **more)

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Call multi-head attention, batch first."""
        if len(parameters_of(module)) < 3:
            raise Missing("needs forward(query, key, value, mask)")
        expect_mask(module, mask)
        code = self
        if isinstance(module, nn.MultiheadAttention):  # PyTorch's own has conventions of its own
            code = replace(self, batch_first=module.batch_first, true_hides=True, mask_dims=3)
            if mask is not None:
                mask = mask.expand(-1, query.size(1), -1).repeat_interleave(module.num_heads, dim=0)
        given = {"query": code.flip(query), "key": code.flip(key), "value": code.flip(value)}
        return code.flip(first(code.call(module, **given, mask=mask)))

    def model(self, shake: float = 0.2, **sizes: Any) -> "Model":
        """Build a model of two layers, far enough from its first weights that every part counts."""
        sizes = {"src_vocab": 23, "tgt_vocab": 23, "N": 2, "d_model": 24, "d_ff": 40, "h": 4} | sizes
        sizes = {"dropout": 0.0, "pad": self.pad, "max_len": 64, "device": "cpu"} | sizes
        module = self.build("make_model", **sizes)
        if not isinstance(module, nn.Module):
            raise Missing("needs a `make_model` that returns a torch.nn.Module")
        if not any(sizes["tgt_vocab"] in parameter.shape for parameter in module.parameters()):
            raise Missing("needs a model of tokens: this one has no matrix for a vocabulary")
        perturb(module, shake)
        return Model(self, module, cast(int, sizes["tgt_vocab"]), self.pad)


def expect_mask(function: Any, mask: Tensor | None) -> None:
    """Raise Missing if there is a mask to be given, and a function whose parameters are known takes none."""
    names = {plain(p.name) for p in parameters_of(function)}
    known = bool(names) and not strange(function, ("query", "key", "value", "mask"))
    if mask is not None and known and not names & ARGUMENTS["mask"]:
        raise Missing("it takes no `mask`")


def perturb(module: nn.Module, alpha: float) -> nn.Module:
    """Move a module away from its first weights, such as biases of 0 and norms of 1."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=alpha)
    return module


@dataclass
class Model:
    """A translation model of the code under test: tokens (B, S) and (B, T) in, log-probabilities out."""

    code: Code
    module: nn.Module
    vocab: int
    pad: int

    def masks(self, src: Tensor, tgt: Tensor) -> dict[str, Tensor]:
        """Hide padding, and in the target what follows: bool (B, 1, S) and (B, T, T), True allowed."""
        causal = (tgt != self.pad).unsqueeze(1).expand(-1, tgt.size(1), -1).tril()
        return {"src_mask": (src != self.pad).unsqueeze(1), "tgt_mask": causal}

    def modules(self, *kinds: type[nn.Module]) -> list[Any]:
        return [module for module in self.module.modules() if isinstance(module, kinds)]

    def encode(self, src: Tensor) -> Tensor:
        """Tokens (B, S) -> the memory (B, S, d_model). Raises Missing for a model without `encode`."""
        if not hasattr(self.module, "encode"):
            raise Missing("needs a model with `encode`")
        mask = self.masks(src, src)["src_mask"]
        encode: Any = self.module.encode
        return self.code.flip(first(self.code.call(encode, src=self.code.flip(src), src_mask=mask)))

    def raw(self, src: Tensor, tgt: Tensor, memory: Tensor | None = None) -> Tensor:
        """Return what the model gives for tokens (B, S) and (B, T), with its generator applied: (B, T, V)."""
        module, flip, masks = cast(Any, self.module), self.code.flip, self.masks(src, tgt)
        target, shape = {"tgt": flip(tgt), "tgt_mask": masks["tgt_mask"]}, flip(tgt).shape
        if hasattr(module, "encode") and hasattr(module, "decode"):
            memory = self.encode(src) if memory is None else memory
            source = {"memory": flip(memory), "src_mask": masks["src_mask"]}
            states = first(self.code.call(module.decode, **source, **target))
        else:
            states = first(self.code.call(module, src=flip(src), tgt=flip(tgt), **masks))
        if states.size(-1) != self.vocab:
            heads = [n for n in ("generator", "project", "projection", "fc_out", "out") if hasattr(module, n)]
            if not heads:
                raise Missing(f"needs log-probabilities (B, T, {self.vocab}), not {tuple(states.shape)}")
            states = getattr(module, heads[0])(states)
        if states.shape[:2] != shape and states.numel() == tgt.numel() * self.vocab:
            states = states.view(*shape, -1)
        return flip(states)

    def __call__(self, src: Tensor, tgt: Tensor, memory: Tensor | None = None) -> Tensor:
        """Log-probabilities (B, T, V), whether the model gives them, logits or probabilities."""
        out = self.raw(src, tgt, memory)
        if (out >= 0).all() and torch.allclose(out.sum(-1), torch.ones(()), atol=1e-3):
            return out.clamp_min(1e-30).log()
        return out.log_softmax(-1)


def origin(x: object) -> str:
    """Return the package that something was defined in."""
    return str(getattr(x, "__module__", "")).partition(".")[0]


def makes_4d_masks(x: object) -> bool:
    """Tell whether a class or function writes masks of four dimensions, by the look of its source."""
    with suppress(OSError, TypeError):
        if inspect.isroutine(x) or inspect.isclass(x):
            return bool(re.search(FOUR_DIMENSIONS, inspect.getsource(x)))
    return False
