"""Look into what runs: calls of modules, attention weights, norms and residuals."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.module import register_module_forward_hook
from torch.utils._python_dispatch import TorchDispatchMode

from annotated.check.law import close, expect

Calls = Sequence[tuple[nn.Module, Any, Any]]  # of modules: module, first input, output


@contextmanager
def spied() -> Iterator[list[Tensor]]:
    """Collect what every softmax gives, wherever it is computed: the attention weights."""
    weights: list[Tensor] = []

    class Spy(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if re.fullmatch(r"_(safe_)?softmax\.default", func.__name__):
                weights.append(result)
            return result

    with sdpa_kernel(SDPBackend.MATH), Spy():
        yield weights


def trace(run: Callable[[], Any]) -> tuple[Any, Calls]:
    """Return what a run gives, and each call of a module in it, in order."""
    calls: list[tuple[nn.Module, Any, Any]] = []
    handle = register_module_forward_hook(lambda m, args, out: calls.append((m, (*args, None)[0], out)))
    try:
        return run(), calls
    finally:
        handle.remove()


def expect_dropout(module: nn.Module, run: Callable[[], Tensor]) -> None:
    """Raise Failure unless two runs of a module in training differ. Leaves it in training mode."""
    module.train()
    expect(not close(run(), run()), "dropout changes nothing in training")


def normalized(x: Tensor, calls: Calls = ()) -> list[Tensor]:
    """Normalize as PyTorch does, as the classic with its unbiased deviation, and as norms in a trace did."""
    y = F.layer_norm(x, x.shape[-1:])
    norms = [(a, b) for m, a, b in calls if "norm" in type(m).__name__.lower() and isinstance(a, Tensor)]
    return [y, y * math.sqrt(1 - 1 / x.size(-1)), *(b for a, b in norms if close(a, x))]


def wrapping(x: Tensor, entered: Tensor, left: Tensor, out: Tensor, calls: Calls) -> str:
    """Tell how residual and norm stand inside a sub-layer, around what entered and left its maps."""
    if close(out, x + left) and any(close(entered, y) for y in normalized(x, calls)):
        return "with residual connection and pre-norm inside"
    if any(close(out, y, 1e-3) for y in normalized(x + left, calls)):
        return "with residual connection and post-norm inside"
    return ""
