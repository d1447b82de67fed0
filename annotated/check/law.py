"""A law is a property that any implementation keeps. Code passes, or fails with the likely mistake."""

import re
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from annotated.check.assertions import Failure
from annotated.check.mistakes import explain
from annotated.check.report import Finding, Status
from annotated.check.user_code import PARTS, Code, NotApplicable, Unclear

SECONDS = 20.0  # for each law, of computing
EXCUSED = "said not to apply: "


@dataclass(frozen=True)
class Law:
    """A property that any implementation keeps."""

    name: str
    part: str  # what it is a law of: a key of `user_code.PARTS`
    lesson: str  # the notebook that explains it
    after: tuple[str, ...]  # beginnings of the names of laws whose failure may cause one of this
    check: Callable[[Code], str | None]  # raises Failure; may return a remark

    def __call__(self, code: Code, seconds: float = SECONDS) -> Finding:
        """Hold code to this law; whatever the code does, a finding comes back."""
        finding = partial(Finding, self.name, " ".join((self.check.__doc__ or "").split()), self.lesson)
        if self.name in code.not_applicable:
            return finding("not applicable", f"{EXCUSED}{code.not_applicable[self.name]}")
        try:
            with torch.random.fork_rng(devices=[]), torch.no_grad(), guard(seconds):
                torch.manual_seed(0)
                return finding("passed", self.check(code) or "")
        except NotApplicable as reason:
            if code.is_stub(self.part):
                return finding("todo", "not written yet")
            unclear = isinstance(reason, Unclear) and self.part in code.required
            return finding("failed" if unclear else "not applicable", str(reason))
        except Failure as failure:
            mistake = failure.mistake or explain(self.name, failure.message, **failure.evidence)
            return finding("failed", failure.message, failure.example, mistake)
        except (Exception, SystemExit, TimeUp) as error:
            unsupported = re.search(r"not implemented for|\[ModuleList\]", str(error))  # PyTorch's own
            if isinstance(error, NotImplementedError) and not unsupported:
                return finding("todo", "not written yet")
            # The part is not yet written: then the error is in one that it uses.
            if not isinstance(error, TimeUp) and code.is_stub(self.part):
                raised = crash(error)
                message = f"not written yet; raises {raised['message']}"
                return finding("todo", message, traceback=raised["traceback"])
            if code.adapter and raised_in(error) == code.adapter:
                status: Status = "failed" if self.part in code.required else "not applicable"
                return finding(status, f"the adapter fails: {crash(error)['message']}")
            return finding("failed", **crash(error))

    def may_follow(self, other: "Law") -> bool:
        """Tell whether a failure of this law may follow from a failure of another."""
        if "dropout" in other.name and "dropout" not in self.name:
            return False  # the other laws are tried without it
        return other.name.startswith(self.after) or (self.part == "make_model" and other.part in OF_A_MODEL)


LAWS: list[Law] = []
OF_A_MODEL = [*PARTS][: [*PARTS].index("make_model")]  # the parts that a model is made of


def law(lesson: str, part: str, name: str, *after: str) -> Callable[[Callable[[Code], str | None]], Law]:
    """Register a function as a law; its docstring is what the law says."""

    def register(check: Callable[[Code], str | None]) -> Law:
        LAWS.append(Law(name, part, lesson, after, check))
        return LAWS[-1]

    return register


def blame_causes(findings: list[Finding]) -> list[Finding]:
    """Let a failure that may follow from an earlier one say so, and name no mistake of its own."""
    laws = {law.name: law for law in LAWS}
    broken: list[Law] = []
    blamed = list(findings)
    for n, finding in enumerate(findings):
        if finding.status == "failed" and finding.law in laws:
            law = laws[finding.law]
            if causes := [other.name for other in broken if law.may_follow(other)]:
                blamed[n] = replace(finding, follows=causes[0], mistake="")
            broken.append(law)
    return blamed


# ---- code that hangs, ends the process, or crashes


class TimeUp(BaseException):
    """Code ran for too long. Not an Exception, so that the code under test does not catch it."""


@contextmanager
def guard(seconds: float) -> Iterator[None]:
    """Raise TimeUp in code that computes for so long, or waits five times as long without computing.

    Only the main thread of a Unix process can be interrupted. A busy machine shortens nobody's time.
    """
    computed = time.process_time()

    def stop(signum: int, _: object) -> None:
        nonlocal computed
        before, computed = computed, time.process_time()
        if signum == signal.SIGPROF or computed - before < seconds / 100:
            raise TimeUp(f"still running after {seconds:g} seconds")

    timers = []
    if hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread():
        computing, waiting = (signal.ITIMER_PROF, signal.SIGPROF), (signal.ITIMER_REAL, signal.SIGALRM)
        for (timer, signum), limit in ((computing, seconds), (waiting, 5 * seconds)):
            timers.append((timer, signum, signal.signal(signum, stop)))
            signal.setitimer(timer, limit, limit)
    try:
        yield
    finally:
        for timer, signum, handler in timers:
            signal.setitimer(timer, 0)
            signal.signal(signum, handler)


def own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the part of a traceback that lies in the code under test."""
    if hasattr(error, "frames"):  # of another process
        return list(error.frames)
    not_theirs = (str(Path(__file__).parent), str(Path(torch.__file__).parent), "<frozen")
    return [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(not_theirs)]


def raised_in(error: BaseException) -> str:
    """Return the file, of the code under test or an adapter, in which an error was raised."""
    return next((f.filename for f in reversed(own_frames(error))), "")


def crash(error: BaseException) -> dict[str, str]:
    """Say what happened, with the part of the traceback that lies in the code under test."""
    if isinstance(error, TimeUp):
        return {"message": str(error)}
    frames = own_frames(error)
    lines = traceback.format_list(frames if len(frames) < 6 else [*frames[:2], *frames[-3:]])
    lines += traceback.format_exception_only(error)
    message = f"{type(error).__name__}: {error}".splitlines()[0]
    return {"message": message, "mistake": explain("", message), "traceback": "".join(lines)}
