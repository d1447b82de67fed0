"""Hold numbers to what they should be, and show them."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

# For each law its usual mistakes, each with a function of a failure's evidence. It returns a condition, or
# what the mistake would give, to compare with what the code gave, `got`. The first that fits is named.
Predicate = Callable[[SimpleNamespace], Any]
Predicates = dict[str, dict[str, Predicate]]


class Failure(Exception):  # noqa: N818 (it is a finding)
    """A broken law: a message, the smallest example with its numbers, and the likely mistake.

    Where no mistake is given, `explain` finds one by the evidence, values with names, or by the message.
    """

    def __init__(self, message: str, example: str = "", /, mistake: str = "", **evidence: Any):
        super().__init__(message)
        self.message, self.example, self.mistake, self.evidence = message, example, mistake, evidence


def as_plain(x: Any) -> Any:
    """Copy a tensor as PyTorch's own class, so that the code under test cannot change it."""
    if not isinstance(x, Tensor):
        return x
    with torch._C.DisableTorchFunctionSubclass():  # another class may say that it equals anything
        return Tensor.as_subclass(x, Tensor).clone()


def unchanged(x: Tensor, copy: Tensor) -> bool:
    """Tell whether nothing has written into a copy. PyTorch counts writes, except by `.data` and NumPy."""
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


def expect(right: object, message: str, example: str = "", /, **evidence: Any) -> None:
    """Raise Failure unless something is right."""
    if not right:
        raise Failure(message, example, **evidence)


def expect_shape(x: Any, *shape: int, **evidence: Any) -> None:
    expect(isinstance(x, Tensor), f"it returns {type(x).__name__}, not a tensor")
    expect(x.shape == shape, f"the output has shape {tuple(x.shape)}, and should be {shape}", **evidence)


def compare(got: Tensor, expected: Tensor, message: str = "the output is wrong", /, **evidence: Any) -> None:
    """Raise Failure, with the row that differs most, unless two tensors agree."""
    expect(isinstance(got, Tensor), f"it returns {type(got).__name__}, not a tensor")
    shapes = f"the shape is {tuple(got.shape)}, and should be {tuple(expected.shape)}"
    expect(got.shape == expected.shape, shapes, got=got, **evidence)
    a, b = (x.reshape(-1, x.size(-1)) for x in (got, expected))
    worst = int((a - b).abs().amax(-1).nan_to_num(torch.inf).argmax())
    row = f"a row: {numbers(a[worst])}, and should be {numbers(b[worst])}"
    expect(close(got, expected), message, row, got=got, **evidence)


def was_made(predicate: Predicate, evidence: SimpleNamespace) -> bool:
    """Tell whether a mistake was made, by its predicate."""
    try:
        result = torch.as_tensor(predicate(evidence))
        is_condition = result.dtype == torch.bool and result.dim() == 0
        return bool(result) if is_condition else close(torch.as_tensor(evidence.got), result, 1e-3)
    except (RuntimeError, IndexError, ValueError, AttributeError, ArithmeticError):
        return False  # the evidence does not have what the predicate reads


def each(text: str, predicate: Callable[[Any, SimpleNamespace], Any], *values: Any) -> dict[str, Predicate]:
    """Return a mistake for each value, which its text names."""
    return {text.format(x): partial(predicate, x) for x in values}
