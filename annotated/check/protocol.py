"""Values between two processes, as JSON with tensors in it: what is read is never executed."""

import base64
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from annotated.check.assertions import as_plain

MAX_BYTES = 1 << 26  # of a message
NAMES = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool"
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in NAMES.split()}


def pack(x: Any, other: Callable[[Any], Any]) -> Any:
    """Write a value as JSON; `other` writes what is no number, text, tensor, list or dictionary."""
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
        return {"tuple" if isinstance(x, tuple) else "list": [pack(y, other) for y in x]}
    if isinstance(x, Mapping):
        return {"dict": [[pack(key, other), pack(y, other)] for key, y in x.items()]}
    return other(x)


def unpack(x: Any, other: Callable[[dict[str, Any]], Any]) -> Any:
    """Read a value that `pack` has written; `other` reads what its own `other` wrote."""
    if not isinstance(x, dict):
        return x
    if "meta" in x:
        return torch.empty(x["shape"], dtype=DTYPES[x["meta"]], device="meta")
    if "tensor" in x:
        data, dtype = bytearray(base64.b64decode(x["data"])), DTYPES[x["tensor"]]
        flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype, device="cpu")
        return flat.reshape(x["shape"])
    if "tuple" in x:
        return tuple(unpack(y, other) for y in x["tuple"])
    if "list" in x:
        return [unpack(y, other) for y in x["list"]]
    if "dict" in x:
        return {unpack(key, other): unpack(y, other) for key, y in x["dict"]}
    return other(x)


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
    """The other process has ended, or says what nobody understands: all is over."""


class Wire:
    """One end of a conversation: each may ask while it is asked."""

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
