"""Look into what runs: calls of modules, attention weights, and where dropout acts."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from annotated.check.assertions import close, expect
from annotated.check.mistakes import explain
from annotated.check.user_code import takes, tensor_of


@dataclass(eq=False)
class Call:
    """A call of a module, softmax or dropout, with copies of its tensors, which code may change in place."""

    module: nn.Module  # of a softmax or dropout: NOTHING
    inputs: list[Tensor]  # of a softmax, the weights that it gives
    begin: int  # when it began and ended, among all that was recorded
    end: int = -1
    output: Any = None

    @property
    def x(self) -> Any:
        return next(iter(self.inputs), None)

    def encloses(self, other: "Call") -> bool:
        """Tell whether another call ran during this one."""
        return self.begin < other.begin and other.end < self.end


Calls = Sequence[Call]
NOTHING = nn.Identity()


@dataclass
class Trace:
    """What ran, in order: calls of modules as they ended, softmaxes, dropouts."""

    calls: list[Call] = field(default_factory=list)
    weights: list[Call] = field(default_factory=list)
    dropouts: list[Call] = field(default_factory=list)
    time: int = 0

    def now(self) -> int:
        self.time += 1
        return self.time

    def spot(self, x: Tensor) -> Call:
        now = self.now()
        return Call(NOTHING, [x.detach().clone()], begin=now, end=now)


def copies(values: Any) -> list[Tensor]:
    """Copy the tensors among the arguments of a call."""
    return [x.detach().clone() for x in tree_leaves([*values]) if isinstance(x, Tensor)]


class NoDropout(TorchFunctionMode):
    """Switch dropout off and record what it acts on, so that all passes compute the same."""

    def __init__(self, trace: Trace):
        super().__init__()
        self.trace = trace

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {**(kwargs or {})}
        if func in (F.dropout, torch.dropout):
            x = args[0] if args else kwargs["input"]
            self.trace.dropouts.append(self.trace.spot(x))
            return x
        if func is F.scaled_dot_product_attention:
            kwargs |= {"dropout_p": 0.0} if "dropout_p" in kwargs else {}
        if func is F.multi_head_attention_forward:
            kwargs["training"] = False
        return func(*args, **kwargs)


@contextmanager
def in_mode(module: nn.Module, training: bool) -> Iterator[None]:
    """Put a module in training mode without dropout, or leave it in evaluation mode."""
    module.train(training)
    with NoDropout(Trace()) if training else nullcontext():
        yield
    module.eval()


@contextmanager
def collect_weights(trace: Trace | None = None) -> Iterator[list[Tensor]]:
    """Collect what every softmax gives, wherever it is computed: the attention weights."""
    weights: list[Tensor] = []

    def look(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if re.fullmatch(r"_(safe_)?softmax\.default", func.__name__):
            weights.append(result.clone())
            if trace is not None:
                trace.weights.append(trace.spot(result))
        return result

    Spy = type("Spy", (TorchDispatchMode,), {})
    Spy.__torch_dispatch__ = look  # type: ignore[attr-defined]  # in a class's body it would load the compiler

    with sdpa_kernel(SDPBackend.MATH), Spy():
        yield weights


def trace_all(run: Callable[[], Any]) -> tuple[Any, Trace]:
    """Return what a run without dropout gives, and all that is recorded of it."""
    recorded = Trace()
    with NoDropout(recorded), collect_weights(recorded):
        out, _ = trace_calls(run, recorded)
    return out, recorded


def trace_calls(run: Callable[[], Any], recorded: Trace | None = None) -> tuple[Any, list[Call]]:
    """Return what a run gives, and each call of a module in it, in order of their ends."""
    recorded, running = recorded or Trace(), list[Call]()

    def before(module: nn.Module, args: Any) -> None:
        running.append(Call(module, copies(args), recorded.now()))

    def after(module: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
        call = running.pop()
        call.inputs += copies(kwargs.values())
        call.end, call.output = recorded.now(), out
        if isinstance(result := tensor_of(out, strict=False), Tensor):
            call.output = result.detach().clone()
        recorded.calls.append(call)

    ends = register_module_forward_hook(after, with_kwargs=True)
    with register_module_forward_pre_hook(before), ends:
        return run(), recorded.calls


def expect_modes(part: Any, build: Callable[[float], nn.Module], run: Callable[[nn.Module], Tensor]) -> None:
    """Raise Failure unless two runs agree in evaluation and, where a part takes dropout, not in training."""
    module = build(0.0)
    out = run(module)
    expect(close(out, run(module)), "the same input gives two outputs in evaluation mode")
    if takes(part, "drop"):
        expect(close(out, run(module.train())), "with dropout 0, training differs from evaluation")
        module = build(0.5).train()
        expect(not close(run(module), run(module)), "dropout changes nothing in training")


def unreached(module: nn.Module) -> list[str]:
    """Return the parameters that no gradient has reached, and the parts of fused ones, such as W^Q."""
    names = []
    for name, p in module.named_parameters():
        grad = torch.zeros_like(p) if p.grad is None else p.grad
        fused = p.dim() == 2 and p.size(0) in (2 * p.size(1), 3 * p.size(1))
        parts = grad.split(p.size(1)) if fused else grad if p.dim() > 2 and len(p) <= 4 else ()
        if p.requires_grad and not grad.any():
            names.append(name)
        elif p.requires_grad:
            names += [f"part {n} of {name}" for n, part in enumerate(parts) if not part.any()]
    return names


def normalized(x: Tensor, calls: Calls = ()) -> list[Tensor]:
    """Normalize as PyTorch does, as the classic with its unbiased deviation, and as norms in a trace did."""
    y = F.layer_norm(x, x.shape[-1:])
    norms = [c for c in calls if "norm" in type(c.module).__name__.lower() and c.inputs]
    traced = [c.output for c in norms if close(c.x, x, 1e-5)]
    return [y, y * math.sqrt(1 - 1 / x.size(-1)), *traced]


def residual_mistake(got: Tensor, x: Tensor, f: Callable[[Tensor], Tensor]) -> str:
    """Name what is done to x and a sub-layer f instead, whichever norm it is."""
    norms = [lambda z, i=i: normalized(z)[i] for i in (0, 1)]
    return max(explain("residual and norm", "", got=got, x=x, f=f, norm=norm) for norm in norms)


def wrapping(x: Tensor, entered: Tensor, left: Tensor, out: Tensor, calls: Calls) -> str:
    """Tell how residual and norm stand inside a sub-layer, around what entered and left its maps."""
    if close(out, x + left) and any(close(entered, y) for y in normalized(x, calls)):
        return "with residual connection and pre-norm inside"
    if any(close(out, y, 1e-3) for y in normalized(x + left, calls)):
        return "with residual connection and post-norm inside"
    return ""
