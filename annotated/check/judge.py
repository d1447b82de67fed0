"""Check a submission by the laws, in a process that never executes it: the worker does, and sends numbers.

A part is called in the worker. Each of its modules has a mirror here, with the same parameters, which a law
may read and change. Where a law looks at what runs, the mirrors run again in the order that the worker
reports. PyTorch's linear maps, tables and norms are computed here: the worker is not asked for their output.
"""

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

from annotated.check import protocol
from annotated.check.assertions import close
from annotated.check.law import TimeUp
from annotated.check.models import METHODS, StandIn
from annotated.check.protocol import Packed, Wire, mapped, pack, refuse, tensors_in, unpack
from annotated.check.report import TEXT
from annotated.check.tracing import NoDropout
from annotated.check.user_code import Code

COMPUTED = nn.Linear, nn.Embedding, nn.LayerNorm
KINDS: list[type[BaseException]] = [RuntimeError, TypeError, ValueError, AttributeError, LookupError, OSError]
KINDS += [ArithmeticError, AssertionError, NotImplementedError, IndexError, KeyError, ImportError, SystemExit]
ERRORS: dict[str, Any] = {kind.__name__: kind for kind in KINDS}  # that laws tell apart


class WorkerProxy:
    """The worker, and what is known of its modules, by their numbers there."""

    def __init__(self, connection: Connection):
        self.wire = Wire(connection, self.answer)
        self.modules = dict[int, nn.Module]()
        self.numbers = dict[nn.Module, int]()
        self.names = dict[nn.Module, dict[str, int]]()  # the numbers of its parameters and buffers
        self.shared = dict[int, Any]()  # parameters and buffers, which several modules may share
        self.sent = dict[int, Any]()  # their values as the worker has them
        self.callbacks: list[Any] = []
        self.tape: Iterator[protocol.TapeEvent] | None = None  # what ran in the worker, while it is replayed
        self.seeds = itertools.count()

    def ask(self, request: protocol.Request) -> Any:
        """Ask for something. Raises the error that the worker met."""
        reply = self.wire.ask(request)
        if reply is not None and "error" in reply:
            raise error_of(reply)
        return reply

    def answer(self, request: protocol.CallbackRequest) -> Packed:
        function, method = self.callbacks[request["callback"]], request["method"]
        if isinstance(function, StandIn) and method in METHODS:
            function = getattr(function, method)
        args, kwargs = unpack(request["arguments"], refuse)
        return pack(function(*args, **kwargs), refuse)

    def code(self, **settings: Any) -> Code:
        """Let the file be executed, and return its parts. Raises the error of the file, if it has one."""
        reply: protocol.LoadReply = self.ask({"do": "load"})
        conventions = {name: unpack(x, refuse) for name, x in reply["conventions"].items()}
        parts = {name: self.find(x) for name, x in reply["parts"].items()}
        return Code(parts, **{**conventions, **settings}, worker=self)

    def randomize_scores(self, module: nn.Module, vocab: int) -> None:
        if module in self.numbers:
            self.ask({"do": "randomize scores", "module": self.numbers[module], "vocab": vocab})

    # ---- calls

    def call(self, callee: int, method: str, args: Any, kwargs: Any, mirror: nn.Module | None = None) -> Any:
        """Call something in the worker, with modules as they are here."""
        grad_enabled, tensors = torch.is_grad_enabled(), tensors_in([args, kwargs])
        values = [x for x in (mirror, *args, *kwargs.values()) if isinstance(x, nn.Module)]
        modules = [m for m in values if m in self.numbers]
        module_tensors = {number: x for m in modules for number, x in self.tensors(m)}
        no_dropout = any(isinstance(mode, NoDropout) for mode in _get_current_function_mode_stack())
        looked_at = no_dropout or hooks._global_forward_hooks or _get_current_dispatch_mode_stack()
        request = protocol.CallRequest(
            do="call",
            callee=callee,
            method=method,
            arguments=pack([args, kwargs], self.refer),
            need_grad=[n for n, x in enumerate(tensors) if grad_enabled and x.requires_grad],
            learning=[n for n, x in module_tensors.items() if grad_enabled and x.requires_grad],
            training=[(self.numbers[m], m.training) for m in modules],
            to_meta=any(x.is_meta for x in module_tensors.values()),
            changed=[(n, pack(x, refuse)) for n, x in module_tensors.items() if self.changed(n, x)],
            random=pack(torch.get_rng_state(), refuse) if mirror is None else next(self.seeds),
            grad_enabled=grad_enabled,
            on_meta=torch.get_default_device().type == "meta",
            no_dropout=no_dropout,
            taped=bool(looked_at),
            gradients=None,
        )
        reply: protocol.CallReply = self.ask(request)
        result = unpack(reply["result"], self.find)
        for n, x in reply["written"]:
            tensors[n].data.copy_(unpack(x, refuse))
        differentiable = reply["differentiable"]
        leaves = [tensors[n] for n in request["need_grad"]]
        leaves += [module_tensors[n] for n in request["learning"]]
        if any(differentiable) and leaves:

            def back(gradients: Any) -> Any:
                return unpack(self.ask({**request, "gradients": pack(gradients, refuse)}), refuse)

            outputs = [x for x, yes in zip(tensors_in(result), differentiable, strict=True) if yes]
            connected, which = iter(RemoteBackward.apply(back, outputs, *leaves)), iter(differentiable)
            result = mapped(result, lambda x: next(connected) if next(which) else x)
        self.replay(reply["tape"][1:-1] if mirror is not None and not method else reply["tape"])
        return result

    def tensors(self, module: nn.Module) -> Iterator[tuple[int, Tensor]]:
        """Return the parameters and buffers of a mirror, with their numbers in the worker."""
        for part in module.modules():
            for name, number in self.names.get(part, {}).items():
                if (x := getattr(part, name)) is not None:
                    yield number, x

    def changed(self, number: int, x: Tensor) -> bool:
        """Tell whether a tensor has other values than in the worker, which is then sent these."""
        before = self.sent[number]
        if x.is_meta or (x.dtype == before.dtype and torch.equal(x, before)):
            return False
        self.sent[number] = x.detach().clone()
        return True

    def refer(self, x: Any) -> protocol.ModuleReference | protocol.CallbackReference:
        """Refer to a module of the worker by its number, and to a function of a law as a callback."""
        if isinstance(x, nn.Module) and x in self.numbers:
            return {"module": self.numbers[x], "description": None}
        if not callable(x):
            refuse(x)
        self.callbacks.append(x)
        methods = [n for n in METHODS if isinstance(x, StandIn) and hasattr(x, n)]
        return {"callback": len(self.callbacks) - 1, "p": getattr(x, "p", None), "methods": methods}

    # ---- what ran

    def replay(self, tape: list[protocol.TapeEvent]) -> None:
        """Run here what ran in the worker, so that the hooks and modes of a law see it."""
        outer, self.tape = self.tape, iter(tape)
        try:
            with torch.no_grad():
                self.replay_call()
        finally:
            self.tape = outer

    def replay_call(self) -> Any:
        """Replay the tape to the end of one call, and return what it gave."""
        for event in self.tape or ():
            if event["kind"] == "end":
                return unpack(event["value"], self.find)
            if event["kind"] == "softmax":
                x = unpack(event["value"], refuse)
                sums = {d: x.sum(d).float() for d in range(-1, -x.dim() - 1, -1)}
                dim = next((d for d, y in sums.items() if close(y, torch.ones_like(y))), -1)
                torch._safe_softmax(x.log(), dim)
            elif event["kind"] == "dropout":
                F.dropout(unpack(event["value"], refuse), 0.0, training=False)
            else:
                module = self.find(event["module"])
                module(*unpack(event["value"], self.find))
                if not isinstance(module, Mirror):
                    next(e for e in self.tape or () if e["kind"] == "end")
        return None

    # ---- what is neither number nor text

    def find(self, x: protocol.Reference) -> Any:
        """Return what stands here for something in the worker."""
        if "module" in x:
            number, description = x["module"], x["description"]
            return self.modules[number] if description is None else self.mirror(number, description)
        if "function" in x:
            return self.function(x["function"], "", x["name"], x["parameters"], x["is_class"])
        result = type(str(x["object"]), (), {})()
        vars(result).update({name: unpack(y, refuse) for name, y in x["fields"].items()})
        return result

    def function(
        self, callee: int, method: str, name: str, parameters: protocol.Parameters, is_class: bool = False
    ) -> Any:
        """Return a function, or a class to be called, that runs in the worker."""

        def function(*args: Any, **kwargs: Any) -> Any:
            return self.call(callee, method, args, kwargs, self.modules.get(callee))

        if is_class:
            new = lambda cls, *args, **kwargs: self.call(callee, "", args, kwargs)  # noqa: E731
            return type(name, (), {"__new__": new, "__signature__": signature(parameters)})
        function.__name__ = name
        function.__signature__ = signature(parameters)  # type: ignore[attr-defined]
        return function

    def mirror(self, number: int, description: protocol.ModuleDescription) -> nn.Module:
        """Make what stands here for a module of the worker, with its parameters, buffers and children."""
        kind = self.mirror_class(number, description)
        mirror = self.modules[number] = kind.__new__(kind)
        nn.Module.__init__(mirror)
        self.numbers[mirror] = number
        for name, x in description["attributes"].items():
            if name.isidentifier() and not hasattr(mirror, name):
                vars(mirror)[name] = unpack(x, refuse)
        for name, child in description["children"]:
            mirror._modules[name] = self.find(child)
        self.names[mirror] = {name: n for name, n, *_ in description["tensors"]}
        for name, n, x, is_parameter, requires_grad in description["tensors"]:
            if n not in self.shared:
                x = unpack(x, refuse)
                self.sent[n] = x if x is None else x.clone()
                self.shared[n] = nn.Parameter(x, requires_grad) if is_parameter and x is not None else x
            (mirror._parameters if is_parameter else mirror._buffers)[name] = self.shared[n]
        for name, parameters in description["methods"].items() if isinstance(mirror, Mirror) else ():
            if name in METHODS:
                vars(mirror)[name] = self.function(number, name, name, parameters)
        mirror.training = description["training"]
        return mirror

    def mirror_class(self, number: int, description: protocol.ModuleDescription) -> Any:
        """Return the class of a mirror: PyTorch's own where it is computed here, else a `Mirror`."""
        base, name = getattr(nn, description["base"], nn.Module), description["name"]
        space = {"__module__": description["defined_in"], "__signature__": signature(description["settings"])}
        space |= {n: partialmethod(getattr(nn.Module, n)) for n in description["overrides"]}
        if issubclass(base, COMPUTED) and not description["own_forward"]:
            return base if description["is_base"] else type(name, (base,), space)

        def forward(mirror: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self.tape is not None:
                return self.replay_call()
            return self.call(number, "", args, kwargs, mirror)

        parameters = description["parameters"]
        forward.__signature__ = signature(parameters and [("self", 1, False), *parameters])  # type: ignore[attr-defined]
        if description["own_forward"] or base is not nn.Module:
            space["forward"] = forward
        return type(name, (Mirror,) if base is nn.Module else (Mirror, base), space)


class Mirror(nn.Module):
    """A module that runs in another process."""


class RemoteBackward(torch.autograd.Function):
    """Send gradients the way that the values came: through the worker."""

    @staticmethod
    def forward(ctx: Any, back: Any, outputs: list[Tensor], *leaves: Tensor) -> Any:
        ctx.back = back
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return (None, None, *ctx.back(grads))


def signature(parameters: protocol.Parameters) -> Any:
    """Return the signature of a function, or none where its parameters are not known, as of C code."""
    if parameters is None:
        return "not known"
    kinds = [*inspect._ParameterKind]  # in the order of their numbers
    defaults = {False: inspect.Parameter.empty, True: None}
    described = [inspect.Parameter(n, kinds[kind], default=defaults[has]) for n, kind, has in parameters]
    return inspect.Signature(described, __validate_parameters__=False)


def error_of(raised: protocol.Raised) -> BaseException:
    """Return an error as the worker describes it: no file is read that the description names."""
    message, kinds = str(raised["error"])[:TEXT], [str(kind)[:TEXT] for kind in raised["kinds"]]
    if kinds[0] == "TimeUp":
        return TimeUp(message)
    base = next((ERRORS[kind] for kind in kinds if kind in ERRORS), Exception)
    error = type(kinds[0], (base,), {"__str__": lambda _: message, "__module__": "builtins"})(message)
    error.frames = [
        traceback.FrameSummary(file[:TEXT], int(number), name[:TEXT], lookup_line=False, line=line[:TEXT])
        for file, number, name, line in (map(str, frame) for frame in raised["frames"][-50:])
    ]
    return error
