"""The process that executes a submission: it answers the judge with numbers, and judges nothing."""

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import nn

from annotated.check import protocol
from annotated.check.assertions import unchanged
from annotated.check.law import guard, own_frames
from annotated.check.models import INSPECTION, METHODS, overrides, randomize_scores
from annotated.check.protocol import Packed, Wire, fields, pack, refuse, tensors_in, unpack
from annotated.check.tracing import NoDropout, Trace, collect_weights, trace_calls
from annotated.check.user_code import CONVENTIONS, PARTS, Code, origin, parameters_of


class Worker:
    """Parts of a Transformer that the judge can call."""

    def __init__(self, connection: Connection, load: Callable[[], Code], seconds: float):
        self.wire = Wire(connection, self.answer)
        self.load, self.seconds = load, seconds
        self.described = dict[int, Any]()  # what the judge has a description of, by its number

    def answer(self, request: protocol.Request) -> Any:
        """Answer a request of the judge, if need be with the error that was raised."""
        try:
            with guard(self.seconds):
                if request["do"] == "load":
                    return self.parts()
                if request["do"] == "call":
                    return self.call(request)
                return randomize_scores(self.described[request["module"]], request["vocab"])
        except BaseException as error:
            frames = [(f.filename, f.lineno, f.name, f.line) for f in own_frames(error)]
            kinds = [kind.__name__ for kind in type(error).__mro__]
            return protocol.Raised(error=str(error), kinds=kinds, frames=frames)

    def parts(self) -> protocol.LoadReply:
        """Execute the file; return its conventions, and which parts it has."""
        code = self.load()
        names = (*CONVENTIONS, "knows_pad")
        conventions = {name: self.pack(getattr(code, name)) for name in names}
        parts = {PARTS[part][0]: self.describe(code.find(part)) for part in PARTS if code.has(part)}
        return protocol.LoadReply(conventions=conventions, parts=parts)

    def call(self, request: protocol.CallRequest) -> protocol.CallReply | Packed:
        """Call what has a number; return its result, what ran in it, and the arguments that it wrote into."""
        callee = self.described[request["callee"]]
        function = getattr(callee, request["method"]) if request["method"] else callee
        self.change(request)
        args, kwargs = unpack(request["arguments"], self.find)
        tensors = tensors_in([args, kwargs])
        before = [x.clone() for x in tensors]
        for number in request["need_grad"]:
            tensors[number].requires_grad_()
        if isinstance(request["random"], int):
            torch.manual_seed(request["random"])
        else:
            torch.set_rng_state(unpack(request["random"], refuse))

        trace = Trace()
        with ExitStack() as modes:
            modes.enter_context(torch.set_grad_enabled(request["grad_enabled"]))
            if request["on_meta"]:
                modes.enter_context(torch.device("meta"))
            if request["no_dropout"]:
                modes.enter_context(NoDropout(trace))
            if request["taped"]:
                modes.enter_context(collect_weights(trace))
                result, _ = trace_calls(lambda: function(*args, **kwargs), trace)
            else:
                result = function(*args, **kwargs)
        if request["gradients"] is not None:
            outputs = [x for x in tensors_in(result) if x.requires_grad]
            leaves = [tensors[n] for n in request["need_grad"]]
            leaves += [self.described[n] for n in request["learning"]]
            gradients = unpack(request["gradients"], self.find)
            return self.pack(torch.autograd.grad(outputs, leaves, gradients, allow_unused=True))
        written = [n for n, x in enumerate(tensors) if not unchanged(before[n], x)]
        return protocol.CallReply(
            result=self.pack(result),
            differentiable=[x.requires_grad for x in tensors_in(result)],
            written=[(n, self.pack(tensors[n])) for n in written],
            tape=self.tape(trace),
        )

    def change(self, request: protocol.CallRequest) -> None:
        """Take over what the judge did to modules: values, a mode, a device."""
        for number, training in request["training"]:
            self.described[number].train(training)
            if request["to_meta"]:
                self.described[number].to("meta")
        for number, x in request["changed"]:
            self.described[number].data = unpack(x, self.find)

    def tape(self, trace: Trace) -> list[protocol.TapeEvent]:
        """Return what ran, in the order in which it began and ended."""
        events = dict[int, protocol.TapeEvent]()
        for c in trace.calls:
            module = self.describe_module(c.module)
            events[c.begin] = {"kind": "begin", "module": module, "value": self.pack(c.inputs)}
            events[c.end] = {"kind": "end", "value": self.pack(c.output)}
        events |= {c.begin: {"kind": "softmax", "value": self.pack(c.x)} for c in trace.weights}
        events |= {c.begin: {"kind": "dropout", "value": self.pack(c.x)} for c in trace.dropouts}
        return [events[time] for time in sorted(events)]

    # ---- what is neither number nor text

    def find(self, x: protocol.ModuleReference | protocol.CallbackReference) -> Any:
        """Return what the judge refers to: a module of this process, or a function of its own."""
        return self.described[x["module"]] if "module" in x else Callback(self.wire, **x)

    def pack(self, x: Any) -> Packed:
        return pack(x, self.describe)

    def describe(self, x: Any) -> protocol.Reference | Packed:
        """Describe what is neither number nor text; of a module, also what it holds."""
        if hasattr(x, "__array__") and not callable(x):
            return self.pack(torch.as_tensor(x))
        if isinstance(x, nn.Module):
            return self.describe_module(x)
        self.described[id(x)] = x
        if callable(x):
            name, is_class = getattr(x, "__name__", type(x).__name__), inspect.isclass(x)
            parameters = described_parameters(x)
            return protocol.FunctionReference(
                function=id(x), name=name, is_class=is_class, parameters=parameters
            )
        packed = {name: pack(value, lambda _: None) for name, value in fields(x).items()}
        return protocol.ObjectReference(object=type(x).__name__, fields=packed)

    def describe_module(self, x: nn.Module) -> protocol.ModuleReference:
        """Describe a module, with all that it holds if the judge does not have it yet."""
        if id(x) in self.described:
            return {"module": id(x), "description": None}
        self.described[id(x)] = x
        kind = type(x)
        base: Any = next(c for c in kind.__mro__ if origin(c) == "torch")
        methods = {n: getattr(x, n) for n in METHODS if n not in x._modules and callable(getattr(x, n, None))}
        tensors: list[Any] = [(n, p, True) for n, p in x._parameters.items()]
        tensors += [(n, b, False) for n, b in x._buffers.items()]
        self.described |= {id(p): p for _, p, _ in tensors}
        attributes = {n: p for n, p in vars(x).items() if n[0] != "_" and not callable(p)}
        description = protocol.ModuleDescription(
            name=kind.__name__,
            defined_in=kind.__module__,
            base=base.__name__,
            is_base=kind is base,
            own_forward=kind.forward is not base.forward,
            parameters=described_parameters(x),
            overrides=[n for n in INSPECTION if overrides(x, n)],
            settings=described_parameters(kind),
            methods={n: described_parameters(f) for n, f in methods.items()},
            children=[(n, self.describe_module(m)) for n, m in x._modules.items() if m is not None],
            tensors=[
                (n, id(p), self.pack(p), is_parameter, p is not None and p.requires_grad)
                for n, p, is_parameter in tensors
            ],
            attributes={n: pack(p, lambda _: None) for n, p in attributes.items()},
            training=x.training,
        )
        return {"module": id(x), "description": description}


def described_parameters(function: Any) -> protocol.Parameters:
    """Describe the parameters of a function: name, kind, and whether there is a default."""
    parameters = parameters_of(function)
    rows = [(p.name, int(p.kind), p.default is not p.empty) for p in parameters or ()]
    return None if parameters is None else rows


class Callback(nn.Module):
    """A function of the judge, such as a sub-layer or a dropout of its own."""

    def __init__(self, wire: Wire, callback: int, p: float | None, methods: list[str]):
        super().__init__()
        self.wire, self.number, self.p = wire, callback, p
        self.nothing = nn.Parameter(torch.zeros(()))  # by which a search asks for the device
        for name in methods:
            setattr(self, name, partial(self.ask, name))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.ask("", *args, **kwargs)

    def ask(self, method: str, *args: Any, **kwargs: Any) -> Any:
        arguments = pack([args, kwargs], refuse)
        request = protocol.CallbackRequest(callback=self.number, method=method, arguments=arguments)
        return unpack(self.wire.ask(request), refuse)
