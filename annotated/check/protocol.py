"""What the judge and the worker say to each other: JSON with tensors in it, of which nothing is executed.

A message is {"ask": a request} or {"reply": a reply}. The judge asks with a `Request`. While the worker
answers a `CallRequest`, it may itself ask with a `CallbackRequest`. Where the worker meets an error, it
replies `Raised`. These types are what our worker keeps to. A submission may make its process send any JSON,
so the judge relies on nothing that it receives: what does not fit raises an error, and so breaks a law.
"""

import base64
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Literal, NotRequired, TypedDict, final

import torch
from torch import Tensor

from annotated.check.assertions import as_plain

MAX_BYTES = 1 << 26  # of a message
NAMES = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool"
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in NAMES.split()}

Packed = Any  # a value that `pack` has written, with a `Reference` for what is neither number nor text
Parameters = list[tuple[str, int, bool]] | None  # name, kind, has it a default; None: not known


class LoadRequest(TypedDict):
    do: Literal["load"]  # execute the file; the reply is a `LoadReply`


class LoadReply(TypedDict):
    conventions: dict[str, Packed]
    parts: dict[str, Packed]


class RandomizeRequest(TypedDict):
    do: Literal["randomize scores"]  # as `models.randomize_scores` does; the reply is None
    module: int
    vocab: int


class CallRequest(TypedDict):
    do: Literal["call"]  # the reply is a `CallReply`, or if gradients come with it, those of what needs some
    callee: int  # a module, class or function, which the worker has described with this number
    method: str  # of the callee; "": it is called itself
    arguments: Packed  # a list and a dictionary
    need_grad: list[int]  # which tensors of the arguments need gradients
    learning: list[int]  # which parameters of modules do, by their numbers
    training: list[tuple[int, bool]]  # modules, and whether they are in training mode
    to_meta: bool  # whether these modules move to the meta device
    changed: list[tuple[int, Packed]]  # parameters and buffers that the judge has changed, and their values
    random: Packed  # a seed, or the state of the random generator
    grad_enabled: bool
    on_meta: bool  # whether new tensors are made on the meta device
    no_dropout: bool
    taped: bool  # whether the reply has a tape
    gradients: Packed  # of the differentiable tensors of the result, or None


class CallReply(TypedDict):
    result: Packed
    differentiable: list[bool]  # of each tensor of the result
    written: list[tuple[int, Packed]]  # tensors of the arguments that it wrote into, and their values
    tape: list["TapeEvent"]  # what ran, in order


class TapeEvent(TypedDict):
    kind: Literal["begin", "end", "softmax", "dropout"]
    value: Packed  # the inputs of a module, its output, what softmax gave, what dropout acts on
    module: NotRequired["ModuleReference"]  # which begins


class CallbackRequest(TypedDict):
    callback: int  # call a function of the judge; the reply is its packed result
    method: str
    arguments: Packed


class Raised(TypedDict):
    error: str
    kinds: list[str]  # the names of its class and of all classes above it
    frames: list[tuple[str, int | None, str, str | None]]  # file, line number, function, the line's text


Request = LoadRequest | RandomizeRequest | CallRequest


class ModuleReference(TypedDict):
    module: int
    description: "ModuleDescription | None"  # None: the judge has it already


@final
class FunctionReference(TypedDict):
    function: int
    name: str
    is_class: bool
    parameters: Parameters


@final
class CallbackReference(TypedDict):
    callback: int
    p: float | None  # the rate of a dropout
    methods: list[str]


@final
class ObjectReference(TypedDict):
    object: str  # the name of its class
    fields: dict[str, Packed]


Reference = ModuleReference | FunctionReference | ObjectReference  # in what the worker sends


class ModuleDescription(TypedDict):
    name: str  # of its class
    defined_in: str
    base: str  # the class of PyTorch that it is derived from
    is_base: bool  # whether its class is this one
    own_forward: bool  # whether it has another `forward` than its base
    parameters: Parameters  # of its `forward`
    settings: Parameters  # of its class
    overrides: list[str]  # methods of `models.INSPECTION` that are its own
    methods: dict[str, Parameters]  # those of `models.METHODS` that it has
    children: list[tuple[str, ModuleReference]]
    tensors: list[tuple[str, int, Packed, bool, bool]]  # name, number, value, is_parameter, requires_grad
    attributes: dict[str, Packed]
    training: bool


def pack(x: Any, refer: Callable[[Any], Packed]) -> Packed:
    """Write a value as JSON; `refer` writes what is no number, text, tensor, list or dictionary."""
    if x is None or isinstance(x, bool | int | float | str):
        return x
    if isinstance(x, Tensor):
        x = as_plain(x.to_padded_tensor(0.0) if x.is_nested else x.detach())
        name, shape = str(x.dtype).removeprefix("torch."), [*x.shape]
        if x.is_meta:
            return {"meta": name, "shape": shape}
        data = x.to_dense().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return {"tensor": name, "shape": shape, "data": base64.b64encode(data).decode()}
    if isinstance(x, list | tuple):
        return {"tuple" if isinstance(x, tuple) else "list": [pack(y, refer) for y in x]}
    if isinstance(x, Mapping):
        return {"dict": [[pack(key, refer), pack(y, refer)] for key, y in x.items()]}
    return refer(x)


def unpack(x: Packed, find: Callable[[Any], Any]) -> Any:
    """Read a value that `pack` has written; `find` reads what its `refer` wrote."""
    if not isinstance(x, dict):
        return x
    if "meta" in x:
        return torch.empty(x["shape"], dtype=DTYPES[x["meta"]], device="meta")
    if "tensor" in x:
        data, dtype = bytearray(base64.b64decode(x["data"])), DTYPES[x["tensor"]]
        flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype, device="cpu")
        return flat.reshape(x["shape"])
    if "tuple" in x:
        return tuple(unpack(y, find) for y in x["tuple"])
    if "list" in x:
        return [unpack(y, find) for y in x["list"]]
    if "dict" in x:
        return {unpack(key, find): unpack(y, find) for key, y in x["dict"]}
    return find(x)


def refuse(x: Any) -> Any:
    raise TypeError(f"a {type(x).__name__} is neither numbers nor text")


def fields(x: Any) -> dict[str, Any]:
    """Return the public attributes of an object, without its methods."""
    public = {name: getattr(x, name, None) for name in dir(x) if not name.startswith("_")}
    return {name: value for name, value in public.items() if not callable(value)}


def mapped(x: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Change each tensor in a value."""
    if isinstance(x, Tensor):
        return change(x)
    if isinstance(x, list | tuple):
        return [mapped(y, change) for y in x] if isinstance(x, list) else tuple(mapped(y, change) for y in x)
    if isinstance(x, dict):
        return {key: mapped(y, change) for key, y in x.items()}
    if hasattr(x, "__dict__") and not callable(x):
        for name, y in fields(x).items():
            if isinstance(y, Tensor):
                vars(x)[name] = change(y)
    return x


def tensors_in(x: Any) -> list[Tensor]:
    """Return the tensors in a value, in the order in which `mapped` changes them."""
    tensors: list[Tensor] = []
    mapped(x, lambda tensor: tensors.append(tensor) or tensor)  # type: ignore[func-returns-value]
    return tensors


class Gone(BaseException):
    """The other process has ended, or its message is not JSON: the conversation is over."""


class Wire:
    """One end of a conversation, which may itself ask while it answers."""

    def __init__(self, connection: Connection, answer: Callable[[Any], Any]):
        self.connection, self.answer = connection, answer

    def send(self, message: Any) -> None:
        try:
            self.connection.send_bytes(json.dumps(message).encode())
        except OSError as error:
            raise Gone from error

    def receive(self) -> Any:
        try:
            return json.loads(self.connection.recv_bytes(MAX_BYTES))
        except (EOFError, OSError, ValueError, RecursionError) as error:
            raise Gone from error

    def ask(self, question: Any) -> Any:
        """Ask, answer what is asked meanwhile, and return the reply."""
        self.send({"ask": question})
        while "reply" not in (message := self.receive()):
            self.send({"reply": self.answer(message["ask"])})
        return message["reply"]

    def serve(self) -> None:
        """Answer until the other end is closed."""
        with suppress(Gone):
            while True:
                self.send({"reply": self.answer(self.receive()["ask"])})
