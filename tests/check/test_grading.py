"""Grades: each submission has its own, and no submission changes one."""

import csv
import io
import json
import os
import re
import sys
from multiprocessing import Pipe
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from command_line import complains, ends

import annotated
from annotated import check
from annotated.check.grade import excused, grade, grades_as_csv
from annotated.check.law import EXCUSED
from annotated.check.protocol import DTYPES, Gone, Wire, pack, refuse, unpack
from annotated.check.report import junit
from annotated.check.sandbox import landlock

HERE = Path(__file__).parent
RIGHT = (HERE / "right" / "functional.py").read_text(encoding="utf-8")
ATTENTION = RIGHT[: RIGHT.index("class MultiHeadAttention")]
WRONG = ATTENTION.replace("* Q.shape[-1] ** -0.5", "")
PARTS = ["attention"]
SECRET = "# the first line of somebody else's file"
UNIX = pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs processes of Unix")


def test_a_folder_is_graded_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "ann.py").write_text(RIGHT)
    (tmp_path / "bob").mkdir()
    (tmp_path / "bob/work.py").write_text(RIGHT.replace("-1e30", "-1"))
    (tmp_path / "eve.py").write_text("class E(BaseException): pass\nraise E\n")
    (tmp_path / "max.py").write_text("import time\nprint('noise')\ntime.sleep(100)\n")
    reports = grade(tmp_path, PARTS, seconds=40)
    assert {r.name: r.passed for r in reports} == {"ann": True, "bob/work": False, "eve": False, "max": False}
    rows = list(csv.DictReader(io.StringIO(grades_as_csv(reports))))
    assert [row["submission"] for row in rows] == sorted(r.name for r in reports)
    assert [row["result"] for row in rows] == ["passed", "failed", "failed", "failed"]
    assert rows[0]["causal mask"] == "passed"
    assert rows[2]["first mistake"] == "file: E: "
    assert len(ElementTree.fromstring(junit(reports))) == 4


@pytest.mark.parametrize(
    ("require", "passed"), [(["attention"], True), (["attention", "bleu"], False), (["all"], False)]
)
def test_what_is_required_must_be_there(require: list[str], passed: bool, tmp_path: Path) -> None:
    (tmp_path / "ann.py").write_text(RIGHT)
    [report] = grade(tmp_path, require)
    assert report.passed == passed
    assert passed or "required" in report.of("failed")[-1].law


def test_a_class_of_one_is_a_list_and_what_is_not_graded_is_said(tmp_path: Path, capsys) -> None:
    (tmp_path / "ann.py").write_text("def rate(): pass\n")
    (tmp_path / "_answer.py").write_text("")
    (tmp_path / ".venv/lib").mkdir(parents=True)
    (tmp_path / ".venv/lib/site.py").write_text("")
    assert ends(["check", "--grade", tmp_path, "--require", "rate", "--json", tmp_path / "out.json"]) == 1
    assert [report["name"] for report in json.loads((tmp_path / "out.json").read_text())] == ["ann"]
    assert ".venv, _answer.py\n" in capsys.readouterr().out


def test_odd_names_and_texts_spoil_no_grades(tmp_path: Path) -> None:
    for number, text in enumerate((r"\ud800", r"\x1b[2J", r"\0\ufffe")):
        name = f"{number}\udcfc.py" if sys.platform == "linux" else f"{number}.py"  # a byte that is not UTF-8
        (tmp_path / name).write_text(f'def subsequent_mask(n):\n    raise ValueError("{text}")\n')
    (tmp_path / "=cmd.py").write_text(ATTENTION)
    files = {form: tmp_path / f"out.{form}" for form in ("csv", "json", "junit")}
    flags = [flag for form, path in files.items() for flag in (f"--{form}", path)]
    assert ends(["check", "--grade", tmp_path, "--require", "subsequent_mask", *flags]) == 1
    rows = list(csv.DictReader(files["csv"].open(encoding="utf-8")))
    assert [row["submission"][:2] for row in rows if "cmd" in row["submission"]] == ["'="]
    assert len(rows) == len(json.loads(files["json"].read_text(encoding="utf-8"))) == 4
    assert len(ElementTree.parse(files["junit"]).getroot()) == 4


def test_bad_calls_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ann.py").write_text("")
    for flags, says in ((["rate", "--timeout", 0], "time"), (["rate,atention"], "no such part")):
        complains(["check", "--grade", tmp_path, "--require", *flags], capfd, says)


HONEST = """\
from __future__ import annotations

import argparse, json, logging, math, os, random, sys, time, warnings
from abc import ABC, abstractmethod
from collections import Counter, namedtuple
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import lru_cache, partial, wraps
from pathlib import Path
from typing import NamedTuple, Optional, TypedDict

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor, optim
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

sys.path.append(os.path.dirname(os.path.abspath(__file__)))
warnings.filterwarnings("ignore")
logger = logging.getLogger(__name__)
os.makedirs("runs", exist_ok=True)
DATA = Path("data") / "train.txt"
fig, axes = plt.subplots(1, 2)
STEPS = int(os.environ.get("STEPS", 3))
print(f"{time.time() - torch.cuda.memory_allocated():.1f}" if STEPS > 3 else DATA)
RUNS = os.path.join(os.getcwd(), os.pardir, "runs")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0), random.seed(0), np.random.seed(0)
torch.backends.cudnn.deterministic = True
with open("_sizes.json") as file:
    SIZES = json.load(file)
Pair = namedtuple("Pair", "output weights")


class Kind(Enum):
    PRE = "pre"


@dataclass
class Config:
    d_model: int = 16
    kinds: list = field(default_factory=lambda: [Kind("pre").value])


class Options(TypedDict, total=False):
    eps: float


class Size:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n

    def __add__(self, other):
        return Size(self.n + other.n)


assert Size(1) + Size(2) == Size(3)


class Base(nn.Module, ABC):
    _count = 0

    def __init__(self, **sizes):
        super().__init__()
        self.__dict__.update(sizes)
        for name, size in sizes.items():
            setattr(self, name, size)
        Base._count += 1
        self._cache, self.__secret = {}, 1

    @abstractmethod
    def forward(self, x): ...

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            module.bias.data.zero_()

    def __repr__(self):
        return f"{self.__class__.__name__}({self.d_model}, {type(self).__name__}, {self.__secret})"


class Network(Base):
    def __init__(self, d_model):
        super().__init__(d_model=d_model)
        self.net = nn.Sequential(nn.Linear(d_model, 4), nn.ReLU(), nn.Linear(4, d_model))
        self.named = nn.ModuleDict({"net": self.net})
        self.net[0].weight.requires_grad = False
        self.register_buffer("ones", torch.ones(1))
        self.apply(self._init_weights)
        self.activation = getattr(F, "relu")
        assert not hasattr(self.net, "_compiled") and not getattr(self.net, "__len", 0)

    def forward(self, x):
        logger.debug("shape %s", x.shape)
        return self.named.net(x) * self.named["net"](x).sign().abs() * self.ones.to(x.device)

    def __getattr__(self, name):
        return super().__getattr__(name)


def timed(f):
    @wraps(f)
    def inner(*args, **kwargs):
        start = time.time()
        return f(*args, **kwargs)

    return inner


@torch.jit.script
@torch.no_grad()
def helper(x):
    return x


@timed
def attention(query, key, value, mask: Optional[Tensor] = None, dropout=None):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)
    match dropout:
        case None:
            weights = F.softmax(scores, dim=-1)
        case _:
            weights = dropout(F.softmax(scores, dim=-1))
    return Pair(weights @ value, weights)


config = Config()
network = Network(**{"d_model": asdict(config)["d_model"]})
out, shown = network(torch.zeros(2, 16)), repr(network)
shared = Pair(1, 2)._replace(output=3)._asdict()

if __name__ == "__main__":
    args = argparse.ArgumentParser().parse_args()
    for batch in tqdm(DataLoader([])):
        torch.save(batch, "x.pt")
        print(batch.__globals__, __spec__)
"""


def test_what_a_part_keeps_of_its_arguments_and_results_changes_no_finding() -> None:
    kept = []

    def zeroes(query, key, value, mask=None):
        query.data.zero_()
        return query.sum() * 0 + value[..., :1, :] * 0 + torch.zeros(query.size(-2), 1)

    def overwrites(query, key, value, mask=None):
        out = torch.zeros(*query.shape[:-1], value.size(-1))
        kept.append((query, key, value, out))
        for tensors in kept:
            for x in tensors:
                x.data.zero_()
        return out

    for wrong in (zeroes, overwrites):
        assert check.attention(wrong).of("failed")


def test_a_convention_stays_as_it_was_said() -> None:
    hides = [1]
    code = check.Code.of({"TRUE_HIDES": hides})
    hides.clear()
    assert code.true_hides is True


class Zeros(torch.nn.Module):
    def __init__(self, d_model, vocab):
        super().__init__()
        self.table = torch.nn.Parameter(torch.zeros(vocab, d_model), requires_grad=False)

    def forward(self, x):
        return self.table[x] * 0 if x.dim() == 2 else x[..., : len(self.table)]


def test_parts_that_compute_nothing_break_their_laws() -> None:
    assert check.embeddings(Zeros).of("failed")
    assert check.generator(Zeros).of("failed")


@pytest.mark.parametrize("name", ["named_parameters", "__call__"])
def test_what_a_model_hides_from_pytorch_is_not_passed_over(name: str) -> None:
    layer = annotated.make_model(23, 29, N=1, d_model=24, d_ff=40, h=4)
    kind = type(layer.encoder.layers[0])
    layer.encoder.layers[0].__class__ = type(
        "Hiding", (kind,), {name: lambda self, *args, **kwargs: iter(())}
    )
    report = check.make_model(lambda src_vocab, tgt_vocab: layer)
    assert any(f"its own `{name}`" in f.message for f in report.findings)


# ---- what is asked of another process


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (2, 3)])
def test_tensors_arrive_as_they_were(dtype: str, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape).mul(9).to(DTYPES[dtype])
    sent = json.loads(json.dumps(pack([x, (x.mT if x.dim() > 1 else x, {"x": x}), None, "a", 1.5], refuse)))
    [y, (z, named), *rest] = unpack(sent, refuse)
    assert y.dtype == x.dtype
    assert torch.equal(y, x)
    assert torch.equal(z, x.mT if x.dim() > 1 else x)
    assert torch.equal(named["x"], x)
    assert rest == [None, "a", 1.5]


@pytest.mark.parametrize("message", [b"", b"{", b"[" * 100_000])
def test_what_nobody_understands_ends_the_conversation(message: bytes) -> None:
    here, there = Pipe()
    there.send_bytes(message)
    with pytest.raises(Gone):
        Wire(here, refuse).receive()


@UNIX
def test_another_process_is_found_as_this_one_finds(tmp_path: Path) -> None:
    right = "classic", "functional", "lessons", "packed", "sequence_first"
    files = {name: (HERE / "right" / f"{name}.py").read_text(encoding="utf-8") for name in right}
    files["outside"] = files["classic"].replace(
        "x + self.dropout(sublayer(self.norm(x)))", "self.norm(x + sublayer(x))"
    )
    files["raises"] = files["lessons"].replace(
        "def forward(", "def forward(self, x):\n        raise ValueError\n\n    def other(", 1
    )
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    for report in grade(tmp_path, ["rate"], seconds=300):
        found = {f.law: f for f in report.findings}
        for f in check.run_file(tmp_path / f"{report.name}.py").findings:
            g = found[f.law]
            told = [(x.status, x.message, x.example, x.mistake) for x in (f, g)]
            assert told[0] == told[1] or f.message.startswith(EXCUSED), (report.name, f.law)


# ---- whole gradings: a wrong attention is written below each cheat, and none may pass or change another's grade

FRAMES = """\
import sys
frame = sys._getframe()
while frame:
"""
CHEATS = {
    "empty": "",
    "not_applicable": "NOT_APPLICABLE = {f'attention: {x}': 'no' for x in ('equation 1', 'mask', 'dropout')}",
    "wrapper": "import annotated\nattention = lambda query, key, value, mask=None: "
    "annotated.attention(query, key, value, mask)",
    "wrapper_later": "def attention(query, key, value, mask=None):\n    import annotated\n"
    "    return annotated.attention(query, key, value, mask)",
    "no_mask": "def attention(query, key, value):\n"
    "    return (query @ key.mT * query.size(-1) ** -0.5).softmax(-1) @ value",
    "two_results": "def attention(query, key, value, mask=None):\n"
    "    out = (query @ key.mT * query.size(-1) ** -0.5).softmax(-1) @ value\n"
    "    return out if mask is None or mask.all() else {'a': out, 'b': out}",
    "casts": "import torch\ntorch.autocast('cpu').__enter__()",
    "patches": "import torch\ntorch.allclose = torch.equal = torch.Tensor.allclose = lambda *a, **k: True",
    "mode": "from torch.overrides import TorchFunctionMode\nclass M(TorchFunctionMode):\n"
    "    def __torch_function__(self, f, types, args=(), kwargs=None):\n"
    "        return True if f.__name__ == 'allclose' else f(*args, **kwargs or {})\nM().__enter__()",
    "laws": "import gc\nfor x in gc.get_objects():\n    if type(x).__name__ == 'Law':\n"
    "        object.__setattr__(x, 'check', lambda code: '')",
    "globals": FRAMES
    + "    frame.f_globals.update({n: lambda *a, **k: True for n in ('close', 'expect', 'compare')})\n"
    "    frame = frame.f_back",
    "answers": FRAMES + "    if hasattr(frame.f_locals.get('self'), 'wire'):\n"
    "        frame.f_locals['self'].answer = lambda q: {'status': 'passed', 'findings': []}\n    frame = frame.f_back",
    "messages": "import os\nfor fd in range(3, 40):\n    try: os.write(fd, b'passed' * 99)\n    except OSError: pass",
    "tensors": "import torch\nclass T(torch.Tensor):\n    def __eq__(self, x): return True\n    allclose = __eq__\n"
    "def attention(query, key, value, mask=None): return torch.zeros_like(query).as_subclass(T)",
    "exits": "import os\nos._exit(0)",
    "leaves": "import sys\nsys.exit(0)",
    "writes": "open(OTHER, 'w').write('')",
    "removes": "import os\nos.remove(OTHER)",
    "forks": "import os, signal\nif os.fork() == 0: os.kill(os.getppid(), signal.SIGKILL)",
    "stdout": "print('alice  passed: 39 passed')",
    "other": "from honest import attention",
    "stdlib": "import os\nfor name in os.listdir('..'): exec(open(name).read())",
    "forever": "while True: pass",
    "breaks": "class E(BaseException): pass\ndef attention(*a): raise E",
}
LANDLOCK = {  # what only Linux itself keeps from happening
    "reads": "exec(open(OTHER).read())",
    "maps": "import torch\nexec(bytes(torch.from_file(OTHER, size=SIZE, dtype=torch.uint8)))",
    "maps_to_write": "import torch\ntorch.from_file(OTHER, shared=True, size=SIZE, dtype=torch.uint8).fill_(35)",
    "socket": "import socket\nclass S(socket.socket): pass\nS(socket.AF_UNIX)",
    "changes_mode": "import ctypes\nassert ctypes.CDLL(None).chmod(OTHER.encode(), 0) == 0",
    "leaks": "class E(Exception): pass\ndef attention(*a, **k):\n"
    "    exec(compile('raise ValueError', OTHER, 'exec'))",
    "signals": "import ctypes, os\nctypes.CDLL(None).kill(os.getppid(), 9)",
}


@UNIX
def test_no_submission_changes_a_grade(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cheats = CHEATS | (LANDLOCK if landlock() > 5 else {})
    other = f"OTHER, SIZE = {str(tmp_path / 'honest.py')!r}, {len(SECRET) + 1 + len(ATTENTION)}\n"
    for name, cheat in cheats.items():
        broken = WRONG if "attention" not in cheat.replace("import attention", "") else ""
        (tmp_path / f"{name}.py").write_text("" if name == "empty" else f"{broken}\n{other}{cheat}\n")
    (tmp_path / "honest.py").write_text(f"{SECRET}\n{ATTENTION}")
    (tmp_path / "usual.py").write_text(HONEST)
    (tmp_path / "_sizes.json").write_text('{"h": 4}')
    (tmp_path / "worker/parts").mkdir(parents=True)
    (tmp_path / "worker/work.py").write_text("from parts.core import attention\n")
    (tmp_path / "worker/parts/_core.py").write_text(ATTENTION)
    (tmp_path / "worker/parts/core.py").write_text("from ._core import *\nfrom . import _core as core\n")
    (tmp_path / "zealous.py").write_text(
        "from _shared import scale\n" + ATTENTION.replace("Q.shape[-1] ** -0.5", "scale(Q)")
    )
    (tmp_path / "_shared.py").write_text("def scale(Q): return Q.shape[-1] ** -0.5\n")
    (tmp_path / "scientist.py").write_text("import numbers as n, statistics, sqlite3\n" + ATTENTION)
    reports = {r.name: r for r in grade(tmp_path, PARTS, seconds=30)}
    passed = {name for name, report in reports.items() if report.passed}
    assert passed == {"honest", "usual", "worker/work", "zealous", "scientist"}
    assert len(reports) == len(cheats) + 6
    assert (tmp_path / "honest.py").read_text() == f"{SECRET}\n{ATTENTION}"
    findings = [f for name in {*LANDLOCK} & {*reports} for f in reports[name].findings]
    told = "".join(f.message + f.traceback for f in findings)
    assert SECRET not in told
    assert capfd.readouterr().out == ""


def test_an_adapter_writes_out_which_laws_do_not_apply(tmp_path: Path) -> None:
    (adapter := tmp_path / "_adapter.py").write_text("NOT_APPLICABLE = {'causal mask': 'not asked'}\n")
    assert excused(adapter) == {"causal mask": "not asked"}
    adapter.write_text("NOT_APPLICABLE = dict.fromkeys(mine.LAWS, 'no')\n")
    with pytest.raises(ValueError, match="written out"):
        excused(adapter)


def test_a_spreadsheet_gets_no_formula_wherever_it_cuts() -> None:
    seen = "x;=1+1\t@SUM(1)"
    report = check.Report((check.Finding("attention: mask", "", "", "failed", seen),), '=1;"+1')
    [row] = csv.DictReader(io.StringIO(grades_as_csv([report])))
    cells = [cell for text in row.values() for cell in re.split("[;\t]", text)]
    assert not any(re.match(r"[\"\s]*[=+@-]", cell) for cell in cells)
