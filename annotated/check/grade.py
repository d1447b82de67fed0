"""Grade a folder of submissions, each confined, in a process of its own."""

import builtins
import contextlib
import csv
import dataclasses
import functools
import io
import json
import math
import os
import re
import secrets
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, get_args

import torch

from annotated.check import LAWS, run_file
from annotated.check.adapt import PARTS, Code
from annotated.check.comparing import expect
from annotated.check.confined import Confinement
from annotated.check.law import EXCUSED
from annotated.check.report import Finding, Report, Status

TEXT = 4000  # characters of a message or a traceback, at most
NOT_GRADED = "_", "."  # what the names of other files and folders begin with


def not_graded(folder: Path, file: Path) -> Path | None:
    """Return what keeps a file below a folder from being graded, itself or a folder above it, if anything."""
    parts = file.relative_to(folder).parts
    left_out = (Path(*parts[: i + 1]) for i, part in enumerate(parts) if part.startswith(NOT_GRADED))
    return next(left_out, None)


def grade(
    folder: Path,
    require: Iterable[str],
    seconds: float = 60,
    adapter: Path | None = None,
    allow: Iterable[str] = (),
) -> list[Report]:
    """Check each submission below a folder, side by side, each in a process of its own with a time limit.

    Args:
        folder: all that it holds is graded, except names that begin with `_` or a dot.
        require: the parts that a submission must have: keys of `PARTS`, or "all".
        seconds: time for each submission.
        adapter: names and conventions for all submissions; it alone may say which laws do not apply.
        allow: modules that submissions get as they are, besides the copies of those in `given.toml`.

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
        findings, why = tuple[Finding, ...](), ""
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            place = Path(name).resolve()
            try:
                findings, why = checked(copy_for(path, folder, place), place)
            except (OSError, EOFError) as error:  # such as that the process which starts the others has died
                why = f"{type(error).__name__}: {error}"
        told = [f.traceback.replace(str(place), str(folder)) for f in findings]
        findings = tuple(replace(f, traceback=text) for f, text in zip(findings, told, strict=True))
        failed = Finding("file", "It can be checked at all.", "", "failed", why)
        name = str(path.relative_to(folder).with_suffix(""))
        return Report((*(findings or (failed,)), *lacking(findings, required)), name)

    def checked(path: Path, place: Path) -> tuple[tuple[Finding, ...], str]:
        receiver, sender = context.Pipe(duplex=False)
        token = secrets.token_hex(16)
        how = path, place, adapter and adapter.absolute(), min(20, seconds / 2), required, (*allow,)
        process = context.Process(target=check_in_child, args=(sender, token, *how), daemon=True)
        process.start()
        sender.close()
        found = read_findings(receiver.fileno(), token, seconds)
        if hasattr(os, "killpg"):
            with contextlib.suppress(OSError):  # whatever it has started
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.join()
        receiver.close()
        return found

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(one, files))


def copy_for(path: Path, folder: Path, place: Path) -> Path:
    """Copy a submission, what lies beside it in a folder of its own, and what is shared. Return its copy."""
    if path.is_symlink():
        raise OSError("it is a link to another file")
    own = path.parent
    while (own / "__init__.py").exists() and own.parent != folder:
        own = own.parent

    def left_out(inside: str, names: list[str]) -> set[str]:
        files = {name: Path(inside, name) for name in names}
        large = {
            name
            for name, x in files.items()
            if x.is_symlink() or (x.is_file() and x.stat().st_size > 1 << 20)
        }
        return large | {name for name in names if name.startswith((".", "__pycache__"))}

    shared = [x for x in folder.iterdir() if x.name[0] == "_" != x.name[1:2]]
    for source in {path, *shared} if own == folder else {own, *shared}:
        target = place / source.relative_to(folder)
        if source.is_dir():
            shutil.copytree(source, target, ignore=left_out, dirs_exist_ok=True)
        elif not source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    return place / path.relative_to(folder)


def required_parts(require: Iterable[str]) -> list[str]:
    parts = [*require]
    if unknown := {*parts} - {*PARTS, "all"}:
        raise ValueError(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}, and all")
    if not parts:
        raise ValueError("say which parts the submissions must have, or all")
    return [*PARTS] if "all" in parts else parts


def lacking(findings: tuple[Finding, ...], required: list[str]) -> list[Finding]:
    """Return a failure for each required part of which fewer than half of the laws were kept.

    Those that the adapter says not to apply do not count.
    """
    says, found = "The submission has each part that is required, and laws of it are kept.", []
    status = {f.law: f.status for f in findings if not f.seen.startswith(EXCUSED)}
    for part in required:
        laws = [status[law.name] for law in LAWS if law.part == part and law.name in status]
        kept, name = laws.count("passed"), PARTS[part][0]
        if kept < max(1, len(laws) / 2):
            why = f"{kept} of {len(laws)} laws of `{name}` were kept, and half must be"
            seen = why if kept else f"no law of `{name}` was kept"
            found.append(Finding(f"required: {part}", says, "", "failed", seen))
    return found


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
    sender: Connection, token: str, path: Path, place: Path, adapter: Path | None, seconds: float,
    required: list[str], allow: tuple[str, ...],
) -> None:  # fmt: skip
    """Check a file and send what is found. What the file prints goes nowhere."""
    with contextlib.suppress(AttributeError, OSError):
        os.setsid()  # so that all of its processes can be ended
    nothing, pipe = os.open(os.devnull, os.O_RDWR), 3
    os.dup2(sender.fileno(), pipe)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.closerange(pipe + 1, 4096)  # nothing else to write to, such as what starts processes
    with contextlib.suppress(OSError):  # where memory runs out, Linux ends this process before the others
        Path("/proc/self/oom_score_adj").write_text("1000")
    torch.set_num_threads(1)
    os.write(pipe, b"begun\n")

    def watched(holds: Callable[[Code], str | None]) -> Callable[[Code], str | None]:
        @functools.wraps(holds)
        def held(code: Code) -> str | None:
            remark = holds(code)
            expect(not (what := changed()), what)
            return remark

        return held

    LAWS[:] = [replace(law, holds=watched(law.holds)) for law in LAWS]
    changed = watch()
    os.chdir(path.parent)
    loader = Confinement(place, allow).enter()
    sys.addaudithook(stay_inside)
    findings = [asdict(f) for f in run_file(path, adapter, seconds, required, loader).findings]
    findings = [{k: x[:TEXT] if isinstance(x, str) else x for k, x in f.items()} for f in findings]
    data = (json.dumps({"token": token, "findings": findings}) + "\n").encode()
    while data:
        data = data[os.write(pipe, data) :]
    os._exit(0)


OUTSIDE = re.compile(
    r"os\.(fork|kill|system|exec|posix_spawn|spawn|re|rmdir|mk|trunc|.*link|ch)|shutil|subprocess|socket"
)


def stay_inside(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse what starts processes or changes files, whoever asks for it: a second wall."""
    writes = False
    if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        mode, flags = arguments[1:3]
        changes = flags & (os.O_WRONLY | os.O_RDWR) if mode is None else {*mode} & {*"wax+"}
        writes = bool(changes) and os.fsdecode(arguments[0]) != os.devnull
    if writes or OUTSIDE.match(event):
        raise PermissionError(f"{event}: a graded file computes, and leaves other things alone")


# ---- what the laws rest on


def watch() -> Callable[[], str]:
    """Return what tells whether a name on which the laws rest is another thing by now, and which."""
    ours = [m for name, m in sys.modules.items() if name.partition(".")[0] == "annotated"]
    modules = [*ours, builtins, dataclasses, json, math, torch, torch.nn, torch.nn.functional]
    held = {x for m in (*ours, torch.nn) for x in vars(m).values() if isinstance(x, type)} | {torch.Tensor}

    def look() -> dict[Any, dict[str, Any]]:
        mode = {"modes": torch._C._len_torch_function_stack(), "dtype": torch.get_default_dtype()}
        mode |= {"dispatch": torch._C._len_torch_dispatch_stack(), "cast": torch.is_autocast_enabled("cpu")}
        laws = {law.name: law.holds for law in LAWS}
        return {x: dict(vars(x)) for x in (*modules, *held)} | {"torch": mode, "LAWS": laws}

    before = look()

    def changed() -> str:
        now = look()
        for x, names in before.items():
            for key in names | now[x] if isinstance(x, type) else names:
                if now[x].get(key) is not names.get(key) and key != "__warningregistry__":
                    return f"it changes {getattr(x, '__name__', x)}.{key}"
        return ""

    return changed


def grades_as_csv(reports: list[Report]) -> str:
    """Lay out grades as CSV: a line for each submission, a column for each law.

    What a spreadsheet would take for a formula, wherever it cuts a cell, has an apostrophe before it.
    """
    columns = ["submission", "result", *get_args(Status), "first mistake", *(law.name for law in LAWS)]
    writer = csv.DictWriter(out := io.StringIO(), columns, extrasaction="ignore")
    writer.writeheader()
    for report in reports:
        texts = {"submission": report.name, "first mistake": report.first_mistake()}
        texts = {name: re.sub(r"(^|[;\t\r\n])([\s\"]*[=+@-])", r"\1'\2", x) for name, x in texts.items()}
        statuses = {f.law: f.status for f in report.findings}
        result = {"result": "passed" if report.passed else "failed"}
        writer.writerow(texts | result | report.counts() | statuses)
    return out.getvalue()
