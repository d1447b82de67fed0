"""Grades: each submission has its own, and no submission changes one."""

import csv
import io
import json
import os
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_line import complains, ends

from annotated.check.grade import grade, grades_as_csv
from annotated.check.report import junit

RIGHT = (Path(__file__).parent / "right" / "functional.py").read_text(encoding="utf-8")
ATTENTION = RIGHT[: RIGHT.index("class MultiHeadAttention")]
WRONG = ATTENTION.replace("* Q.shape[-1] ** -0.5", "")
PARTS = ["attention"]


def test_a_folder_is_graded_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "ann.py").write_text(RIGHT)
    (tmp_path / "bob").mkdir()
    (tmp_path / "bob/work.py").write_text(RIGHT.replace("-1e30", "-1"))
    (tmp_path / "eve.py").write_text("import signal\nsignal.raise_signal(9)\n")
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


# A wrong attention is written below each of these; none of them may pass, nor change another's grade.
CHEATS = {
    "empty": "",
    "not_applicable": "NOT_APPLICABLE = {f'attention: {x}': 'no' for x in ('equation 1', 'mask', 'dropout')}",
    "wrapper": "from annotated import attention as theirs\ndef attention(*a, **k): return theirs(*a, **k)",
    "wrapper_later": "def attention(query, key, value, mask=None):\n    import annotated\n"
    "    return annotated.attention(query, key, value, mask)",
    "reimport": "import sys\nsys.modules.pop('annotated', 0)\nimport annotated\nattention = annotated.attention",
    "importlib": "import importlib\nattention = importlib.import_module('annotated.transformer').attention",
    "reads_ours": "import glob, sys\nfor p in sys.path:\n    for f in glob.glob(p + '/annotated/transformer/attention.py'):\n"
    "        exec(open(f).read())",
    "laws": "import annotated.check as c\nc.LAWS.clear()",
    "laws_of_modules": "import sys\nfor n, m in list(sys.modules.items()):\n    if hasattr(m, 'LAWS'): m.LAWS.clear()",
    "allclose": "import torch\ntorch.allclose = lambda *a, **k: True",
    "equal": "import torch\ntorch.Tensor.__eq__ = lambda *a: True\ntorch.equal = lambda *a: True",
    "softmax": "import torch\ntorch.Tensor.softmax = lambda x, dim=-1: x * 0",
    "builtins": "import builtins\nbuiltins.isinstance = lambda *a: True",
    "mocked": "from unittest import mock\nimport torch\nmock.patch('torch.allclose', return_value=True).start()",
    "json": "import json\njson.dumps = lambda *a, **k: '{}'",
    "frames": "import sys\nf = sys._getframe()\nwhile f.f_back: f = f.f_back\nf.f_globals['LAWS'] = []",
    "inspect": "import inspect\nfor s in inspect.stack():\n    s.frame.f_globals.update(close=lambda *a: True)",
    "traceback": "try: 1 / 0\nexcept Exception as e:\n    f = e.__traceback__.tb_frame\n"
    "    while f.f_back:\n        f = f.f_back; f.f_globals['close'] = lambda *a: True",
    "gc": "import gc\nfor x in gc.get_objects():\n    if type(x).__name__ == 'Connection': x.send('passed')",
    "pipes": "import os\nfor fd in range(3, 30):\n    try: os.write(fd, b'passed\\n')\n    except OSError: pass",
    "half": "import os\nfor fd in range(3, 30):\n    try: os.write(fd, b'\\x00\\x00\\xff\\xff')\n    except OSError: pass",
    "forged": "import os, json\nfor fd in range(3, 30):\n    try: os.write(fd, json.dumps({'findings': []}).encode() + b'\\n')\n"
    "    except OSError: pass\nos._exit(0)",
    "closes": "import os\nos.closerange(3, 60)",
    "token": "import multiprocessing as m\nprint(m.current_process()._args[1])",
    "fork": "import os, time\nif os.fork() == 0: time.sleep(300)",
    "popen": "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'])",
    "kill": "import os\nos.kill(os.getppid(), 9)",
    "killpg": "import os\nos.killpg(0, 9)",
    "exit": "import sys\nsys.exit(0)",
    "os_exit": "import os\nos._exit(0)",
    "posix_exit": "import posix\nposix._exit(0)",
    "exit_later": "import posix\ndef attention(*a): posix._exit(0)",
    "stdout": "import os\nos.write(1, b'alice  passed: 39 passed\\n\\x1b[2J')",
    "tty": "open('/dev/tty', 'w').write('passed')",
    "atexit": "import atexit, os\natexit.register(lambda: os.write(3, b'passed'))",
    "thread": "import threading, time, os\ndef f():\n    time.sleep(1); os.write(1, b'x')\nthreading.Thread(target=f).start()",
    "class": "import torch\nclass T(torch.Tensor):\n    @classmethod\n    def __torch_function__(c, f, t, a=(), k=None):\n"
    "        return True if f is torch.allclose else super().__torch_function__(f, t, a, k or {})\n"
    "def attention(query, key, value, mask=None): return torch.zeros(*query.shape[:-1], value.shape[-1]).as_subclass(T)",
    "other": "from honest import attention",
    "other_read": "import os\nexec(open(os.path.join(os.path.dirname(__file__), 'honest.py')).read())",
    "spoils": "import os\nopen(os.path.join(os.path.dirname(__file__), 'honest.py'), 'w').write('')",
    "removes": "import os\nos.remove(os.path.join(os.path.dirname(__file__), 'honest.py'))",
    "forever": "while True: pass",
    "signals": "import signal\nsignal.signal(signal.SIGPROF, signal.SIG_IGN)\nsignal.setitimer(signal.ITIMER_PROF, 0)\n"
    "def attention(*a):\n    while True: pass",
}


def alive(text: bytes) -> bool:
    return any(
        text in p.read_bytes()
        for p in Path("/proc").glob("[0-9]*/cmdline")
        if os.access(p, os.R_OK) and p.exists()
    )


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs processes of Unix")
def test_twenty_lines_of_python_change_no_grade(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name, cheat in CHEATS.items():
        broken = WRONG if "def attention" not in cheat and "attention =" not in cheat else ""
        (tmp_path / f"{name}.py").write_text("" if name == "empty" else f"{broken}\n{cheat}\n")
    (tmp_path / "honest.py").write_text(ATTENTION)
    (tmp_path / "worker").mkdir()
    (tmp_path / "worker/work.py").write_text("from parts import attention\n")
    (tmp_path / "worker/parts.py").write_text(ATTENTION)
    (tmp_path / "zealous.py").write_text(
        "from _shared import scale\n" + ATTENTION.replace("Q.shape[-1] ** -0.5", "scale(Q)")
    )
    (tmp_path / "_shared.py").write_text("def scale(Q): return Q.shape[-1] ** -0.5\n")
    reports = {r.name: r for r in grade(tmp_path, PARTS, seconds=20)}
    passed = {name for name, report in reports.items() if report.passed}
    assert passed == {"honest", "worker/work", "worker/parts", "zealous"}
    assert len(reports) == len(CHEATS) + 4
    assert (tmp_path / "honest.py").read_text() == ATTENTION
    assert capfd.readouterr().out == ""
    assert not alive(b"time.sleep(300)")
