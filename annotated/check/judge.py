"""Hold code to the laws that another process executes: what is asked and told are numbers.

A part is called over there. A module of it is mirrored here: it has the same parameters, which a law may
read and change, and where a law looks at what runs, the mirror runs through it again, as it was told.
PyTorch's linear maps, tables and norms are computed here: what is told of what they give counts for nothing.
"""

import builtins
import inspect
import itertools
import traceback
from collections.abc import Iterator
from functools import partialmethod
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as hooks
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from annotated.check.assertions import close
from annotated.check.law import TimeUp
from annotated.check.models import METHODS, StandIn
from annotated.check.protocol import Wire, mapped, pack, refuse, tensors_in, unpack
from annotated.check.report import TEXT
from annotated.check.tracing import NoDropout
from annotated.check.user_code import Code

COMPUTED = nn.Linear, nn.Embedding, nn.LayerNorm
NAMES = """RuntimeError TypeError ValueError AttributeError LookupError ArithmeticError AssertionError OSError
NotImplementedError IndexError KeyError ImportError SystemExit"""
ERRORS = {name: getattr(builtins, name) for name in NAMES.split()}  # which laws tell apart


class Asked:
    """A process that executes a file, and what is known of it."""

    def __init__(self, connection: Connection):
        self.wire = Wire(connection, self.answer)
        self.modules = dict[int, nn.Module]()
        self.numbers = dict[nn.Module, int]()
        self.names = dict[nn.Module, dict[str, int]]()  # the numbers of its parameters and buffers
        self.shared = dict[int, Any]()
        self.sent = dict[int, Any]()  # parameters and buffers as they are known over there
        self.callbacks: list[Any] = []
        self.tape: Iterator[Any] | None = None  # what ran over there, while it is run through again
        self.seeds = itertools.count()

    def ask(self, **question: Any) -> Any:
        """Ask for something. Raises what was raised over there."""
        reply = self.wire.ask(question)
        if reply is not None and "error" in reply:
            raise error_of(reply)
        return reply

    def answer(self, question: Any) -> Any:
        function, method = self.callbacks[question["callback"]], question["method"]
        if isinstance(function, StandIn) and method in METHODS:
            function = getattr(function, method)
        given, named = unpack(question["given"], refuse)
        return pack(function(*given, **named), refuse)

    def code(self, **known: Any) -> Code:
        """Let the file be executed, and return its parts. Raises what was raised by it."""
        told = self.ask(do="load")
        said = {name: unpack(x, refuse) for name, x in told["said"].items()}
        parts = {name: self.made(x) for name, x in told["parts"].items()}
        return Code(parts, **{**said, **known}, elsewhere=self)

    def compete(self, module: nn.Module, vocab: int) -> None:
        if module in self.numbers:
            self.ask(do="compete", of=self.numbers[module], vocab=vocab)

    # ---- calls

    def call(self, of: int, method: str, args: Any, named: Any, mirror: nn.Module | None = None) -> Any:
        """Call something over there, with modules as they are here."""
        grad, given = torch.is_grad_enabled(), tensors_in([args, named])
        modules = [
            m for m in (mirror, *args, *named.values()) if isinstance(m, nn.Module) and m in self.numbers
        ]
        held = {number: x for m in modules for number, x in self.tensors(m)}
        needs = [n for n, x in enumerate(given) if grad and x.requires_grad]
        learns = [n for n, x in held.items() if grad and x.requires_grad]
        plain = any(isinstance(mode, NoDropout) for mode in _get_current_function_mode_stack())
        taped = plain or bool(hooks._global_forward_hooks or _get_current_dispatch_mode_stack())
        question = {
            "do": "call",
            "of": of,
            "method": method,
            "given": pack([args, named], self.say),
            "needs": needs,
            "learns": learns,
            "modules": [[self.numbers[m], m.training] for m in modules],
            "moved": any(x.is_meta for x in held.values()),
            "changed": [[n, pack(x, refuse)] for n, x in held.items() if self.changed(n, x)],
            "random": pack(torch.get_rng_state(), refuse) if mirror is None else next(self.seeds),
            "grad": grad,
            "meta": torch.get_default_device().type == "meta",
            "plain": plain,
            "taped": taped,
            "back": None,
        }
        reply = self.ask(**question)
        result = unpack(reply["result"], self.made)
        for n, x in reply["wrote"]:
            given[n].data.copy_(unpack(x, refuse))
        if any(reply["learned"]) and (leaves := [given[n] for n in needs] + [held[n] for n in learns]):

            def back(grads: Any) -> Any:
                return unpack(self.ask(**question | {"back": pack(grads, refuse)}), refuse)

            learned = [x for x, yes in zip(tensors_in(result), reply["learned"], strict=True) if yes]
            outputs, which = iter(Through.apply(back, learned, *leaves)), iter(reply["learned"])
            result = mapped(result, lambda x: next(outputs) if next(which) else x)
        self.run_through(reply["tape"][1:-1] if mirror is not None and not method else reply["tape"])
        return result

    def tensors(self, module: nn.Module) -> Iterator[tuple[int, Tensor]]:
        """Return the parameters and buffers of a mirror, with their numbers over there."""
        for part in module.modules():
            for name, number in self.names.get(part, {}).items():
                if (x := getattr(part, name)) is not None:
                    yield number, x

    def changed(self, number: int, x: Tensor) -> bool:
        """Tell whether something has other numbers than over there, and that it has these from now on."""
        before = self.sent[number]
        if x.is_meta or (x.dtype == before.dtype and torch.equal(x, before)):
            return False
        self.sent[number] = x.detach().clone()
        return True

    def say(self, x: Any) -> Any:
        """Say a module that is known over there by its number, and a function of a law by another."""
        if isinstance(x, nn.Module) and x in self.numbers:
            return {"of": self.numbers[x]}
        if not callable(x):
            refuse(x)
        self.callbacks.append(x)
        methods = [n for n in METHODS if isinstance(x, StandIn) and hasattr(x, n)]
        return {"callback": len(self.callbacks) - 1, "p": getattr(x, "p", None), "methods": methods}

    # ---- what ran

    def run_through(self, tape: list[Any]) -> None:
        """Let what ran over there run here, as far as it was told: whoever looks on sees it."""
        before, self.tape = self.tape, iter(tape)
        try:
            with torch.no_grad():
                self.play()
        finally:
            self.tape = before

    def play(self) -> Any:
        """Run through what is told of one call, and return what it gave."""
        for event in self.tape or ():
            if "end" in event:
                return unpack(event["end"], self.made)
            if "softmax" in event:
                x = unpack(event["softmax"], refuse)
                sums = {d: x.sum(d).float() for d in range(-1, -x.dim() - 1, -1)}
                dim = next((d for d, y in sums.items() if close(y, torch.ones_like(y))), -1)
                torch._safe_softmax(x.log(), dim)
            elif "dropout" in event:
                F.dropout(unpack(event["dropout"], refuse), 0.0, training=False)
            else:
                module = self.made(event["begin"])
                module(*unpack(event["given"], self.made))
                if not isinstance(module, Mirror):
                    next(e for e in self.tape or () if "end" in e)
        return None

    # ---- what is no number

    def made(self, x: dict[str, Any]) -> Any:
        """Return what stands here for something over there."""
        if "module" in x:
            return self.modules[x["module"]] if x["is"] is None else self.mirror(x["module"], x["is"])
        if "function" in x:
            return self.function(x["function"], "", x["name"], x["takes"], x["class"])
        thing = type(str(x["object"]), (), {})()
        vars(thing).update({name: unpack(y, refuse) for name, y in x["has"].items()})
        return thing

    def function(self, of: int, method: str, name: str, takes: Any, of_class: bool = False) -> Any:
        def function(*args: Any, **named: Any) -> Any:
            return self.call(of, method, args, named, self.modules.get(of))

        if of_class:
            made = lambda cls, *args, **named: self.call(of, "", args, named)  # noqa: E731
            return type(name, (), {"__new__": made, "__signature__": signature(takes)})
        function.__name__ = name
        function.__signature__ = signature(takes)  # type: ignore[attr-defined]
        return function

    def mirror(self, number: int, told: dict[str, Any]) -> nn.Module:
        """Make what stands here for a module: PyTorch's own where it is computed here, else a `Mirror`."""
        base = getattr(nn, told["base"], nn.Module)
        kind, space = base, {"__module__": told["from"], "__signature__": signature(told["made of"])}
        space |= {n: partialmethod(getattr(nn.Module, n)) for n in told["hides"]}
        if not (issubclass(base, COMPUTED) and not told["own forward"]):

            def forward(mirror: nn.Module, *args: Any, **named: Any) -> Any:
                return self.play() if self.tape is not None else self.call(number, "", args, named, mirror)

            forward.__signature__ = signature(told["takes"] and [["self", 1, False], *told["takes"]])  # type: ignore[attr-defined]
            own = {"forward": forward} if told["own forward"] or base is not nn.Module else {}
            kind = type(told["name"], (Mirror,) if base is nn.Module else (Mirror, base), space | own)
        elif not told["exact"]:
            kind = type(told["name"], (base,), space)
        made = self.modules[number] = kind.__new__(kind)
        nn.Module.__init__(made)
        self.numbers[made] = number
        vars(made).update({n: unpack(x, refuse) for n, x in told["plain"].items()
                           if n.isidentifier() and n not in vars(made) and not hasattr(kind, n)})  # fmt: skip
        for name, child in told["children"]:
            made._modules[name] = self.made(child)
        self.names[made] = {name: n for name, n, *_ in told["tensors"]}
        for name, n, x, learned, grad in told["tensors"]:
            if n not in self.shared:
                x = unpack(x, refuse)
                self.sent[n] = x if x is None else x.clone()
                self.shared[n] = nn.Parameter(x, grad) if learned and x is not None else x
            (made._parameters if learned else made._buffers)[name] = self.shared[n]
        for name in METHODS if isinstance(made, Mirror) else ():
            if (takes := told["methods"].get(name, ...)) is not ...:
                vars(made)[name] = self.function(number, name, name, takes)
        made.training = told["training"]
        return made


class Mirror(nn.Module):
    """A module that runs in another process."""


class Through(torch.autograd.Function):
    """Let gradients go the way that numbers went: through another process."""

    @staticmethod
    def forward(ctx: Any, back: Any, outputs: list[Tensor], *leaves: Tensor) -> Any:
        ctx.back = back
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return (None, None, *ctx.back(grads))


def signature(takes: list[Any] | None) -> Any:
    """Return the signature of a function, or of C code, which does not tell it, what is none."""
    if takes is None:
        return "not told"
    empty = inspect.Parameter.empty
    kinds = [*inspect._ParameterKind]  # in the order of their numbers
    parameters = [inspect.Parameter(n, kinds[kind], default=None if has else empty) for n, kind, has in takes]
    return inspect.Signature(parameters, __validate_parameters__=False)


def error_of(told: dict[str, Any]) -> BaseException:
    """Return an error as it was raised over there."""
    message, kinds = str(told["error"])[:TEXT], [str(kind)[:TEXT] for kind in told["kinds"]]
    if kinds[0] == "TimeUp":
        return TimeUp(message)
    base = next((ERRORS[kind] for kind in kinds if kind in ERRORS), Exception)
    error = type(kinds[0], (base,), {"__str__": lambda _: message, "__module__": "builtins"})(message)
    error.frames = [frame(*map(str, told)) for told in told["frames"][-50:]]
    return error


def frame(file: str, number: str, name: str, line: str) -> traceback.FrameSummary:
    """Return a line of a traceback as it is told: nothing is read from a file that somebody names."""
    return traceback.FrameSummary(file[:TEXT], int(number), name[:TEXT], lookup_line=False, line=line[:TEXT])
