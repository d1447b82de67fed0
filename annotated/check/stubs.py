"""Build your own: write stubs, give hints, translate with the shipped weights."""

import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from annotated.check.assertions import close
from annotated.check.laws import LAWS
from annotated.check.models import Model
from annotated.check.report import Report
from annotated.check.tracing import trace_calls
from annotated.check.user_code import ARGUMENTS, PARTS, Code

STUBS = Path(__file__).with_name("stubs.txt")
HINT = re.compile(r"^#([123]) (.*)\n", re.MULTILINE)
AFTER_THE_MODEL = {"batch", "label_smoothing", "rate", "greedy_decode", "beam_search", "bleu"}


def write_stubs(folder: Path) -> Path:
    """Write `transformer.py` with stubs into a folder. Raises FileExistsError rather than replace one."""
    path = folder / "transformer.py"
    folder.mkdir(parents=True, exist_ok=True)
    if path.exists():
        raise FileExistsError(f"{path} is there already: name another folder, or move it away")
    with path.open("x", encoding="utf-8") as file:
        file.write(HINT.sub("", STUBS.read_text(encoding="utf-8")))
    return path


def stubs(text: str) -> dict[str, str]:
    """Return each function and class of a text that is not written yet, by its name, in order."""
    pieces = re.findall(r"^(?:def|class) (\w+)(.*?)(?=^def|^class|\Z)", text, flags=re.MULTILINE | re.DOTALL)
    return {name: piece for name, piece in pieces if "raise NotImplementedError\n" in piece}


def hints(stub: str, stage: int) -> str:
    """Return the hints to a stub, up to a stage: 1 what to think of, 2 which shapes, 3 the lines."""
    piece = stubs(STUBS.read_text(encoding="utf-8"))[stub]
    return "\n".join(f"  {line}" for n, line in HINT.findall(piece) if int(n) <= stage)


def first_open_stub(report: Report, file: Path) -> str:
    """Return the first stub that is not written in a file yet, or that breaks a law there, or nothing."""
    open_laws = {f.law for f in (*report.of("failed"), *report.of("todo"))}
    parts = {law.part for law in LAWS if law.name in open_laws}
    open_stubs = {"Transformer" if part == "make_model" else PARTS[part][0] for part in parts}
    open_stubs |= stubs(file.read_text(encoding="utf-8")).keys()
    return next((stub for stub in stubs(STUBS.read_text(encoding="utf-8")) if stub in open_stubs), "")


def model_is_right(report: Report) -> bool:
    """Tell whether there is a model, and it and its parts keep all their laws."""
    later = {law.name for law in LAWS if law.part in AFTER_THE_MODEL}
    whole = {f.status for f in report.findings if f.law.startswith("model:")}
    return whole == {"passed"} and {f.law for f in report.of("failed")} <= later


def translate(code: Code, text: str, shipped: Any) -> tuple[str, str, str]:
    """Load a trained translator's weights into the code's own model.

    Returns its translation, that of the translator, and the name of the first module whose output is another
    than in the translator's model. Pre-norm, or another order of sines and cosines, fits the weights.
    """
    tokenizer = shipped.src_tokenizer
    sizes = {name: x for name, x in asdict(shipped.model.config).items() if name in ARGUMENTS}
    model = Model.of(replace(code, pad=tokenizer.pad), **sizes | {"shake": 0.0, "max_len": 512})
    missing, unexpected = model.module.load_state_dict(shipped.model.state_dict(), strict=False)
    learned = [name for name, _ in model.module.named_parameters() if name in missing]  # buffers are its own
    if learned or unexpected:
        lacks, has = (", ".join(names[:3]) or "nothing" for names in (unexpected, learned))
        problem = f"the weights have {lacks}, which your model lacks, and lack {has}, which it has"
        raise ValueError(f"{problem}. Take the stubs' names, and post-norm, no norm after the last layer")
    src = torch.tensor([[*tokenizer.encode(text), tokenizer.end]])
    tokens: list[int] = []
    with torch.no_grad():
        memory = model.encode(src)
        while len(tokens) < 60 and tokens[-1:] != [tokenizer.end]:
            row = model(src, torch.tensor([[tokenizer.start, *tokens]]), memory)[0, -1]
            tokens.append(int(row.index_fill(0, torch.tensor(list(shipped.forbidden)), -torch.inf).argmax()))
        tgt = torch.tensor([[tokenizer.start, *tokens]])
        outputs = outputs_of(model, src, tgt)
        right = outputs_of(replace(model, code=Code({}), module=shipped.model), src, tgt)
    differing = (name for name in outputs if name in right and not close(outputs[name], right[name], 1e-3))
    other = next(differing, "").removesuffix(".dropout")  # which changes nothing: what it was given differs
    return tokenizer.decode(tokens[:-1]), shipped.translate([text], beam=1)[0], other


def outputs_of(model: Model, src: Tensor, tgt: Tensor) -> dict[str, Tensor]:
    """Return what each module of a model gives, by its name, in the order in which they run."""
    names = {module: name for name, module in model.module.named_modules()}
    _, calls = trace_calls(lambda: model(src, tgt))
    return {names[c.module]: c.output for c in calls if c.module in names and isinstance(c.output, Tensor)}
