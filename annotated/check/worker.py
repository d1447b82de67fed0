"""The process that executes a submission: it answers the judge with numbers, and judges nothing."""

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, cast

import torch
from torch import nn

from annotated.check.assertions import unchanged
from annotated.check.law import guard, own_frames
from annotated.check.models import INSPECTION, METHODS, compete, overrides
from annotated.check.protocol import Wire, fields, pack, refuse, tensors_in, unpack
from annotated.check.tracing import Trace, collect_weights, trace_all, trace_calls
from annotated.check.user_code import CONVENTIONS, PARTS, Code, origin, parameters_of


class Worker:
    """Parts of a Transformer that the judge can call."""

    def __init__(self, connection: Connection, load: Callable[[], Code], seconds: float):
        self.wire = Wire(connection, self.answer)
        self.load, self.seconds = load, seconds
        self.known = dict[int, Any]()  # what the judge knows of, by its number

    def answer(self, question: Any) -> Any:
        """Answer a question of the judge, if need be with the error that was raised."""
        try:
            with guard(self.seconds):
                do = {"call": self.call, "load": self.parts, "compete": self.compete}
                return do[question["do"]](question)
        except BaseException as error:
            frames = [(f.filename, f.lineno, f.name, f.line) for f in own_frames(error)]
            kinds = [kind.__name__ for kind in type(error).__mro__]
            return {"error": str(error), "kinds": kinds, "frames": frames}

    def parts(self, _: Any) -> Any:
        """Execute the file; return its conventions, and which parts it has."""
        code = self.load()
        names = (*CONVENTIONS, "knows_pad")
        conventions = {name: pack(getattr(code, name), self.describe) for name in names}
        parts = {PARTS[part][0]: self.describe(code.find(part)) for part in PARTS if code.has(part)}
        return {"conventions": conventions, "parts": parts}

    def compete(self, question: Any) -> None:
        compete(self.known[question["of"]], question["vocab"])

    def call(self, question: Any) -> Any:
        """Call what has a number; return its result, what ran in it, and the arguments that it wrote into."""
        function = self.known[question["of"]]
        function = getattr(function, question["method"]) if question["method"] else function
        self.change(question)
        args, kwargs = unpack(question["arguments"], self.meant)
        tensors = tensors_in([args, kwargs])
        before = [x.clone() for x in tensors]
        for number in question["needed"]:
            tensors[number].requires_grad_()
        if isinstance(question["random"], int):
            torch.manual_seed(question["random"])
        else:
            torch.set_rng_state(unpack(question["random"], refuse))

        recorded = Trace()
        with ExitStack() as modes:
            modes.enter_context(torch.set_grad_enabled(question["grad"]))
            if question["meta"]:
                modes.enter_context(torch.device("meta"))
            if question["no dropout"]:
                result, recorded = trace_all(lambda: function(*args, **kwargs))
            elif question["taped"]:
                modes.enter_context(collect_weights(recorded))
                result, _ = trace_calls(lambda: function(*args, **kwargs), recorded)
            else:
                result = function(*args, **kwargs)
        if question["gradients"] is not None:
            outputs = [x for x in tensors_in(result) if x.requires_grad]
            leaves = [tensors[n] for n in question["needed"]] + [self.known[n] for n in question["learned"]]
            gradients = unpack(question["gradients"], self.meant)
            return pack(torch.autograd.grad(outputs, leaves, gradients, allow_unused=True), self.describe)
        written = [n for n, x in enumerate(tensors) if not unchanged(before[n], x)]
        return {
            "result": pack(result, self.describe),
            "differentiable": [x.requires_grad for x in tensors_in(result)],
            "written": [[n, pack(tensors[n], self.describe)] for n in written],
            "tape": self.tape(recorded),
        }

    def change(self, question: Any) -> None:
        """Take over what the judge did to modules: values, a mode, a device."""
        for number, training in question["modules"]:
            self.known[number].train(training)
            if question["moved"]:
                self.known[number].to("meta")
        for number, x in question["changed"]:
            self.known[number].data = unpack(x, self.meant)

    def tape(self, recorded: Trace) -> list[Any]:
        """Return what ran, in the order in which it began and ended."""
        events: dict[int, Any] = {}
        for c in recorded.calls:
            events[c.begin] = {"begin": self.describe(c.module), "inputs": pack(c.inputs, self.describe)}
            events[c.end] = {"end": pack(c.output, self.describe)}
        events |= {c.begin: {"softmax": pack(c.x, self.describe)} for c in recorded.weights}
        events |= {c.begin: {"dropout": pack(c.x, self.describe)} for c in recorded.dropouts}
        return [events[time] for time in sorted(events)]

    # ---- what is no number

    def meant(self, x: dict[str, Any]) -> Any:
        """Return what the judge means: a module that it knows, or a function of its own."""
        return self.known[x["of"]] if "of" in x else Callback(self.wire, **x)

    def describe(self, x: Any) -> Any:
        """Describe what is neither number nor text; of a module, also what it holds."""
        if hasattr(x, "__array__") and not callable(x):
            return pack(torch.as_tensor(x), self.describe)
        new = id(x) not in self.known
        self.known[id(x)] = x
        if isinstance(x, nn.Module):
            return {"module": id(x), "description": self.describe_module(x) if new else None}
        if callable(x):
            name, parameters = getattr(x, "__name__", type(x).__name__), described_parameters(x)
            return {"function": id(x), "name": name, "class": inspect.isclass(x), "parameters": parameters}
        packed = {name: pack(value, lambda _: None) for name, value in fields(x).items()}
        return {"object": type(x).__name__, "fields": packed}

    def describe_module(self, x: nn.Module) -> Any:
        kind = type(x)
        base = next(c for c in kind.__mro__ if origin(c) == "torch")
        methods = {n: getattr(x, n) for n in METHODS if n not in x._modules and callable(getattr(x, n, None))}
        tensors: list[Any] = [(n, p, True) for n, p in x._parameters.items()]
        tensors += [(n, b, False) for n, b in x._buffers.items()]
        self.known |= {id(p): p for _, p, _ in tensors}
        plain = {n: p for n, p in vars(x).items() if n[0] != "_" and not callable(p)}
        return {
            "name": kind.__name__,
            "from": kind.__module__,
            "base": base.__name__,
            "exact": kind is base,
            "own forward": cast(Any, kind).forward is not cast(Any, base).forward,
            "parameters": described_parameters(x),
            "overrides": [n for n in INSPECTION if overrides(x, n)],
            "settings": described_parameters(kind),
            "methods": {n: described_parameters(f) for n, f in methods.items()},
            "children": [[n, self.describe(m)] for n, m in x._modules.items() if m is not None],
            "tensors": [
                [n, id(p), pack(p, self.describe), learned, p is not None and p.requires_grad]
                for n, p, learned in tensors
            ],
            "plain": {n: pack(p, lambda _: None) for n, p in plain.items()},
            "training": x.training,
        }


def described_parameters(function: Any) -> list[Any] | None:
    """Describe the parameters of a function: name, kind, and whether there is a default."""
    parameters = parameters_of(function)
    return parameters and [[p.name, int(p.kind), p.default is not p.empty] for p in parameters]


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
        question = {"callback": self.number, "method": method, "arguments": arguments}
        return unpack(self.wire.ask(question), refuse)
