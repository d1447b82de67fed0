"""Build your own: write the stubs, give hints, and translate with the shipped weights in what was written."""

import re
from dataclasses import asdict, replace
from pathlib import Path

import torch

from annotated.check.adapt import ARGUMENTS, PARTS, Code
from annotated.check.laws import CONTRACT, LAWS
from annotated.check.laws.contract import STUBS, stub_texts
from annotated.check.report import Report

HINT = re.compile(r"^#([123]) (.*)\n", re.MULTILINE)
AFTER_THE_MODEL = {"batch", "label_smoothing", "rate", "greedy_decode", "beam_search", "bleu"}


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
    open_laws = {f.law for f in (*report.of("failed"), *report.of("todo"))}
    names = {part: names[0] for part, names in PARTS.items()} | {"make_model": "Transformer"}
    open_stubs = {names.get(law.part, law.part) for law in (*LAWS, *CONTRACT) if law.name in open_laws}
    return next((stub for stub in stub_texts() if stub in open_stubs), "")


def model_is_right(report: Report) -> bool:
    """Whether there is a model, and it and its parts keep all their laws."""
    later = {law.name for law in (*LAWS, *CONTRACT) if law.part in AFTER_THE_MODEL}
    whole = [f for f in report.findings if f.law.startswith("model:")]
    right = all(f.status == "passed" for f in whole) and {f.law for f in report.of("failed")} <= later
    return bool(whole) and right


def translate(code: Code, text: str) -> tuple[str, str]:
    """Load the shipped weights into the code's own model and translate: its translation and the package's.

    Raises ValueError, naming them, unless the model's parameters have the names and shapes of the weights.
    """
    from annotated.translation.translator import load_pretrained

    shipped = load_pretrained("multi30k-en-de", engine="pytorch")
    tokenizer = shipped.src_tokenizer
    sizes = {name: x for name, x in asdict(shipped.model.config).items() if name in ARGUMENTS}
    model = replace(code, pad=tokenizer.pad).model(**sizes | {"shake": 0.0, "max_len": 512})
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
