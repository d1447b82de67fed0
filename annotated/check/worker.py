"""The process that executes a graded file: it answers what it is asked, in numbers, and judges nothing."""

import inspect
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, cast

import torch
from torch import nn

from annotated.check.assertions import unchanged
from annotated.check.law import guard, own_frames
from annotated.check.models import METHODS, TELLS, compete, hides
from annotated.check.protocol import Wire, fields, pack, refuse, tensors_in, unpack
from annotated.check.tracing import Trace, record, spied, trace
from annotated.check.user_code import CONVENTIONS, PARTS, Code, origin, parameters_of


class Answers:
    """Parts of a Transformer that can be called by another process."""

    def __init__(self, connection: Connection, load: Callable[[], Code], seconds: float):
        self.wire = Wire(connection, self.answer)
        self.load, self.seconds = load, seconds
        self.known = dict[int, Any]()  # what the other process has heard of, by its number

    def answer(self, question: Any) -> Any:
        """Do what is asked. Whatever goes wrong, there is an answer."""
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
        said = {name: pack(getattr(code, name), self.describe) for name in (*CONVENTIONS, "knows_pad")}
        names = {PARTS[part][0]: self.describe(code[part]) for part in PARTS if part in code}
        return {"said": said, "parts": names}

    def compete(self, question: Any) -> None:
        compete(self.known[question["of"]], question["vocab"])

    def call(self, question: Any) -> Any:
        """Call what is known by a number; return what it gives, what ran in it, and what it wrote into."""
        function = self.known[question["of"]]
        function = getattr(function, question["method"]) if question["method"] else function
        self.change(question)
        given = unpack(question["given"], self.meant)
        tensors = tensors_in(given)
        before = [x.clone() for x in tensors]
        for number in question["needs"]:
            tensors[number].requires_grad_()
        if isinstance(question["random"], int):
            torch.manual_seed(question["random"])
        else:
            torch.set_rng_state(unpack(question["random"], refuse))

        def run() -> Any:
            return function(*given[0], **given[1])

        ran = Trace()
        with ExitStack() as around:
            around.enter_context(torch.set_grad_enabled(question["grad"]))
            if question["meta"]:
                around.enter_context(torch.device("meta"))
            if question["plain"]:
                result, ran = record(run)
            elif question["taped"]:
                around.enter_context(spied(ran))
                result, ran.calls = trace(run, ran)
            else:
                result = run()
        outputs = [x for x in tensors_in(result) if x.requires_grad]
        if question["back"] is not None:
            leaves = [tensors[n] for n in question["needs"]] + [self.known[n] for n in question["learns"]]
            back = unpack(question["back"], self.meant)
            return pack(torch.autograd.grad(outputs, leaves, back, allow_unused=True), self.describe)
        wrote = [n for n, x in enumerate(tensors) if not unchanged(before[n], x)]
        return {
            "result": pack(result, self.describe),
            "learned": [x.requires_grad for x in tensors_in(result)],
            "wrote": [[n, pack(tensors[n], self.describe)] for n in wrote],
            "tape": [*self.tape(ran)],
        }

    def change(self, question: Any) -> None:
        """Take over what the other process did to modules: numbers, a mode, a device."""
        for number, training in question["modules"]:
            self.known[number].train(training)
            if question["moved"]:
                self.known[number].to("meta")
        for number, x in question["changed"]:
            self.known[number].data = unpack(x, self.meant)

    def tape(self, ran: Trace) -> Iterable[Any]:
        """Return what ran, in the order in which it began and ended."""
        events = [(c.begin, {"begin": self.describe(c.module), "given": pack(c.inputs, self.describe)})
                  for c in ran.calls]  # fmt: skip
        events += [(c.end, {"end": pack(c.output, self.describe)}) for c in ran.calls]
        events += [(c.begin, {"softmax": pack(c.x, self.describe)}) for c in ran.weights]
        events += [(c.begin, {"dropout": pack(c.x, self.describe)}) for c in ran.dropouts]
        return (event for _, event in sorted(events, key=lambda e: e[0]))

    # ---- what is no number

    def meant(self, x: dict[str, Any]) -> Any:
        """Return what the other process means: a module that it knows, or a function of its own."""
        return self.known[x["of"]] if "of" in x else Callback(self.wire, **x)

    def describe(self, x: Any) -> Any:
        """Say what something is; of a module, what it holds."""
        if hasattr(x, "__array__") and not callable(x):
            return pack(torch.as_tensor(x), self.describe)
        new = id(x) not in self.known
        self.known[id(x)] = x
        if isinstance(x, nn.Module):
            return {"module": id(x), "is": self.describe_module(x) if new else None}
        if callable(x):
            name = getattr(x, "__name__", type(x).__name__)
            return {"function": id(x), "name": name, "class": inspect.isclass(x), "takes": takes(x)}
        has = {n: pack(y, lambda _: None) for n, y in fields(x).items()}
        return {"object": type(x).__name__, "has": has}

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
            "takes": takes(x),
            "hides": [n for n in TELLS if hides(x, n)],
            "made of": takes(kind),
            "methods": {n: takes(f) for n, f in methods.items()},
            "children": [[n, self.describe(m)] for n, m in x._modules.items() if m is not None],
            "tensors": [
                [n, id(p), pack(p, self.describe), learned, p is not None and p.requires_grad]
                for n, p, learned in tensors
            ],
            "plain": {n: pack(p, lambda _: None) for n, p in plain.items()},
            "training": x.training,
        }


def takes(function: Any) -> list[Any] | None:
    """Say the parameters of a function: name, kind, and whether there is a default."""
    parameters = parameters_of(function)
    return parameters and [[p.name, int(p.kind), p.default is not p.empty] for p in parameters]


class Callback(nn.Module):
    """A function of the other process, such as a sub-layer or a dropout of its own."""

    def __init__(self, wire: Wire, callback: int, p: float | None, methods: list[str]):
        super().__init__()
        self.wire, self.number, self.p = wire, callback, p
        self.nothing = nn.Parameter(torch.zeros(()))  # by which a search asks for the device
        for name in methods:
            setattr(self, name, partial(self.call_there, name))

    def forward(self, *given: Any, **named: Any) -> Any:
        return self.call_there("", *given, **named)

    def call_there(self, method: str, *given: Any, **named: Any) -> Any:
        asked = {"callback": self.number, "method": method, "given": pack([given, named], refuse)}
        return unpack(self.wire.ask(asked), refuse)
