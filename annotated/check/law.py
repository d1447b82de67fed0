"""A law is a property that any implementation keeps. Code passes, or fails with the likely mistake."""

import math
import os
import re
import signal
import threading
import tomllib
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.module import register_module_forward_hook
from torch.utils._python_dispatch import TorchDispatchMode

from annotated.check.adapt import Code, Missing
from annotated.check.report import Finding

Calls = Sequence[tuple[nn.Module, Any, Any]]  # of modules: module, first input, output
MISTAKES = tomllib.loads(Path(__file__).with_name("mistakes.toml").read_text(encoding="utf-8"))


class Failure(Exception):  # noqa: N818 (it is a finding)
    """A law is broken: what was seen, the smallest example with its numbers, the likely mistake.

    Where no mistake is given, `mistakes.toml` names one by the facts, or by what was seen.
    """

    def __init__(self, seen: str, example: str = "", /, mistake: str = "", **facts: Any):
        super().__init__(seen)
        self.seen, self.example, self.mistake, self.facts = seen, example, mistake, facts


@dataclass(frozen=True)
class Law:
    """A property that any implementation keeps."""

    name: str
    part: str  # what it is a law of: a key of `adapt.PARTS`
    lesson: str  # the notebook that explains it
    holds: Callable[[Code], str | None]  # raises Failure; may return a remark

    @property
    def says(self) -> str:
        return " ".join((self.holds.__doc__ or "").split())

    def __call__(self, code: Code, seconds: float = 20) -> Finding:
        """Hold code to this law; whatever the code does, a finding comes back."""
        finding = partial(Finding, self.name, self.says, self.lesson)
        if self.name in code.not_applicable:
            return finding("missing", code.not_applicable[self.name])
        code.guessed = ""
        try:
            with torch.random.fork_rng(devices=[]), torch.no_grad(), guard(seconds):
                torch.manual_seed(0)
                return finding("passed", self.holds(code) or "")
        except Missing as missing:
            return finding("missing", str(missing))
        except Failure as failure:
            mistake = failure.mistake or explain(self.name, **failure.facts) or usual_mistake(failure.seen)
            return finding("failed", failure.seen, failure.example, mistake)
        except NotImplementedError:
            return finding("todo", "not written yet")
        except (Exception, SystemExit, TimeUp) as error:
            if not isinstance(error, TimeUp) and code.is_stub(self.part):  # a part that it uses has the error
                told = crash(error)
                return finding("todo", f"not written yet; raises {told['seen']}", traceback=told["traceback"])
            if code.guessed and isinstance(error, Exception):
                return finding("missing", code.guessed)  # the arguments are the checker's, not the code's
            return finding("failed", **crash(error))


LAWS: list[Law] = []


def law(
    lesson: str, part: str, name: str, laws: list[Law] = LAWS
) -> Callable[[Callable[[Code], str | None]], Law]:
    """Register a function as a law; its docstring is what the law says."""

    def register(holds: Callable[[Code], str | None]) -> Law:
        laws.append(Law(name, part, lesson, holds))
        return laws[-1]

    return register


# ---- holding numbers to what they should be


def close(a: Tensor, b: Tensor, tolerance: float = 1e-4) -> bool:
    return a.shape == b.shape and torch.allclose(a.float(), b.float(), atol=tolerance, rtol=tolerance)


def numbers(x: Tensor) -> str:
    """Show the first numbers of a tensor."""
    return "[" + ", ".join(f"{float(n):.3g}" for n in x.detach().flatten()[: min(6, x.size(-1))]) + "]"


def expect(right: object, seen: str, example: str = "", /, **facts: Any) -> None:
    """Raise Failure unless something is right."""
    if not right:
        raise Failure(seen, example, **facts)


def expect_shape(x: object, *shape: int, **facts: Any) -> None:
    if not isinstance(x, Tensor):
        raise Failure(f"it returns {type(x).__name__}, not a tensor")
    expect(x.shape == shape, f"the output has shape {tuple(x.shape)}, and should be {shape}", **facts)


def compare(
    got: Tensor,
    wanted: Tensor,
    seen: str = "the output is wrong",
    names: Sequence[str] = ("a row",),
    /,
    **facts: Any,
) -> None:
    """Raise Failure, with the row that differs most, unless two tensors agree. The rows may have names."""
    if close(got, wanted):
        return
    if got.shape != wanted.shape:
        seen = f"the shape is {tuple(got.shape)}, and should be {tuple(wanted.shape)}"
        raise Failure(seen, got=got, **facts)
    a, b = got.flatten(0, -2), wanted.flatten(0, -2)
    worst = int((a - b).abs().amax(-1).nan_to_num(torch.inf).argmax())
    example = f"{names[worst % len(names)]}: {numbers(a[worst])}, and should be {numbers(b[worst])}"
    raise Failure(seen, example, got=got, **facts)


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


def explain(law: str, /, got: Any = None, **names: Any) -> str:
    """Name the mistake of `mistakes.toml` that would give exactly this; nothing if none does."""
    names |= {"torch": torch, "math": math, "close": close, "got": got}
    names["softmax"] = lambda x, dim=-1: x.softmax(dim)
    for mistake, expression in MISTAKES.get(names.get("law", law), {}).items():
        with suppress(RuntimeError, IndexError, ValueError, NameError):  # where nobody can make this mistake
            told = torch.as_tensor(eval(expression, names))
            condition = told.dtype == torch.bool and told.dim() == 0
            if told if condition else close(torch.as_tensor(got), told, 1e-3):
                return mistake
    return ""


def usual_mistake(seen: str) -> str:
    """Name the mistake that most often stands behind what was seen."""
    return next((mistake for text, mistake in MISTAKES["seen"].items() if text in seen), "")


# ---- looking into what runs


class Spy(TorchDispatchMode):
    """Keep what every softmax inside gives, wherever it is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if re.fullmatch(r"_(safe_)?softmax\.default", func.__name__):
            self.weights.append(result)
        return result


@contextmanager
def spied() -> Iterator[list[Tensor]]:
    """Collect the attention weights of everything that runs inside."""
    with sdpa_kernel(SDPBackend.MATH), Spy() as spy:
        yield spy.weights


def trace(run: Callable[[], Any]) -> tuple[Any, Calls]:
    """Return what a run gives, and each call of a module in it, in order."""
    calls: list[tuple[nn.Module, Any, Any]] = []
    handle = register_module_forward_hook(lambda m, args, out: calls.append((m, (*args, None)[0], out)))
    try:
        return run(), calls
    finally:
        handle.remove()


# ---- code that hangs, ends the process, or crashes


class TimeUp(BaseException):
    """Code ran for too long. Not an Exception, so that the code under test does not catch it."""


@contextmanager
def guard(seconds: float) -> Iterator[None]:
    """Raise TimeUp in code that computes for so long, or waits five times as long; SystemExit for `os._exit`.

    Only the main thread of a Unix process can be interrupted. A loaded machine costs a computation nothing.
    """
    process, leave = os.getpid(), os._exit

    def refuse(status: int) -> None:
        if os.getpid() != process:  # a worker's own end
            leave(status)
        raise SystemExit(f"os._exit({status})")

    def stop(*_: object) -> None:
        raise TimeUp(f"still running after {seconds:g} seconds")

    before = []
    if hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread():
        for timer, signum, limit in (
            (signal.ITIMER_PROF, signal.SIGPROF, seconds),
            (signal.ITIMER_REAL, signal.SIGALRM, 5 * seconds),
        ):
            before.append((timer, signum, signal.signal(signum, stop)))
            signal.setitimer(timer, limit)
    try:
        os._exit = refuse  # type: ignore[assignment]
        yield
    finally:
        os._exit = leave
        for timer, signum, handler in before:
            signal.setitimer(timer, 0)
            signal.signal(signum, handler)


def crash(error: BaseException) -> dict[str, str]:
    """Say what happened, with the part of the traceback that lies in the code under test."""
    if isinstance(error, TimeUp):
        return {"seen": str(error)}
    others = (str(Path(__file__).parent), str(Path(torch.__file__).parent), "<frozen")
    own = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(others)]
    shown = traceback.format_list(own if len(own) < 6 else [*own[:2], *own[-3:]])
    seen = f"{type(error).__name__}: {error}".splitlines()[0]
    lines = "".join([*shown, *traceback.format_exception_only(error)])
    return {"seen": seen, "mistake": usual_mistake(seen), "traceback": lines}
