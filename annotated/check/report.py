"""What laws say of some code, and how that is shown: as text, as a table in a notebook, as JSON and JUnit."""

import html
import json
import re
import textwrap
from dataclasses import asdict, dataclass
from typing import Literal, get_args
from xml.etree import ElementTree

Status = Literal["passed", "failed", "todo", "not applicable"]
TEXT = 4000  # characters of what is quoted of a graded file, at most
SIGNS = {"passed": "✓", "failed": "✗", "todo": "·", "not applicable": "-"}
WORDS = {
    "passed": "passed",
    "failed": "FAILED",
    "todo": "not written yet",
    "not applicable": "not applicable",
}

UNPRINTABLE = re.compile(r"[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def printable(text: str) -> str:
    """Spell out the characters that a terminal obeys, and those that UTF-8 or XML cannot hold."""
    return UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], text)


@dataclass(frozen=True)
class Finding:
    """What one law says of some code."""

    law: str
    says: str
    lesson: str
    status: Status
    message: str = ""
    example: str = ""
    mistake: str = ""
    traceback: str = ""
    follows: str = ""  # the earlier broken law that this one may follow from

    def __post_init__(self) -> None:
        for name in ("message", "example", "traceback"):  # they quote the code under test
            object.__setattr__(self, name, printable(getattr(self, name)))

    def paragraphs(self) -> list[str]:
        """Return all that there is to read, for every form of a report."""
        texts = [self.message, self.traceback.rstrip()]
        if self.status == "failed":
            texts = [f"The law: {self.says}", self.traceback.rstrip() or self.message, self.example]
            texts += [self.mistake and f"Likely mistake: {self.mistake}"]
            texts += [self.follows and f"This may follow from {self.follows}: mend that first."]
            texts += [self.lesson and f"Explained in notebooks/{self.lesson}.ipynb"]
        return [text for text in texts if text]


@dataclass(frozen=True)
class Report:
    """What all laws say of some code. In a notebook it shows as a table, printed as text."""

    findings: tuple[Finding, ...]
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", printable(self.name))

    @property
    def passed(self) -> bool:
        """Tell whether at least one law applies and every one that applies is kept."""
        return self.count("passed") > 0 and not self.count("failed") and not self.count("todo")

    def of(self, status: Status) -> list[Finding]:
        return [finding for finding in self.findings if finding.status == status]

    def count(self, status: Status) -> int:
        return len(self.of(status))

    def counts(self) -> dict[str, int]:
        return {status: self.count(status) for status in get_args(Status)}

    def __str__(self) -> str:
        return self.text()

    def text(self, verbose: bool = False) -> str:
        """Lay out what passed, what failed and why, and, if verbose, each law that does not apply."""
        lines: list[str] = []
        tried = len(self.findings) - self.count("not applicable")
        if tried < self.count("not applicable"):
            few = f"{tried} of {len(self.findings)} laws could be tried"
            lines.append(f"{few}; for the rest, an adapter can say what stands for what")
        lines += [f"✓ {f.law}: passed" + (f"  ({f.message})" if f.message else "") for f in self.of("passed")]
        todo: dict[str, list[str]] = {}
        for f in self.of("todo"):
            todo.setdefault(f.traceback.rstrip(), []).append(f.law)
        for raised, laws in todo.items():
            subjects = dict.fromkeys(law.partition(":")[0].replace(" ", "\u00a0") for law in laws)
            unwritten = f"· not written yet: {len(laws)} laws, of {', '.join(subjects)}"
            wrapped = textwrap.wrap(unwritten, 100, subsequent_indent="    ", break_on_hyphens=False)
            lines += [line.replace("\u00a0", " ") for line in wrapped]
            if raised:
                lines.append(textwrap.indent(f"What is written raises an error:\n{raised}", "    "))
        first_with: dict[str, str] = {}
        for f in self.of("failed"):
            frames = f.traceback.rpartition("    ")[0]  # without the message, which may name other sizes
            first = first_with.setdefault(frames, f.law) if frames else f.law
            texts = f.paragraphs() if first == f.law else [f"the same error as in {first}"]
            lines += [f"✗ {f.law}: FAILED", textwrap.indent("\n".join(texts), "    ")]
        reasons: dict[str, list[str]] = {}
        for f in self.of("not applicable"):
            shown = verbose or "adapter" in f.message
            reason = f.message if shown else "text(verbose=True) or --verbose says why"
            reasons.setdefault(reason, []).append(f.law)
        for reason, laws in sorted(reasons.items()):
            short = f"- laws that do not apply: {len(laws)} ({reason})"
            lines += textwrap.wrap(f"- {reason}: {', '.join(laws)}" if verbose else short, 100)
        return "\n".join([*lines, *self.summary_and_advice()])

    def summary(self) -> str:
        counts = [f"{self.count('passed')} passed", f"{self.count('failed')} failed"]
        counts += [f"{self.count('todo')} not written yet"] if self.count("todo") else []
        return ", ".join([*counts, f"not applicable: {self.count('not applicable')}"])

    def first_mistake(self) -> str:
        """Return what to mend first: what others may follow from, else the first failure."""
        causes = {f.follows for f in self.of("failed")}
        ordered = sorted(self.of("failed"), key=lambda f: (bool(f.follows), f.law not in causes))
        return next((f"{f.law}: {f.mistake or f.message}" for f in ordered), "")

    def summary_and_advice(self) -> list[str]:
        advice = f"Begin with {self.first_mistake()}."
        return [self.summary(), *([advice] if self.count("failed") > 1 else [])]

    def _repr_html_(self) -> str:
        rows = []
        for f in self.findings:
            tagged = [("pre" if "\n" in text else "div", html.escape(text)) for text in f.paragraphs()]
            texts = "".join(f"<{tag}>{text}</{tag}>" for tag, text in tagged)
            cells = f'<td>{WORDS[f.status]}</td><td style="text-align:left">{texts}</td>'
            rows.append(f"<tr><td>{SIGNS[f.status]}</td><td>{f.law}</td>{cells}</tr>")
        advice = "".join(f"<p>{html.escape(line)}</p>" for line in self.summary_and_advice())
        return f"<table>{''.join(rows)}</table>{advice}"

    def to_json(self) -> str:
        report = {"name": self.name, "passed": self.passed, "counts": self.counts()}
        report["findings"] = [asdict(finding) for finding in self.findings]
        return json.dumps(report, indent=1, ensure_ascii=False)


def junit(reports: list[Report]) -> str:
    """Write reports as JUnit XML: a suite for each, a case for each law."""
    root = ElementTree.Element("testsuites")
    for report in reports:
        suite = ElementTree.SubElement(root, "testsuite", name=report.name)
        for f in report.findings:
            case = ElementTree.SubElement(suite, "testcase", classname=report.name or "check", name=f.law)
            if f.status != "passed":
                tag = "skipped" if f.status == "not applicable" else "failure"
                ElementTree.SubElement(case, tag, message=f.message).text = "\n".join(f.paragraphs())
    return ElementTree.tostring(root, encoding="unicode")
