"""Grade a folder of submissions, each in a process of its own that may do little besides computing."""

import ast
import builtins
import contextlib
import csv
import io
import json
import math
import os
import re
import secrets
import select
import signal
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from multiprocessing import current_process, get_all_start_methods, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, get_args

import torch

from annotated.check import LAWS, run_file
from annotated.check.adapt import PARTS
from annotated.check.report import Finding, Report, Status

NOT_GRADED = "_", "."  # what the names of other files and folders begin with


def not_graded(folder: Path, file: Path) -> Path | None:
    """Return what keeps a file below a folder from being graded, itself or a folder above it, if anything."""
    parts = file.relative_to(folder).parts
    left_out = (Path(*parts[: i + 1]) for i, part in enumerate(parts) if part.startswith(NOT_GRADED))
    return next(left_out, None)


def grade(
    folder: Path, require: Iterable[str], seconds: float = 60, adapter: Path | None = None
) -> list[Report]:
    """Check each submission below a folder, side by side, each in a process of its own with a time limit.

    Args:
        folder: all that it holds is graded, except names that begin with `_` or a dot.
        require: the parts that a submission must have: keys of `PARTS`, or "all".
        seconds: time for each submission.
        adapter: names and conventions for all submissions; it alone may say which laws do not apply.

    Raises FileNotFoundError if there is no submission, ValueError for an unknown part or no time.
    """
    required = required_parts(require)
    if not seconds > 0:
        raise ValueError(f"a submission needs some time, not {seconds:g} seconds")
    files = sorted(file for file in folder.rglob("*.py") if not_graded(folder, file) is None)
    if not files:
        raise FileNotFoundError(f"{folder}: there is no .py file")
    context: Any = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
    if context.get_start_method() == "forkserver":  # PyTorch is loaded once, not in each process
        context.set_forkserver_preload(["torch._dynamo", __name__])

    def one(path: Path) -> Report:
        receiver, sender = context.Pipe(duplex=False)
        token = secrets.token_hex(16)
        arguments = sender, token, path.absolute(), folder.absolute(), adapter, min(20, seconds / 2)
        process = context.Process(target=check_in_child, args=arguments, daemon=True)
        process.start()
        sender.close()
        findings, why = read_findings(receiver.fileno(), token, seconds)
        if hasattr(os, "killpg"):
            with contextlib.suppress(OSError):  # whatever it has started
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.join()
        receiver.close()
        failed = Finding("file", "It can be checked at all.", "", "failed", why)
        name = str(path.relative_to(folder).with_suffix(""))
        return Report((*(findings or (failed,)), *lacking(findings, required)), name)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(one, files))


def required_parts(require: Iterable[str]) -> list[str]:
    parts = [*require]
    if unknown := {*parts} - {*PARTS, "all"}:
        raise ValueError(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}, and all")
    if not parts:
        raise ValueError("say which parts the submissions must have, or all")
    return [*PARTS] if "all" in parts else parts


def lacking(findings: tuple[Finding, ...], required: list[str]) -> list[Finding]:
    """Return a failure for each required part of which no law was kept."""
    kept = {f.law for f in findings if f.status == "passed"}
    with_one = {law.part for law in LAWS if law.name in kept}
    says = "The submission has each part that is required, and laws of it are kept."
    seen = {part: f"no law of `{PARTS[part][0]}` was kept" for part in required if part not in with_one}
    return [Finding(f"required: {part}", says, "", "failed", why) for part, why in seen.items()]


# ---- between the two processes: a line that says that work begins, and one with the findings


def read_findings(pipe: int, token: str, seconds: float) -> tuple[tuple[Finding, ...], str]:
    """Read what a child has found, or why nothing can be read. The clock starts when it has begun."""
    received, limit = b"", time.monotonic() + 300  # loading PyTorch does not count
    while select.select([pipe], [], [], max(0, limit - time.monotonic()))[0]:
        try:
            piece = os.read(pipe, 1 << 16)
        except OSError:
            piece = b""
        if piece and not received:
            limit = time.monotonic() + seconds
        received += piece
        if not piece or len(received) > 1 << 24:
            return understood(received, token)
    return (), f"still running after {seconds:g} seconds"


def understood(received: bytes, token: str) -> tuple[tuple[Finding, ...], str]:
    """Return findings that have the child's token and are of all laws, or why they are none."""
    try:
        _, line = received.rstrip(b"\n").split(b"\n")
        message = json.loads(line)
        findings = tuple(Finding(**finding) for finding in message["findings"])
        laws = [f.law for f in findings]
        right = laws == ["file"] or laws == [law.name for law in LAWS]
        if message["token"] == token and right and all(f.status in get_args(Status) for f in findings):
            return findings, ""
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    return (), "the process died" if received.count(b"\n") < 2 else "something was written to the grader"


def check_in_child(
    sender: Connection, token: str, path: Path, folder: Path, adapter: Path | None, seconds: float
) -> None:
    """Check a file and send what is found. What the file prints goes nowhere."""
    with contextlib.suppress(AttributeError, OSError):
        os.setsid()  # so that all of its processes can be ended
    nothing, pipe = os.open(os.devnull, os.O_RDWR), 3
    os.dup2(sender.fileno(), pipe)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.closerange(pipe + 1, 4096)  # nothing else to write to, such as what starts processes
    torch.set_num_threads(1)
    vars(current_process()).update(_args=(), _kwargs={})  # which the token is among
    os.write(pipe, b"begun\n")
    write, leave, encode = os.write, os._exit, json.JSONEncoder().encode
    why = looks_around(path.read_text("utf-8", "replace"))
    if not why:
        ours = shut_out(path, folder, adapter)
        names, look, compare = watched(ours), watched, tampered
        findings = [*run_file(path, adapter, seconds, strict=True).findings]
        why = compare(names, look(ours))
    if why:
        findings = [Finding("file", "A submission leaves the grader alone.", "", "failed", why)]
    data = (encode({"token": token, "findings": [asdict(f) for f in findings]}) + "\n").encode()
    while data:
        data = data[write(pipe, data) :]
    leave(0)


# ---- what a submission may not do: this is no sandbox, but it takes more than ordinary Python to get out

FORBIDDEN = re.compile(
    r"os\.(fork|kill|system|exec|posix_spawn|spawn|remove|rename|rmdir|truncate|link|symlink|chmod)"
    r"|(shutil|subprocess|pty|socket|ctypes)\.|gc\.get_|signal\.pthread_kill|object\.__setattr__"
    r"|sys\.(addaudithook|setprofile|settrace|_current_frames)"
)
INTROSPECTION = re.compile(
    r"[fg]_(back|globals|locals)|(tb|gi|cr|ag)_frame|get_objects"
    r"|__(globals|closure|code|subclasses|kwdefaults)__"
)


def looks_around(source: str) -> str:
    """Tell whether code gets hold of what has called it, and how: no part of a Transformer does."""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        nodes = [*ast.walk(ast.parse(source))]
        attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        texts = {str(node.value) for node in nodes if isinstance(node, ast.Constant)}
        names = {name for name in attributes | texts if INTROSPECTION.fullmatch(name)}
        return f"it looks at what has called it: {', '.join(sorted(names))}" if names else ""
    return ""


def shut_out(path: Path, folder: Path, adapter: Path | None) -> dict[str, Any]:
    """Keep a submission from this package, from the others' files and from other processes.

    Returns this package's modules, which go on without being found: who imports them gets none.
    """
    package, own = Path(__file__).parents[1], path.parent if path.parent != folder else None
    allowed = {os.path.realpath(file) for file in (path, adapter) if file is not None}

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if FORBIDDEN.match(event):
            raise PermissionError(f"{event}: a submission computes, and leaves other things alone")
        if event == "sys._getframe" and Path(arguments[0].f_code.co_filename).is_relative_to(package):
            raise ValueError("a submission does not look at its caller")
        if event == "import" and str(arguments[0]).partition(".")[0] == "annotated":
            raise ImportError("a submission is one's own work: it does not import annotated")
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            file, mode, flags = Path(os.path.realpath(os.fsdecode(arguments[0]))), *arguments[1:3]
            writes = flags & (os.O_WRONLY | os.O_RDWR) if mode is None else {*mode} & {*"wax+"}
            inside = file.is_relative_to(folder) and str(file) not in allowed
            shared = inside and any(x[0] == "_" != x[:2] for x in file.relative_to(folder).parts)
            of_others = inside and not shared and not (own and file.is_relative_to(own))
            if (writes and str(file) != os.devnull) or file.is_relative_to(package) or of_others:
                raise PermissionError(f"{file.name}: a submission reads its own files, and writes none")

    sys.dont_write_bytecode = True
    ours = {name: m for name, m in sys.modules.items() if name.partition(".")[0] == "annotated"}
    for name in ours:
        del sys.modules[name]
    sys.addaudithook(refuse)
    return ours


def watched(ours: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the names on which the laws rest: what a submission must leave as it is."""
    modules = {**ours, **{m.__name__: m for m in (builtins, math, json, torch, torch.nn.functional)}}
    classes = {t.__name__: t for t in (torch.Tensor, torch.nn.Module, Finding, Report)}
    laws = {law.name: law.holds for law in LAWS}
    return {name: dict(vars(x)) for name, x in (modules | classes).items()} | {"LAWS": laws}


def tampered(before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> str:
    """Tell whether a name is another thing now, and which."""
    for name, names in before.items():
        for key, x in names.items():
            if now[name].get(key) is not x and key != "__warningregistry__":
                return f"it changes {name}.{key}"
    return ""


def grades_as_csv(reports: list[Report]) -> str:
    """Lay out grades as CSV: a line for each submission, a column for each law.

    A cell that a spreadsheet would take for a formula begins with an apostrophe.
    """
    columns = ["submission", "result", *get_args(Status), "first mistake", *(law.name for law in LAWS)]
    writer = csv.DictWriter(out := io.StringIO(), columns, extrasaction="ignore")
    writer.writeheader()
    for report in reports:
        texts = {"submission": report.name, "first mistake": report.first_mistake()}
        formulas = "=", "+", "-", "@", "\t"
        texts = {name: f"'{x}" if x.startswith(formulas) else x for name, x in texts.items()}
        statuses = {f.law: f.status for f in report.findings}
        result = {"result": "passed" if report.passed else "failed"}
        writer.writerow(texts | result | report.counts() | statuses)
    return out.getvalue()
