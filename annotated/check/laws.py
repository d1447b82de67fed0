"""What laws share: their list, comparing numbers, and naming the mistake that explains a difference."""

import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from annotated.check.adapt import Code
from annotated.check.report import Failure, Law

LAWS: list[Law] = []
MISTAKES = tomllib.loads(Path(__file__).with_name("mistakes.toml").read_text(encoding="utf-8"))


def law(
    lesson: str, part: str, name: str, laws: list[Law] = LAWS
) -> Callable[[Callable[[Code], str | None]], Law]:
    """Register a function as a law; its docstring is what the law says."""

    def register(holds: Callable[[Code], str | None]) -> Law:
        laws.append(Law(name, part, lesson, holds))
        return laws[-1]

    return register


def close(a: Tensor, b: Tensor, tolerance: float = 1e-4) -> bool:
    return a.shape == b.shape and torch.allclose(a.float(), b.float(), atol=tolerance, rtol=tolerance)


def numbers(x: Tensor) -> str:
    """Show the first numbers of a tensor."""
    return "[" + ", ".join(f"{float(n):.3g}" for n in x.detach().flatten()[: min(6, x.size(-1))]) + "]"


def softmax(x: Tensor, dim: int = -1) -> Tensor:
    return x.softmax(dim)


def explain(law: str, got: Tensor, tolerance: float = 1e-3, **names: Any) -> str:
    """Name the mistake of `mistakes.toml` that would give exactly this; nothing if none does."""
    names |= {"torch": torch, "F": F, "math": math, "softmax": softmax, "close": close, "got": got}
    for mistake, expression in MISTAKES[law].items():
        try:
            if close(got, torch.as_tensor(eval(expression, names)), tolerance):
                return mistake
        except (RuntimeError, IndexError, ValueError):  # shapes in which nobody can make this mistake
            continue
    return ""


def compare(got: Tensor, wanted: Tensor, law: str, seen: str, what: str, **names: Any) -> None:
    """Raise Failure unless two tensors agree, with the mistake that explains the difference."""
    if close(got, wanted):
        return
    mistake = explain(law, got, **names)
    if got.shape != wanted.shape:
        raise Failure(f"the shape is {tuple(got.shape)}, and should be {tuple(wanted.shape)}", "", mistake)
    rows, right = got.flatten(0, -2), wanted.flatten(0, -2)
    worst = (rows - right).abs().amax(-1).nan_to_num(torch.inf).argmax()
    raise Failure(seen, f"{what}: {numbers(rows[worst])}, and should be {numbers(right[worst])}", mistake)
