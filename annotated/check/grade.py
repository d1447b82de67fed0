"""Grade a folder of submissions, each in a process of its own."""

import csv
import io
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection, wait
from os import cpu_count
from pathlib import Path
from typing import Any, get_args

import torch

from annotated.check import LAWS, run_file
from annotated.check.report import Finding, Report, Status

NOT_GRADED = "_", "."  # what the names of other files and folders begin with


def not_graded(folder: Path, file: Path) -> Path | None:
    """Return what keeps a file below a folder from being graded, itself or a folder above it, if anything."""
    parts = file.relative_to(folder).parts
    left_out = (Path(*parts[: i + 1]) for i, part in enumerate(parts) if part.startswith(NOT_GRADED))
    return next(left_out, None)


def grade(folder: Path, seconds: float = 60, adapter: Path | None = None) -> list[Report]:
    """Check each submission below a folder, side by side, each in a process of its own with a time limit."""
    files = sorted(file for file in folder.rglob("*.py") if not_graded(folder, file) is None)
    if not files:
        raise FileNotFoundError(f"{folder}: there is no .py file")
    context: Any = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
    if context.get_start_method() == "forkserver":  # PyTorch is loaded once, not in each process
        context.set_forkserver_preload(["torch._dynamo", __name__])

    def one(path: Path) -> Report:
        receiver, sender = context.Pipe(duplex=False)
        arguments = sender, path, adapter, min(20, seconds / 2)
        process = context.Process(target=check_in_child, args=arguments, daemon=True)
        process.start()
        sender.close()
        wait([receiver, process.sentinel])  # until it has begun: loading PyTorch does not count
        why, findings = f"still running after {seconds:g} seconds", None
        try:
            receiver.recv()
            if receiver.poll(seconds):
                findings = receiver.recv()
        except EOFError:
            why = "the process died"
        process.kill()
        process.join()
        failed = Finding("file", "It can be checked at all.", "", "failed", why)
        return Report(findings or (failed,), str(path.relative_to(folder).with_suffix("")))

    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        return list(pool.map(one, files))


def check_in_child(sender: Connection, path: Path, adapter: Path | None, seconds: float) -> None:
    """Check a file and send what is found. What the file prints goes nowhere."""
    torch.set_num_threads(1)
    sender.send("begun")
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        report = run_file(path, adapter, seconds)
    sender.send(report.findings)


def grades_as_csv(reports: list[Report]) -> str:
    """Lay out grades as CSV: a line for each submission, a column for each law."""
    columns = ["submission", *get_args(Status), "first mistake", *(law.name for law in LAWS)]
    writer = csv.DictWriter(out := io.StringIO(), columns, extrasaction="ignore")
    writer.writeheader()
    for report in reports:
        row = {"submission": report.name, "first mistake": report.first_mistake()}
        writer.writerow(row | report.counts() | {f.law: f.status for f in report.findings})
    return out.getvalue()
