"""What a law says of some code, and how a report of many laws is shown: terminal, notebook, JSON, JUnit."""

import html
import json
import re
import signal
import textwrap
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import torch

from annotated.check.adapt import Code, Missing

Status = Literal["passed", "failed", "todo", "missing"]
SIGNS = {"passed": "✓", "failed": "✗", "todo": "·", "missing": "-"}
WORDS = {"passed": "passed", "failed": "FAILED", "todo": "not written yet", "missing": "not applicable"}

UNPRINTABLE = re.compile(r"[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def printable(text: str) -> str:
    """Spell out the characters that a terminal obeys, and those that UTF-8 or XML cannot hold."""
    return UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], text)


class Failure(Exception):  # noqa: N818 (it is a finding)
    """A law is broken: what was seen, the smallest example with its numbers, the likely mistake."""

    def __init__(self, seen: str, example: str = "", mistake: str = ""):
        super().__init__(seen)
        self.seen, self.example, self.mistake = seen, example, mistake


class TimeUp(BaseException):
    """Code ran for too long. Not an Exception, so that the code under test does not catch it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeUp in code that computes for so long, or waits five times as long.

    Only the main thread of a Unix process can be interrupted. A loaded machine costs a computation nothing.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise TimeUp

    limits = (
        (signal.ITIMER_PROF, signal.SIGPROF, seconds),
        (signal.ITIMER_REAL, signal.SIGALRM, 5 * seconds),
    )
    before = [(timer, signum, signal.signal(signum, stop)) for timer, signum, _ in limits]
    for timer, _, limit in limits:
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for timer, signum, handler in before:
            signal.setitimer(timer, 0)
            signal.signal(signum, handler)


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

    def __call__(self, code: Code, seconds: float = 20) -> "Finding":
        """Hold code to this law; whatever the code does, a finding comes back."""
        what: dict[str, Any] = {"law": self.name, "says": self.says, "lesson": self.lesson}
        if self.name in code.not_applicable:
            return Finding(**what, status="missing", seen=code.not_applicable[self.name])
        try:
            with torch.random.fork_rng(devices=[]), time_limit(seconds):
                torch.manual_seed(0)
                return Finding(**what, status="passed", seen=self.holds(code) or "")
        except Missing as missing:
            return Finding(**what, status="missing", seen=str(missing))
        except Failure as failure:
            finding = asdict(Finding(**what, status="failed", seen=failure.seen))
            return Finding(**finding | {"example": failure.example, "mistake": failure.mistake})
        except NotImplementedError:
            return Finding(**what, status="todo", seen="not written yet")
        except TimeUp:
            return Finding(**what, status="failed", seen=f"still running after {seconds:g} seconds")
        except (Exception, SystemExit) as error:
            if code.is_stub(self.part):  # the error is of a part that it uses
                return Finding(**what, status="todo", seen="not written yet")
            seen = f"{type(error).__name__}: {error}".splitlines()[0]
            return Finding(**what, status="failed", seen=seen, traceback=own_traceback(error))


def own_traceback(error: BaseException) -> str:
    """Format the part of a traceback that lies in the code under test."""
    others = (str(Path(__file__).parent), str(Path(torch.__file__).parent), "<frozen")
    own = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(others)]
    return "".join(
        traceback.format_list(own if len(own) < 6 else [*own[:2], *own[-3:]])
        + traceback.format_exception_only(error)
    )


@dataclass(frozen=True)
class Finding:
    """What one law says of some code."""

    law: str
    says: str
    lesson: str
    status: Status
    seen: str = ""
    example: str = ""
    mistake: str = ""
    traceback: str = ""

    def __post_init__(self) -> None:
        for name in ("seen", "example", "traceback"):  # they quote the code under test
            object.__setattr__(self, name, printable(getattr(self, name)))


@dataclass(frozen=True)
class Report:
    """What all laws say of some code. In a notebook it shows as a table, printed as text."""

    findings: tuple[Finding, ...]
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", printable(self.name))

    @property
    def passed(self) -> bool:
        """Whether at least one law applies and every one that applies is kept."""
        return self.count("passed") > 0 and not self.count("failed") and not self.count("todo")

    def count(self, status: Status) -> int:
        return sum(finding.status == status for finding in self.findings)

    def __str__(self) -> str:
        lines: list[str] = []
        seen: dict[str, str] = {}
        for f in self.findings:
            if f.status == "passed":
                lines.append(f"{SIGNS[f.status]} {f.law}: passed" + (f"  ({f.seen})" if f.seen else ""))
        for status in ("missing", "todo"):
            for why in dict.fromkeys(f.seen for f in self.findings if f.status == status):
                names = ", ".join(f.law for f in self.findings if (f.status, f.seen) == (status, why))
                reason = f", {why}" if status == "missing" else ""
                text = f"{SIGNS[status]} {WORDS[status]}{reason}: {names}"
                lines += textwrap.wrap(text, 100, subsequent_indent="    ")
        for f in self.findings:
            if f.status != "failed":
                continue
            lines.append(f"{SIGNS[f.status]} {f.law}: {WORDS[f.status]}")
            frames = f.traceback.rpartition("    ")[0]  # without the message, which may name other sizes
            if frames and frames in seen:
                lines.append(f"    the same error as in {seen[frames]}")
                continue
            seen[frames] = f.law
            lines += [f"    The law: {f.says}", *([] if f.traceback else [f"    {f.seen}"])]
            lines += [f"      {line}" for line in (f.example + "\n" + f.traceback).splitlines() if line]
            lines += [f"    Likely mistake: {f.mistake}"] if f.mistake else []
            lines += [f"    Explained in notebooks/{f.lesson}.ipynb"] if f.lesson else []
        return "\n".join([*lines, self.summary(), *self.advice()])

    def first_mistake(self) -> str:
        failed = next((f for f in self.findings if f.status == "failed"), None)
        return f"{failed.law}: {failed.mistake or failed.seen}" if failed else ""

    def advice(self) -> list[str]:
        """Where several laws are broken, say which one to trust."""
        if self.count("failed") < 2:
            return []
        return [f"Trust the first failed law ({self.first_mistake()}): the others often follow from it."]

    def summary(self) -> str:
        counts = [f"{self.count('passed')} passed", f"{self.count('failed')} failed"]
        counts += [f"{self.count('todo')} not written yet"] if self.count("todo") else []
        return ", ".join([*counts, f"not applicable: {self.count('missing')}"])

    def _repr_html_(self) -> str:
        rows = []
        for f in self.findings:
            parts = [f.says if f.status == "failed" else "", f.seen, f.example, f.traceback]
            cell = "".join(f"<pre>{html.escape(p)}</pre>" if "\n" in p else f"<div>{html.escape(p)}</div>"
                           for p in parts if p)  # fmt: skip
            cell += f"<div><b>Likely mistake:</b> {html.escape(f.mistake)}</div>" if f.mistake else ""
            cell += f"<div>Explained in {f.lesson}</div>" if f.status == "failed" else ""
            rows.append(f"<tr><td>{SIGNS[f.status]}</td><td>{f.law}</td><td>{WORDS[f.status]}</td>"
                        f'<td style="text-align:left">{cell}</td></tr>')  # fmt: skip
        told = "".join(f"<p>{html.escape(line)}</p>" for line in (self.summary(), *self.advice()))
        return f"<table>{''.join(rows)}</table>{told}"

    def to_json(self) -> str:
        counts: Mapping[str, int] = {status: self.count(status) for status in SIGNS}  # type: ignore[arg-type]
        findings = [asdict(finding) for finding in self.findings]
        whole = {"name": self.name, "passed": self.passed, "counts": counts, "findings": findings}
        return json.dumps(whole, indent=1, ensure_ascii=False)

    def to_junit(self) -> str:
        return junit([self])


def junit(reports: list[Report]) -> str:
    """Write reports as JUnit XML: a suite for each, a case for each law."""
    root = ElementTree.Element("testsuites")
    for report in reports:
        suite = ElementTree.SubElement(root, "testsuite", {
            "name": report.name, "tests": str(len(report.findings)), "skipped": str(report.count("missing")),
            "failures": str(report.count("failed") + report.count("todo")),
        })  # fmt: skip
        for f in report.findings:
            case = ElementTree.SubElement(suite, "testcase", classname=report.name or "check", name=f.law)
            if f.status in ("failed", "todo"):
                told = ElementTree.SubElement(case, "failure", message=f.seen)
                told.text = "\n".join(p for p in (f.says, f.example, f.traceback, f.mistake) if p)
            elif f.status == "missing":
                ElementTree.SubElement(case, "skipped", message=f.seen)
    with suppress(AttributeError):
        ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode")
