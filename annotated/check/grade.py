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
from annotated.check.judge import WorkerProxy
from annotated.check.law import EXCUSED
from annotated.check.loading import as_script
from annotated.check.protocol import Gone
from annotated.check.report import TEXT, Finding, Report, Status
from annotated.check.sandbox import confine
from annotated.check.user_code import PARTS, Code
from annotated.check.worker import Worker

NOT_GRADED = "_", "."  # first characters of the names of files and folders that are not graded


def not_graded(folder: Path, file: Path) -> Path | None:
    """Return the file, or the folder above it, whose name keeps the file from being graded; else None."""
    path = file.relative_to(folder)
    return next((x for x in (*reversed(path.parents), path) if x.name.startswith(NOT_GRADED)), None)


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
    settings = {"required": required, "not_applicable": excused(adapter), "adapter": str(adapter or "")}
    if not seconds > 0:
        raise ValueError(f"a submission needs some time, not {seconds:g} seconds")
    files = sorted(file for file in folder.rglob("*.py") if not_graded(folder, file) is None)
    if not files:
        raise FileNotFoundError(f"{folder}: there is no .py file")
    context: Any = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
    if context.get_start_method() == "forkserver":  # PyTorch is loaded once, not in each process
        context.set_forkserver_preload(["torch._dynamo", __name__])

    def report_on(path: Path) -> Report:
        findings, problem = tuple[Finding, ...](), ""
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            sandbox = Path(name).resolve()
            try:
                result = check_copy(copy_for(path, folder, sandbox), sandbox)
                findings, problem = ((), result) if isinstance(result, str) else (result, "")
            except (OSError, EOFError) as error:  # such as that the process which starts the others has died
                problem = f"{type(error).__name__}: {error}"

        def shortened(text: str) -> str:
            return text.replace(str(sandbox), str(folder))[:TEXT]

        findings = tuple(Finding(**{k: shortened(x) for k, x in asdict(f).items()}) for f in findings)  # type: ignore[arg-type]
        failed = Finding("file", "It can be checked at all.", "", "failed", problem)
        name = str(path.relative_to(folder).with_suffix(""))
        return Report((*(findings or (failed,)), *lacking(findings, required)), name)

    def check_copy(path: Path, sandbox: Path) -> tuple[Finding, ...] | str:
        receiver, sender = context.Pipe(duplex=False)
        for_judge, for_worker = context.Pipe()
        per_call = min(20, seconds / 2)
        work = for_worker, path, sandbox, folder.absolute(), adapter, per_call
        judging = sender, for_judge, 10 * per_call, adapter, settings
        tasks = (execute, work), (judge, judging)
        processes = [context.Process(target=task, args=values, daemon=True) for task, values in tasks]
        for process in processes:
            process.start()
        for end in (sender, for_judge, for_worker):
            end.close()
        try:
            if not receiver.poll(300):  # loading PyTorch does not count
                raise OSError("no process was started within five minutes")
            receiver.recv()
            return receiver.recv() if receiver.poll(seconds) else f"still running after {seconds:g} seconds"
        finally:
            if hasattr(os, "killpg"):
                with contextlib.suppress(OSError):  # whatever it has started
                    os.killpg(processes[0].pid, signal.SIGKILL)
            for process in processes:
                process.kill()
                process.join()
            receiver.close()

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(report_on, files))


def copy_for(path: Path, folder: Path, sandbox: Path) -> Path:
    """Copy a submission, the other files of its own folder, and the shared ones. Return its copy."""
    if path.is_symlink():
        raise OSError("it is a link to another file")
    project = path.parent
    while (project / "__init__.py").exists() and project.parent != folder:
        project = project.parent

    def left_out(inside: str, names: list[str]) -> set[str]:
        files = [Path(inside, name) for name in names if not name.startswith((".", "__pycache__"))]
        copied = {x.name for x in files if not x.is_symlink() and (x.is_dir() or x.stat().st_size <= 1 << 20)}
        return {*names} - copied

    shared = [x for x in folder.iterdir() if x.name[0] == "_" != x.name[1:2]]
    for source in {path if project == folder else project, *shared}:
        target = sandbox / source.relative_to(folder)
        if source.is_dir():
            shutil.copytree(source, target, ignore=left_out, dirs_exist_ok=True)
        elif not source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    return sandbox / path.relative_to(folder)


def required_parts(require: Iterable[str]) -> list[str]:
    parts = [*require]
    if unknown := {*parts} - {*PARTS, "all"}:
        raise ValueError(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}, and all")
    if not parts:
        raise ValueError("say which parts the submissions must have, or all")
    return [*PARTS] if "all" in parts else parts


def excused(adapter: Path | None) -> dict[str, str]:
    """Return the laws that an adapter excuses, read from its text: a submission cannot change them."""
    tree = ast.parse(adapter.read_bytes() if adapter else b"")
    assignments = [x for x in tree.body if isinstance(x, ast.Assign | ast.AnnAssign)]
    named = [x.value for x in assignments if "id='NOT_APPLICABLE', ctx=Store" in ast.dump(x)]
    values = [value for value in named if value is not None]
    try:
        return dict(ast.literal_eval(values[-1])) if values else {}
    except ValueError:
        raise ValueError(f"{adapter}: NOT_APPLICABLE must be a dictionary of texts, written out") from None


def lacking(findings: tuple[Finding, ...], required: list[str]) -> list[Finding]:
    """Return a failure for each required part of which fewer than half of the laws were kept.

    Those that the adapter says not to apply do not count.
    """
    says = "The submission has each part that is required, and laws of it are kept."
    status = {f.law: f.status for f in findings if not f.message.startswith(EXCUSED)}
    failures = []
    for part in required:
        statuses = [status[law.name] for law in LAWS if law.part == part and law.name in status]
        kept, name = statuses.count("passed"), PARTS[part][0]
        if kept < max(1, len(statuses) / 2):
            few = f"{kept} of {len(statuses)} laws of `{name}` were kept, and half must be"
            message = few if kept else f"no law of `{name}` was kept"
            failures.append(Finding(f"required: {part}", says, "", "failed", message))
    return failures


# ---- the two processes: one executes the file, the other never does


def judge(
    sender: Connection, worker: Connection, seconds: float, adapter: Path | None, settings: dict[str, Any]
) -> None:
    """Check what another process executes, and send the findings, or why there are none."""
    torch.set_num_threads(1)
    sender.send("begun")
    try:
        sender.send(hold_loaded(lambda: WorkerProxy(worker).code(**settings), adapter, seconds))
    except Gone:
        sender.send("the process died")


def execute(
    judge: Connection, path: Path, sandbox: Path, folder: Path, adapter: Path | None, seconds: float
) -> None:
    """Execute a file, and answer what is asked about it. What it prints goes nowhere."""
    if os.name == "posix":
        judge = isolated(judge)
    torch.set_num_threads(1)
    os.environ |= dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME", "MPLCONFIGDIR"), str(sandbox))
    os.chdir(path.parent)
    with as_script(path), as_script(adapter or path):
        answers = Worker(judge, lambda: Code.load(path, adapter), seconds)
        refuse_annotated()
        confine(sandbox, [folder, Path(__file__).parents[1]], adapter)
        answers.wire.serve()
    os._exit(0)


def isolated(connection: Connection) -> Connection:
    """Close what this process shares with others, except its connection, which is returned."""
    os.setsid()  # so that all of its processes can be ended
    nothing, pipe = os.open(os.devnull, os.O_RDWR), 3
    os.dup2(connection.fileno(), pipe)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.closerange(pipe + 1, 4096)
    with contextlib.suppress(OSError):  # where memory runs out, Linux ends this process before the others
        Path("/proc/self/oom_score_adj").write_text("1000")
    return Connection(pipe)


def refuse_annotated() -> None:
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
