"""Grade a folder of submissions: one process executes a file, another holds to the laws what it answers."""

import ast
import contextlib
import csv
import io
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, get_args

import torch

from annotated.check import LAWS, hold_loaded
from annotated.check.judge import Asked
from annotated.check.law import EXCUSED
from annotated.check.loading import as_script
from annotated.check.protocol import Gone
from annotated.check.report import TEXT, Finding, Report, Status
from annotated.check.sandbox import confine
from annotated.check.user_code import PARTS, Code
from annotated.check.worker import Answers

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
) -> list[Report]:
    """Check each submission below a folder, side by side, each by two processes with a time limit.

    Args:
        folder: all that it holds is graded, except names that begin with `_` or a dot.
        require: the parts that a submission must have: keys of `PARTS`, or "all".
        seconds: time for each submission.
        adapter: names and conventions for all submissions; it alone may say which laws do not apply.

    Raises FileNotFoundError if there is no submission, ValueError for an unknown part or no time.
    """
    required = required_parts(require)
    adapter = adapter and adapter.absolute()
    known = {"required": required, "not_applicable": excused(adapter), "adapter": str(adapter or "")}
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

        def cut(text: str) -> str:
            return text.replace(str(place), str(folder))[:TEXT]

        findings = tuple(Finding(**{k: cut(x) for k, x in asdict(f).items()}) for f in findings)  # type: ignore[arg-type]
        failed = Finding("file", "It can be checked at all.", "", "failed", why)
        name = str(path.relative_to(folder).with_suffix(""))
        return Report((*(findings or (failed,)), *lacking(findings, required)), name)

    def checked(path: Path, place: Path) -> tuple[tuple[Finding, ...], str]:
        (receiver, sender), (asks, answers) = context.Pipe(duplex=False), context.Pipe()
        each = min(20, seconds / 2)
        executes = path, place, folder.absolute(), adapter, each
        judges = sender, asks, 10 * each, adapter, known
        tasks = (execute, (answers, *executes)), (judge, judges)
        processes = [context.Process(target=task, args=given, daemon=True) for task, given in tasks]
        for process in processes:
            process.start()
        for end in (sender, asks, answers):
            end.close()
        try:
            if not receiver.poll(300):  # loading PyTorch does not count
                raise OSError("no process was started within five minutes")
            receiver.recv()
            found = receiver.recv() if receiver.poll(seconds) else f"still running after {seconds:g} seconds"
        finally:
            if hasattr(os, "killpg"):
                with contextlib.suppress(OSError):  # whatever it has started
                    os.killpg(processes[0].pid, signal.SIGKILL)
            for process in processes:
                process.kill()
                process.join()
            receiver.close()
        return ((), found) if isinstance(found, str) else (found, "")

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


def excused(adapter: Path | None) -> dict[str, str]:
    """Return the laws that an adapter says not to apply, read off its text: no submission says it."""
    tree = ast.parse(adapter.read_bytes() if adapter else b"")
    sets = [(n.value, ast.dump(n)) for n in tree.body if isinstance(n, ast.Assign | ast.AnnAssign)]
    said = [value for value, text in sets if value and "id='NOT_APPLICABLE', ctx=Store" in text]
    try:
        return dict(ast.literal_eval(said[-1])) if said else {}
    except ValueError:
        raise ValueError(f"{adapter}: NOT_APPLICABLE must be a dictionary of texts, written out") from None


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


# ---- the two processes: one executes the file, the other never does


def judge(
    sender: Connection, host: Connection, seconds: float, adapter: Path | None, known: dict[str, Any]
) -> None:
    """Hold what another process executes to the laws, and send what is found."""
    torch.set_num_threads(1)
    sender.send("begun")
    try:
        found: Any = hold_loaded(lambda: Asked(host).code(**known), adapter, seconds)
    except Gone:
        found = "the process died"
    sender.send(found)


def execute(
    host: Connection, path: Path, place: Path, folder: Path, adapter: Path | None, seconds: float
) -> None:
    """Execute a file, and answer what is asked about it. What it prints goes nowhere."""
    if os.name == "posix":
        host = alone(host)
    torch.set_num_threads(1)
    os.environ |= dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME", "MPLCONFIGDIR"), str(place))
    os.chdir(path.parent)
    with as_script(path), as_script(adapter or path):
        answers = Answers(host, lambda: Code.load(path, adapter), seconds)
        forget_ours()
        confine(place, [folder, Path(__file__).parents[1]], adapter)
        answers.wire.serve()
    os._exit(0)


def alone(host: Connection) -> Connection:
    """Keep this process from what others have open; return its connection."""
    os.setsid()  # so that all of its processes can be ended
    nothing, pipe = os.open(os.devnull, os.O_RDWR), 3
    os.dup2(host.fileno(), pipe)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.closerange(pipe + 1, 4096)
    with contextlib.suppress(OSError):  # where memory runs out, Linux ends this process before the others
        Path("/proc/self/oom_score_adj").write_text("1000")
    return Connection(pipe)


def forget_ours() -> None:
    """Keep a file from importing this package: a submission is one's own work."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "annotated"]:
        del sys.modules[name]

    class Refuse:
        @staticmethod
        def find_spec(name: str, *_: Any) -> None:
            if name.partition(".")[0] == "annotated":
                raise ImportError("a submission is one's own work: it does not import annotated")

    sys.meta_path.insert(0, Refuse)


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
