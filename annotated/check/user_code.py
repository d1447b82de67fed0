"""Find the parts of a Transformer in anyone's code, and call them whatever their names and signatures are."""

import inspect
import math
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from annotated.check.assertions import as_plain, expect, unchanged
from annotated.check.loading import load

Names = Mapping[str, Any]
Source = ModuleType | Names
Mask = Tensor | None


def plain(name: str) -> str:
    """Return a name without its case and underscores."""
    return name.replace("_", "").lower()


NAMES = tomllib.loads(Path(__file__).with_name("names.toml").read_text(encoding="utf-8"))
PARTS: dict[str, list[str]] = {part: names.split() for part, names in NAMES["parts"].items()}
ARGUMENTS = {key: {plain(name) for name in names.split()} for key, names in NAMES["arguments"].items()}
CONVENTIONS = ("true_hides", "batch_first", "mask_dims", "pad", "not_applicable", "stubs")
PADS = ("PAD", *NAMES["constants"]["pad"].split())  # what a file may call the number of its padding
LIBRARIES = {"torch", "math", "copy", "typing", "numpy"}
FOUR_DIMENSIONS = r"unsqueeze\(1\)\.unsqueeze\([12]\)|\[:, None, None|unsqueeze\(-2\)\.unsqueeze\(1\)"


class NotApplicable(Exception):  # noqa: N818 (it is no error)
    """A law does not apply: what it needs is not there, or not known."""


class Unclear(NotApplicable):
    """What a part takes or gives is not known: an adapter can say it."""

    @classmethod
    def of(cls, function: Any, *parameters: str) -> "Unclear":
        """Ask what parameters of a function mean."""
        name = getattr(function, "__name__", type(function).__name__)
        return cls(f"what is `{', '.join(parameters)}` of `{name}`? Say how to call it in an adapter")


def call(function: Callable[..., Any], /, **values: Any) -> Any:
    """Call with those of `values` that the function takes, found by the names of its parameters.

    If one value and one required parameter are left over, they belong together. Raises NotApplicable where
    more parameters are left over: a wrong guess would blame the code under test.
    """
    parameters = parameters_of(function)
    copies = {key: x.clone() if isinstance(x, Tensor) else x for key, x in values.items()}
    if parameters is None:  # C code, which does not tell its parameters
        return function(*(x for x in copies.values() if x is not None))
    keys, unknown = match(parameters, values)
    unused = [key for key, x in values.items() if key not in keys.values() and x is not None]
    if len(unknown) == len(unused) == 1 and unknown[0][0] != "*":
        keys[unknown.pop()] = unused[0]
    if unknown:
        raise Unclear.of(function, *unknown)
    named = {name: copies[key] for name, key in keys.items()}
    positional = [named.pop(p.name) for p in parameters if p.kind is p.POSITIONAL_ONLY and p.name in named]
    result = function(*positional, **named)
    changed = [key for key, x in values.items() if isinstance(x, Tensor) and not unchanged(x, copies[key])]
    expect(not changed, f"it writes into the {' and '.join(changed)} that it is given")
    return result


def output_of(function: Callable[..., Any], /, **values: Any) -> Any:
    """Call as `call` does, and return the tensor of the result."""
    return tensor_of(call(function, **values))


def match(parameters: Iterable[inspect.Parameter], values: Names) -> tuple[dict[str, str], list[str]]:
    """Return which of `values` each parameter takes, and the required parameters for which there is none."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    single = [p for p in parameters if p.kind not in variadic]
    meanings = {p.name: [key for key in values if plain(p.name) in ARGUMENTS[key]] for p in single}
    sure = {keys[0] for keys in meanings.values() if len(keys) == 1}
    chosen: dict[str, str] = {}
    for name, keys in meanings.items():  # a name with two meanings has the one that no other parameter has
        exact = [key for key in keys if plain(key) == plain(name)]
        if keys:
            chosen[name] = [*exact, *(key for key in keys if key not in sure), *keys][0]
    unknown = [p.name for p in single if p.name not in chosen and (p.default is p.empty or not sure)]
    if not single and values:  # such as *args
        unknown += [f"*{p.name}" for p in parameters]
    return chosen, unknown


def parameters_of(function: Any) -> list[inspect.Parameter] | None:
    """Return the parameters of a function, class or module; of C code, which does not tell, None.

    They include the names that its source reads from **kwargs.
    """
    with suppress(TypeError, ValueError):  # a module's own call says nothing about its arguments
        function = function.forward if isinstance(function, nn.Module) else function
        parameters = [*inspect.signature(function).parameters.values()]
        for rest in [p for p in parameters if p.kind is p.VAR_KEYWORD]:
            with suppress(OSError):
                names = re.findall(rf"\b{rest.name}(?:\.\w+\(|\[)[\"'](\w+)", inspect.getsource(function))
                optional = {name: inspect.Parameter(name, rest.KEYWORD_ONLY, default=None) for name in names}
                parameters += optional.values()
        return parameters
    return None


def takes(function: Any, *words: str) -> bool:
    """Tell whether a parameter's name has one of these words in it."""
    return any(word in p.name.lower() for word in words for p in parameters_of(function) or ())


def takes_all(function: Any, *keys: str) -> bool:
    """Tell whether each of these arguments would be given to a parameter of its own."""
    used, _ = match(parameters_of(function) or (), dict.fromkeys(keys, 0))
    return {*keys} == {*used.values()}


def tensor_of(result: Any, strict: bool = True) -> Any:
    """Return the tensor of a result: itself, the first of several, or that in a dictionary or an object."""
    if isinstance(result, tuple | list) and result:
        return tensor_of(result[0], strict)
    fields = result if isinstance(result, Mapping) else getattr(result, "__dict__", {})
    if not isinstance(result, Tensor | nn.Module) and fields:
        tensors = {name: x for name, x in fields.items() if isinstance(x, Tensor)}
        outputs = [name for name in tensors if name in NAMES["constants"]["outputs"].split()] or [*tensors]
        if strict and len(tensors) > 1 and len(outputs) != 1:
            raise Unclear(f"which of {', '.join(tensors)} is the output? Return it in an adapter")
        return tensor_of(tensors[outputs[0]]) if outputs else result
    return as_plain(result)


@dataclass(eq=False)
class Code:
    """Code under test, and the conventions that it follows."""

    names: Mapping[str, Any]  # every name that it defines
    true_hides: bool = False  # whether True in a mask means hidden
    batch_first: bool = True  # (batch, length, ...) rather than (length, batch, ...)
    mask_dims: int = 3  # 3: masks (B, 1, S) and (B, T, T); 4: (B, 1, 1, S) and (B, 1, T, T)
    pad: int = 0
    not_applicable: Mapping[str, str] = field(default_factory=dict)  # laws that do not apply, and why
    required: Collection[str] = ()  # parts of which nothing may be unclear
    stubs: bool = False  # whether it is also held to what the stubs of `annotated build` promise
    knows_pad: bool = False  # whether the code said which number is padding
    adapter: str = ""  # the file of the adapter, whose errors are not those of the code
    worker: Any = None  # `judge.WorkerProxy`, where it runs in another process
    integers: bool = False  # whether masks must be integers: the first call that refuses bool tells

    @classmethod
    def of(cls, source: Source, adapter: Names | None = None) -> "Code":
        """Read a module or a dictionary; names and conventions (in capitals) of an adapter win."""
        names = dict(source) if isinstance(source, Mapping) else {n: getattr(source, n) for n in dir(source)}
        names = {name: x for name, x in names.items() if origin(x) not in LIBRARIES} | dict(adapter or {})
        said = {name: names[name.upper()] for name in CONVENTIONS if name.upper() in names}
        conventions: dict[str, Any] = {name: type(getattr(cls, name, {}))(x) for name, x in said.items()}
        code = cls(names, **conventions)
        if pads := [names[name] for name in PADS if isinstance(names.get(name), int)]:
            code.pad, code.knows_pad = pads[0], True
        if "MASK_DIMS" not in names and any(map(makes_4d_masks, names.values())):
            code.mask_dims = 4
        return code

    @classmethod
    def load(cls, path: Path, adapter: Path | None = None) -> "Code":
        """Execute a file, and an adapter, in which `mine` is the file's module.

        What the file only imports from this package is nobody's own work, and does not count.
        """
        module = load(path)
        names = {name: x for name, x in vars(module).items() if origin(x) != "annotated"}
        code = cls.of(names, vars(load(adapter, {"mine": module})) if adapter else None)
        return replace(code, adapter=str(adapter or ""))

    def find(self, part: str) -> Any:
        """Find a part by one of its names, the classic's first. Raises NotApplicable if there is none."""
        functions = {name: x for name, x in sorted(self.names.items()) if callable(x)}
        respelled = {plain(name): x for name, x in functions.items()}
        for name in PARTS[part]:  # as it is spelled, then whatever its case and underscores
            if (function := functions.get(name, respelled.get(plain(name)))) is not None:
                return function
        raise NotApplicable(f"needs `{PARTS[part][0]}`")

    def has(self, part: str) -> bool:
        """Tell whether a part is there."""
        with suppress(NotApplicable):
            return bool(self.find(part))
        return False

    def is_stub(self, part: str) -> bool:
        """Tell whether a part is there, but not written yet."""
        with suppress(NotApplicable, KeyError, OSError, TypeError):
            return "raise NotImplementedError\n" in inspect.getsource(self.find(part))
        return False

    def build(self, part: str, **values: Any) -> nn.Module:
        """Make a module in evaluation mode. Its random numbers, and what follows, are always the same."""
        torch.manual_seed(0)
        module = call(self.find(part), **values)
        torch.manual_seed(1)
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
        with_integers = values | {key: m.int() for key, m in masks.items()}
        if self.integers or not masks:
            return call(function, **with_integers)
        try:
            return call(function, **values | masks)
        except (TypeError, RuntimeError, ValueError, AssertionError):
            with suppress(Exception):
                result = call(function, **with_integers)
                self.integers = True
                return result
            raise

    def attention(self, query: Tensor, key: Tensor, value: Tensor, mask: Mask = None, **more: Any) -> Any:
        """Call `attention`, a function or a module."""
        function, d_k = self.find("attention"), query.size(-1)
        if inspect.isclass(function):
            function = self.build("attention", d_k=d_k, temperature=math.sqrt(d_k), dropout=0.0)
        tensors = {"query": query, "key": key, "value": value}
        nothing_hidden = torch.ones(1, 1, key.size(-2))
        try:
            return self.masked(function, 1, mask, nothing_hidden, **tensors, **more)
        except RuntimeError as error:
            if "3D tensor" not in str(error) or query.dim() != 4:
                raise
        heads = query.shape[:2]  # it takes three dimensions: each head becomes a sentence of the batch
        folded = {name: x.flatten(0, 1) for name, x in tensors.items()}
        mask = None if mask is None else mask.expand(*heads, -1, -1).flatten(0, 1)
        result = self.masked(function, 1, mask, nothing_hidden, **folded, **more)
        outputs = result if isinstance(result, tuple | list) else (result,)
        return tuple(x.unflatten(0, heads) if isinstance(x, Tensor) else x for x in outputs)

    def attend(
        self, heads: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Mask = None
    ) -> Tensor:
        """Call multi-head attention, batch first."""
        parameters = parameters_of(heads)
        tensors = {"query": query, "key": key, "value": value}
        if takes_all(heads, "x", "context") and key is value:
            tensors = {"x": query, "context": key}
        elif takes_all(heads, "x") and query is key is value:
            tensors = {"x": query}
        elif takes_all(heads, "x", "context") or (parameters is not None and len(parameters) < 3):
            raise Unclear("needs forward(query, key, value, mask)")
        code = self
        if isinstance(heads, nn.MultiheadAttention):  # PyTorch's own has conventions of its own
            code = replace(self, batch_first=heads.batch_first, true_hides=True, mask_dims=3)
            if mask is not None:
                mask = mask.expand(-1, query.size(1), -1).repeat_interleave(heads.num_heads, dim=0)
        nothing_hidden = torch.ones(len(query), 1, key.size(1))
        tensors = {name: code.flip(x) for name, x in tensors.items()}
        return code.flip(tensor_of(code.masked(heads, 0, mask, nothing_hidden, **tensors)))

    def masked(self, function: Any, dims: int, mask: Mask, nothing_hidden: Tensor, **values: Any) -> Any:
        """Call with a mask; without one, if the function wants one, with a mask that hides nothing."""
        parameters = parameters_of(function) or ()
        of_masks = [p for p in parameters if plain(p.name) in ARGUMENTS["mask"]]
        if mask is not None and parameters and not of_masks:
            raise Unclear("it takes no `mask`")
        try:
            return self.call(function, dims, **values, mask=mask)
        except (TypeError, AttributeError):
            if mask is not None or all(p.default is not p.empty for p in of_masks):
                raise
            return self.call(function, dims, **values, mask=nothing_hidden.bool())


def origin(x: object) -> str:
    """Return the package that something was defined in."""
    return str(getattr(x, "__module__", "")).partition(".")[0]


def makes_4d_masks(x: object) -> bool:
    """Tell whether a class or function writes masks of four dimensions, by the look of its source."""
    with suppress(OSError, TypeError):
        if inspect.isroutine(x) or inspect.isclass(x):
            return bool(re.search(FOUR_DIMENSIONS, inspect.getsource(x)))
    return False
