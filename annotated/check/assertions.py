"""Hold numbers to what they should be, and show them."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

# By law: a mistake, and what tells from the law's facts whether it was made. A condition must hold; anything
# else must equal what the code under test gave (`got`). The first that fits is named.
Predicate = Callable[[SimpleNamespace], Any]
Predicates = dict[str, dict[str, Predicate]]


class Failure(Exception):  # noqa: N818 (it is a finding)
    """A law is broken: what was seen, the smallest example with its numbers, the likely mistake.

    Where no mistake is given, one is found by the facts, or by what was seen.
    """

    def __init__(self, seen: str, example: str = "", /, mistake: str = "", **facts: Any):
        super().__init__(seen)
        self.seen, self.example, self.mistake, self.facts = seen, example, mistake, facts


def as_plain(x: Any) -> Any:
    """Return a copy of a tensor, which nobody else can change, of PyTorch's own class."""
    if not isinstance(x, Tensor):
        return x
    with torch._C.DisableTorchFunctionSubclass():  # another class may say that it equals anything
        return Tensor.as_subclass(x, Tensor).clone()


def unchanged(x: Tensor, copy: Tensor) -> bool:
    """Tell whether nothing has written into a copy: PyTorch counts what does, but for `.data` and NumPy."""
    return copy._version == 0 and (x.is_meta or torch.equal(x.nan_to_num(), copy.nan_to_num()))


def close(a: Tensor, b: Tensor, tolerance: float = 1e-4) -> bool:
    same = isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape
    return same and torch.allclose(a.float(), b.float(), atol=tolerance, rtol=tolerance)


def softmax(x: Tensor, dim: int = -1) -> Tensor:
    return x.softmax(dim)


def numbers(x: Tensor) -> str:
    """Show the first numbers of a tensor."""
    return "[" + ", ".join(f"{float(n):.3g}" for n in x.detach().flatten()[: min(6, x.size(-1))]) + "]"


def rows_of(mask: Tensor) -> str:
    return " / ".join("".join(str(int(x)) for x in row) for row in mask)


def expect(right: object, seen: str, example: str = "", /, **facts: Any) -> None:
    """Raise Failure unless something is right."""
    if not right:
        raise Failure(seen, example, **facts)


def expect_shape(x: Any, *shape: int, **facts: Any) -> None:
    expect(isinstance(x, Tensor), f"it returns {type(x).__name__}, not a tensor")
    expect(x.shape == shape, f"the output has shape {tuple(x.shape)}, and should be {shape}", **facts)


def compare(got: Tensor, expected: Tensor, seen: str = "the output is wrong", /, **facts: Any) -> None:
    """Raise Failure, with the row that differs most, unless two tensors agree."""
    expect(isinstance(got, Tensor), f"it returns {type(got).__name__}, not a tensor")
    shapes = f"the shape is {tuple(got.shape)}, and should be {tuple(expected.shape)}"
    expect(got.shape == expected.shape, shapes, got=got, **facts)
    a, b = (x.reshape(-1, x.size(-1)) for x in (got, expected))
    worst = int((a - b).abs().amax(-1).nan_to_num(torch.inf).argmax())
    row = f"a row: {numbers(a[worst])}, and should be {numbers(b[worst])}"
    expect(close(got, expected), seen, row, got=got, **facts)


def was_made(predicate: Predicate, facts: SimpleNamespace) -> bool:
    """Tell whether a mistake was made, by its predicate."""
    try:
        result = torch.as_tensor(predicate(facts))
        is_condition = result.dtype == torch.bool and result.dim() == 0
        return bool(result) if is_condition else close(torch.as_tensor(facts.got), result, 1e-3)
    except (RuntimeError, IndexError, ValueError, AttributeError, ArithmeticError):
        return False  # where these facts are not known, nobody can make this mistake


def each(text: str, predicate: Callable[[Any, SimpleNamespace], Any], *values: Any) -> dict[str, Predicate]:
    """Return a mistake for each value, which its text names."""
    return {text.format(x): partial(predicate, x) for x in values}
