"""Grades: each submission has its own, and no submission changes one."""

import csv
import io
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
import torch
from command_line import complains, ends

import annotated
from annotated import check
from annotated.check.confined import Confinement
from annotated.check.grade import grade, grades_as_csv, watch
from annotated.check.loading import as_script, load
from annotated.check.reading import Refused
from annotated.check.report import junit

RIGHT = (Path(__file__).parent / "right" / "functional.py").read_text(encoding="utf-8")
ATTENTION = RIGHT[: RIGHT.index("class MultiHeadAttention")]
WRONG = ATTENTION.replace("* Q.shape[-1] ** -0.5", "")
PARTS = ["attention"]


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
    assert "died" in rows[2]["first mistake"]
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
    for flags, says in ((["--timeout", 0], "time"), (["--require", "atention"], "no such part")):
        complains(["check", "--grade", tmp_path, "--require", "rate", *flags], capfd, says)


# ---- what a graded file can reach: loading one confined starts no process


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[str], ModuleType]]:
    def run(source: str) -> ModuleType:
        (tmp_path / "work.py").write_text(source, encoding="utf-8")
        return load(tmp_path / "work.py", loader_of=Confinement(tmp_path).loader)

    with as_script(tmp_path / "work.py"):
        yield run


FUNCTION = "import torch, functools, copy\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
FUNCTION += "def f(): pass\ndef name(*parts): return '__'.join(('', *parts, ''))\n"
REACHES = {
    "globals": "F.softmax.__globals__",
    "computed": "getattr(F.softmax, name('globals'))",
    "mapped": "[*map(getattr, [F.softmax], [name('globals')])]",
    "partial": "functools.partial(getattr, F.softmax)(name('globals'))",
    "format": "f'{F.softmax.__globals__}'",
    "own": "f.__globals__",
    "subclasses": "object.__subclasses__()",
    "bases": "().__class__.__bases__",
    "class of a class": "nn.Linear.__class__",
    "builtins": "__builtins__",
    "dotted": "import math.__class__.__init__.__globals__ as g",
    "filled again": "class S(str): pass\nimport math\nmath.__init__(S('math'), {})",
    "cached": "functools.cached_property(f).attrname = name('array_interface')",
    "alias of a class": "from typing import Mapping\nMapping[str, str].get = f",
    "loader": "__loader__.get_data('/etc/passwd')",
    "spec": "__spec__.loader",
    "import": "__import__('os')",
    "eval": "eval('1')",
    "exec": "exec('x = 1')",
    "compile": "compile('1', '', 'eval')",
    "all globals": "globals()",
    "locals": "locals()",
    "vars of a module": "vars(torch)",
    "vars of a class": "vars(nn.Module)",
    "frame": "(x for x in ()).gi_frame",
    "code": "(x for x in ()).gi_code",
    "traceback": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    e.__traceback__",
    "default": "getattr(F.softmax, name('globals'))",
    "exit": "class X:\n    def __enter__(self): pass\n    def __exit__(self, a, b, c): c.tb_frame\n"
    "with X(): raise ValueError",
    "private of torch": "nn.Linear(1, 1)._call_impl",
    "renamed": "class Linear: pass\nLinear.__module__ = 'torch'",
    "module's private": "torch._C",
    "from": "from torch import _C",
    "patch": "torch.Tensor.allclose = f",
    "alias": "for x in [nn.Linear]: x.forward = f",
    "patch by name": "setattr(nn.Linear, 'forward', f)",
    "deleted": "del nn.Linear.forward",
    "dataclass": "import dataclasses\ndataclasses.dataclass(nn.Linear)",
    "added": "nn.Linear.forward.x += 1",
    "walrus": "(x := nn.Module).training = 1",
    "unpacked": "a, nn.Linear.forward = 1, f",
    "loop": "for nn.Linear.forward in [f]: pass",
    "pattern": "match F.softmax:\n    case object(__globals__=g): pass",
    "value": "match 1:\n    case torch.pi: pass",
    "matched": "class X: __match_args__ = ('a',)",
    "tensor": "class T(torch.Tensor): pass",
    "number": "class N(float): pass",
    "three": "type('T', (), {})",
    "type of a type": "type(type(1))('T', (), {})",
    "enumeration": "import enum\nenum.Enum('T', {name('eq'): f})",
    "equal": "class X(str):\n    def __eq__(self, other): return True",
    "equal layers": "class X(nn.Module):\n    def __hash__(self): return 1",
    "reduced": "class X:\n    def __reduce_ex__(self, n): return f, ()",
    "function of torch": "class X:\n    def __torch_function__(self, *a): pass",
    "memory": "torch.zeros(1).untyped_storage()",
    "file": "torch.zeros(1).numpy().tofile('x')",
    "pointers": "torch.zeros(1).numpy().ctypes",
    "copied guard": "copy.deepcopy(getattr, {})",
    "own class": "class T(torch.Tensor):\n    def f(): return __class__",
    "real class": "import enum\nenum.Enum.mro()",
    "field": "import dataclasses\ndataclasses.field().name = 'x=1, y'",
    "class of a copy": "type(torch)('os', {})",
    "its class": "torch.__class__",
    "buffers": "nn.Linear(1, 1).get_buffer('x')",
    "globals in a list": "nn.RNNBase.all_weights.fget(f)",
    "arrays": "import numpy as np\nclass X:\n    def __init__(self): self.__dict__[name('array_interface')] = {}\nX()",
    "looked up": "class X:\n    def __getattr__(self, key): return {'data': (1, 1)}\nX().__array_interface__",
    "module's": "def __getattr__(name): return 1",
    "outside": "open('/etc/passwd')",
    "ours": "import annotated",
    "of ours": "from annotated.check import LAWS",
}


@pytest.mark.parametrize("cheat", REACHES)
def test_a_graded_file_reaches_no_insides(cheat: str, run: Callable[[str], ModuleType]) -> None:
    with pytest.raises((Refused, NameError, ImportError, TypeError)):
        run(FUNCTION + REACHES[cheat])


DOES_NOTHING = {
    "modules inside": "import torch\nx = torch.os.system('touch made')",
    "hub": "import torch\ntorch.hub.load('x', 'y')\ntorch.save([1], 'made')",
    "os": "import os\nos.makedirs('made')\nos.environ['X'] = '1'",
    "inspect": "from inspect import currentframe\nfor x in [currentframe()]: x.f_back.f_globals['LAWS'] = []",
    "gc": "import gc\nfor x in gc.get_objects(): x.clear()",
    "mock": "from unittest import mock\nimport torch\nmock.patch('torch.allclose', return_value=True).start()",
    "asked by C": "class X:\n    def __getattr__(self, key): return {'data': (1, 1), 'shape': (1,), 'typestr': '|O8'}\n"
    "import numpy as np\nassert np.asarray(X()).dtype == object",
    "write": "open('made', 'w').write('x')",
    "copies": "import torch, json, math\ntorch.allclose = json.dumps = math.sqrt = lambda *a: True",
    "hooks": "from torch.nn.modules.module import register_module_forward_hook as r\nr(lambda *a: 1)",
    "modes": "from torch.overrides import TorchFunctionMode\nTorchFunctionMode()",
    "numpy": "import numpy as np\nnp.save('made', np.zeros(1))\nnp.memmap('made', mode='w+', shape=1)",
    "wrapped": "import functools, torch\ndef f(): pass\nfunctools.wraps(f)(torch)\nfunctools.wraps(f)(torch.nn.Linear)",
}


@pytest.mark.parametrize("cheat", DOES_NOTHING)
def test_what_is_not_given_does_nothing(cheat: str, tmp_path: Path, run: Callable[[str], ModuleType]) -> None:
    before = dict(vars(torch)), dict(vars(torch.nn.Linear)), json.dumps, math.sqrt
    run(DOES_NOTHING[cheat])
    assert before == (dict(vars(torch)), dict(vars(torch.nn.Linear)), json.dumps, math.sqrt)
    assert not (tmp_path / "made").exists()
    assert not Path("made").exists()


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
print(f"{time.time() - torch.cuda.memory_allocated():.1f}" if STEPS > 3 else len(DATA))
RUNS = os.path.join(os.getcwd(), os.pardir, "runs")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0), random.seed(0), np.random.seed(0)
torch.backends.cudnn.deterministic = True
with open("sizes.json") as file:
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


def test_what_honest_files_do_is_done(tmp_path: Path, run: Callable[[str], ModuleType], monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sizes.json").write_text('{"h": 4}')
    module = run(HONEST)
    assert module.SIZES == {"h": 4}
    assert module.out.shape == (2, 16)
    assert module.shown == "Network(16, Network, 1)"
    assert check.attention(module.attention).passed
    assert module.shared == {"output": 3, "weights": 2}


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
    assert any(f"its own `{name}`" in f.seen for f in report.findings)


# ---- whole gradings: a wrong attention is written below each cheat, and none may pass or change another's grade

CHEATS = {
    "empty": "",
    "not_applicable": "NOT_APPLICABLE = {f'attention: {x}': 'no' for x in ('equation 1', 'mask', 'dropout')}",
    "wrapper_later": "def attention(query, key, value, mask=None):\n    import annotated\n"
    "    return annotated.attention(query, key, value, mask)",
    "no_mask": "def attention(query, key, value):\n"
    "    return (query @ key.mT * query.size(-1) ** -0.5).softmax(-1) @ value",
    "two_results": "def attention(query, key, value, mask=None):\n"
    "    out = (query @ key.mT * query.size(-1) ** -0.5).softmax(-1) @ value\n"
    "    return out if mask is None or mask.all() else {'a': out, 'b': out}",
    "casts": "import torch\ntorch.autocast('cpu').__enter__()",
    "stdout": "print('alice  passed: 39 passed')",
    "other": "from honest import attention",
    "stdlib": "import os\nfor name in os.listdir('..'): exec(open(name).read())",
    "forever": "while True: pass",
    "breaks": "class E(BaseException): pass\ndef attention(*a): raise E",
}


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs processes of Unix")
def test_no_submission_changes_a_grade(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name, cheat in CHEATS.items():
        broken = WRONG if "def attention" not in cheat else ""
        (tmp_path / f"{name}.py").write_text("" if name == "empty" else f"{broken}\n{cheat}\n")
    (tmp_path / "honest.py").write_text(ATTENTION)
    (tmp_path / "worker/parts").mkdir(parents=True)
    (tmp_path / "worker/work.py").write_text("from parts.core import attention\n")
    (tmp_path / "worker/parts/_core.py").write_text(ATTENTION)
    (tmp_path / "worker/parts/core.py").write_text("from ._core import *\nfrom . import _core as core\n")
    (tmp_path / "zealous.py").write_text(
        "from _shared import scale\n" + ATTENTION.replace("Q.shape[-1] ** -0.5", "scale(Q)")
    )
    (tmp_path / "_shared.py").write_text("def scale(Q): return Q.shape[-1] ** -0.5\n")
    (tmp_path / "scientist.py").write_text("import numbers as n, statistics, sqlite3\n" + ATTENTION)
    reports = {r.name: r for r in grade(tmp_path, PARTS, seconds=20, allow=["sqlite3"])}
    passed = {name for name, report in reports.items() if report.passed}
    assert passed == {"honest", "worker/work", "zealous", "scientist"}
    assert len(reports) == len(CHEATS) + 5
    assert (tmp_path / "honest.py").read_text() == ATTENTION
    assert capfd.readouterr().out == ""


def test_a_law_tells_of_a_name_that_is_another_by_then(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = watch()
    assert not changed()
    for where, name in ((torch, "allclose"), (torch.nn.Linear, "__eq__"), (type(check.LAWS[0]), "__call__")):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, lambda *a: True)
            assert name in changed()
    with torch.overrides.BaseTorchFunctionMode():
        assert changed()
    assert not changed()


def test_a_spreadsheet_gets_no_formula_wherever_it_cuts() -> None:
    seen = "x;=1+1\t@SUM(1)"
    report = check.Report((check.Finding("attention: mask", "", "", "failed", seen),), '=1;"+1')
    [row] = csv.DictReader(io.StringIO(grades_as_csv([report])))
    cells = [cell for text in row.values() for cell in re.split("[;\t]", text)]
    assert not any(re.match(r"[\"\s]*[=+@-]", cell) for cell in cells)
