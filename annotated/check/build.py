"""Files: load what someone wrote, write stubs, grade a folder, translate with the shipped weights."""

import csv
import io
import re
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection, wait
from os import cpu_count
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch

from annotated import check
from annotated.check.adapt import PARTS, Code
from annotated.check.contract_laws import STUBS, stub_texts
from annotated.check.report import Finding, Report, TimeUp, own_traceback, time_limit

HINT = re.compile(r"^#([123]) (.*)\n", re.MULTILINE)


def load(path: Path, seconds: float = 20, before: Mapping[str, Any] | None = None) -> ModuleType:
    """Execute a Python file as a module, with names `before`; what lies beside it can be imported."""
    loader = SourceFileLoader(f"checked_{path.stem}", str(path))
    module = sys.modules[loader.name] = module_from_spec(cast(Any, spec_from_loader(loader.name, loader)))
    vars(module).update(before or {})
    folder = str(path.parent.absolute())
    sys.path.insert(0, folder)
    try:
        with time_limit(seconds):
            loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    return module


def check_file(path: Path, adapter: Path | None = None, seconds: float = 20) -> Report:
    """Check a file. One that cannot be executed has one finding: why.

    The adapter is a file that defines names and conventions; in it, `mine` is the module under test.
    """
    try:
        module = load(path, seconds)
        adapted = vars(load(adapter, seconds, {"mine": module})) if adapter else None
    except (Exception, SystemExit, TimeUp) as error:
        seen = f"{type(error).__name__}: {error}"
        says = "The file can be executed."
        finding = Finding("file", says, "", "failed", seen, traceback=own_traceback(error))
        return Report((finding,), path.stem)
    own = {name: x for name, x in vars(module).items() if not is_of_the_package(x)}
    return check.run(own, adapted, seconds, path.stem)


def is_of_the_package(x: object) -> bool:
    """Whether a name of a file is only imported from this package."""
    return str(getattr(x, "__module__", "")).startswith("annotated.")


# ---- build your own


def write_stubs(folder: Path) -> Path:
    """Write `transformer.py` with stubs into a folder. Raises FileExistsError rather than replace one."""
    path = folder / "transformer.py"
    if path.exists():
        raise FileExistsError(f"{path} exists, and is kept as it is")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(HINT.sub("", STUBS.read_text(encoding="utf-8")), encoding="utf-8")
    return path


def hints(stub: str, stage: int) -> str:
    """Return the hints to a stub, up to a stage: 1 what to think of, 2 which shapes, 3 the lines."""
    found = HINT.findall(stub_texts()[stub])
    return "\n".join(f"  {line}" for number, line in found if int(number) <= stage)


def first_open_stub(report: Report) -> str:
    """Return the first stub of the file that has a law to keep, or nothing."""
    open_laws = {f.law for f in report.findings if f.status in ("failed", "todo")}
    names = {part: names[0] for part, names in PARTS.items()} | {"make_model": "Transformer"}
    laws = (law for law in (*check.LAWS, *check.CONTRACT) if law.name in open_laws)
    open_stubs = {names.get(law.part, law.part) for law in laws}
    return next((stub for stub in stub_texts() if stub in open_stubs), "")


def translate(code: Code, text: str) -> tuple[str, str]:
    """Load the shipped weights into the code's own model and translate: its translation and the package's.

    Raises ValueError, naming them, unless the model's parameters have the names and shapes of the weights.
    """
    from annotated.translation.translator import load_pretrained

    shipped = load_pretrained("multi30k-en-de", engine="pytorch")
    c, tokenizer = shipped.model.config, shipped.src_tokenizer
    sizes = {
        name: getattr(c, name) for name in ("src_vocab", "tgt_vocab", "N", "d_model", "d_ff", "h", "dropout")
    }
    model = replace(code, pad=tokenizer.pad).model(**sizes, shake=0.0, max_len=512)
    state = shipped.model.state_dict()
    own = {name for name, _ in model.module.named_parameters(remove_duplicate=False)}
    if own != set(state) or not set(state) <= set(model.module.state_dict()):
        missing, extra = (", ".join(sorted(x)[:3]) or "nothing" for x in (set(state) - own, own - set(state)))
        raise ValueError(f"the weights do not fit: your model lacks {missing}, and has {extra} in addition; "
                         "names are those of lesson 00, and the model is post-norm")  # fmt: skip
    model.module.load_state_dict(state, strict=False)
    src = torch.tensor([[*tokenizer.encode(text), tokenizer.end]])
    tokens: list[int] = []
    with torch.no_grad():
        memory = model.encode(src)
        while len(tokens) < 60 and tokens[-1:] != [tokenizer.end]:
            row = model(src, torch.tensor([[tokenizer.start, *tokens]]), memory)[0, -1]
            tokens.append(int(row.index_fill(0, torch.tensor(list(shipped.forbidden)), -torch.inf).argmax()))
    [theirs] = shipped.translate([text], beam=1)
    return tokenizer.decode(tokens[:-1]), theirs


# ---- grading


def grade(folder: Path, seconds: float = 60, adapter: Path | None = None) -> list[Report]:
    """Check every .py file below a folder, side by side, each in a process of its own with a time limit."""
    files = sorted(p for p in folder.rglob("*.py") if not p.name.startswith(("_", ".")))
    if not files:
        raise FileNotFoundError(f"{folder}: there is no .py file")
    context = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
    if context.get_start_method() == "forkserver":  # PyTorch is loaded once, not in each process
        context.set_forkserver_preload(["torch._dynamo", "annotated.check.build"])

    def one(path: Path) -> Report:
        name = str(path.relative_to(folder).with_suffix(""))
        receiver, sender = context.Pipe(duplex=False)
        process = cast(Any, context).Process(
            target=check_in_child, args=(sender, path, adapter, seconds), daemon=True
        )
        process.start()
        sender.close()
        wait([receiver, process.sentinel], 120)  # until it has begun: loading PyTorch does not count
        if receiver.poll():
            with suppress(EOFError):
                receiver.recv()
            wait([receiver, process.sentinel], seconds)
        why = f"still running after {seconds:g} seconds"
        report: Report | None = None
        if receiver.poll():
            try:
                report = receiver.recv()
            except EOFError:
                why = "the process died"
        process.kill()
        process.join()
        failed = Finding("file", "It can be checked at all.", "", "failed", why)
        return Report(report.findings if report else (failed,), name)

    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        return list(pool.map(one, files))


def check_in_child(sender: Connection, path: Path, adapter: Path | None, seconds: float) -> None:
    """Check a file and send the report. What the file prints goes nowhere."""
    torch.set_num_threads(1)
    sender.send("begun")
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        report = check_file(path, adapter, min(20, seconds / 2))
    sender.send(report)


def grades_as_csv(reports: list[Report]) -> str:
    """Lay out grades as CSV: a line for each submission, a column for each law."""
    laws = [law.name for law in check.LAWS]
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["submission", "passed", "failed", "todo", "missing", "first mistake", *laws])
    for report in reports:
        statuses = {f.law: f.status for f in report.findings}
        counts = [report.count(status) for status in ("passed", "failed", "todo", "missing")]
        writer.writerow([report.name, *counts, report.first_mistake(), *(statuses.get(n, "") for n in laws)])
    return out.getvalue()
