"""A law is a property that any implementation keeps. Code passes, or fails with the likely mistake."""

import math
import signal
import threading
import tomllib
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from annotated.check.adapt import Code, Missing
from annotated.check.report import Finding

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

    def __call__(self, code: Code, seconds: float = 20) -> Finding:
        """Hold code to this law; whatever the code does, a finding comes back."""
        finding = partial(Finding, self.name, " ".join((self.holds.__doc__ or "").split()), self.lesson)
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
            mistake = failure.mistake or explain(self.name, failure.seen, **failure.facts)
            return finding("failed", failure.seen, failure.example, mistake)
        except (Exception, SystemExit, TimeUp) as error:
            unsupported = "not implemented for" in str(error)  # PyTorch's: no such operation for a type
            if isinstance(error, NotImplementedError) and not unsupported:
                return finding("todo", "not written yet")
            if not isinstance(error, TimeUp) and code.is_stub(self.part):  # a part that it uses has the error
                told = crash(error)
                return finding("todo", f"not written yet; raises {told['seen']}", traceback=told["traceback"])
            if code.guessed and isinstance(error, Exception):
                return finding("missing", code.guessed)  # the arguments are the checker's, not the code's
            return finding("failed", **crash(error))


LAWS: list[Law] = []


def law(lesson: str, part: str, name: str) -> Callable[[Callable[[Code], str | None]], Law]:
    """Register a function as a law; its docstring is what the law says."""

    def register(holds: Callable[[Code], str | None]) -> Law:
        LAWS.append(Law(name, part, lesson, holds))
        return LAWS[-1]

    return register


# ---- holding numbers to what they should be


def close(a: Tensor, b: Tensor, tolerance: float = 1e-4) -> bool:
    return a.shape == b.shape and torch.allclose(a.float(), b.float(), atol=tolerance, rtol=tolerance)


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


def compare(got: Tensor, wanted: Tensor, seen: str = "the output is wrong", /, **facts: Any) -> None:
    """Raise Failure, with the row that differs most, unless two tensors agree."""
    shapes = f"the shape is {tuple(got.shape)}, and should be {tuple(wanted.shape)}"
    expect(got.shape == wanted.shape, shapes, got=got, **facts)
    a, b = (x.reshape(-1, x.size(-1)) for x in (got, wanted))
    worst = int((a - b).abs().amax(-1).nan_to_num(torch.inf).argmax())
    row = f"a row: {numbers(a[worst])}, and should be {numbers(b[worst])}"
    expect(close(got, wanted), seen, row, got=got, **facts)


def explain(law: str, seen: str, /, got: Any = None, **names: Any) -> str:
    """Name the mistake of `mistakes.toml` that would give exactly this, or else the usual one behind it."""
    names |= {"torch": torch, "math": math, "close": close, "got": got}
    names["softmax"] = lambda x, dim=-1: x.softmax(dim)
    for mistake, expression in MISTAKES.get(law, {}).items():
        with suppress(RuntimeError, IndexError, ValueError, NameError):  # where nobody can make this mistake
            told = torch.as_tensor(eval(expression, names))
            condition = told.dtype == torch.bool and told.dim() == 0
            if told if condition else close(torch.as_tensor(got), told, 1e-3):
                return mistake
    return next((mistake for text, mistake in MISTAKES["seen"].items() if text in seen), "")


# ---- code that hangs, ends the process, or crashes


class TimeUp(BaseException):
    """Code ran for too long. Not an Exception, so that the code under test does not catch it."""


@contextmanager
def guard(seconds: float) -> Iterator[None]:
    """Raise TimeUp in code that computes for so long, or waits five times as long.

    Only the main thread of a Unix process can be interrupted. A loaded machine costs a computation nothing.
    """

    def stop(*_: object) -> None:
        raise TimeUp(f"still running after {seconds:g} seconds")

    before = []
    if hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread():
        computing, waiting = (signal.ITIMER_PROF, signal.SIGPROF), (signal.ITIMER_REAL, signal.SIGALRM)
        for (timer, signum), limit in ((computing, seconds), (waiting, 5 * seconds)):
            before.append((timer, signum, signal.signal(signum, stop)))
            signal.setitimer(timer, limit)
    try:
        yield
    finally:
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
    shown += traceback.format_exception_only(error)
    return {"seen": seen, "mistake": explain("", seen), "traceback": "".join(shown)}
