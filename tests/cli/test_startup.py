"""What is asked of the command line itself is answered without PyTorch, which takes seconds to import."""

import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import annotated
from annotated.translation.cli.main import COMMANDS

LOADED = """
import atexit, sys
from annotated.translation.cli.main import main
heavy = {"torch", "numpy", "sacrebleu", "sentencepiece", "tqdm"}
atexit.register(lambda: print(sorted(heavy & set(sys.modules)), file=sys.stderr))
sys.exit(main(sys.argv[1:]))
"""

ASKED = [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)]


@pytest.mark.parametrize("arguments", ASKED, ids=" ".join)
def test_what_needs_no_model_loads_no_library(arguments):
    done = subprocess.run([sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "[]\n")
    assert done.stdout


def test_help_does_without_docstrings():
    command = [sys.executable, "-OO", "-m", "annotated", "train", "--help-all"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--learning-rate" in done.stdout


@pytest.mark.parametrize(("arguments", "says"), [(["train", "--lr", "1"], "--out"), (["fly"], "fly")])
def test_a_wrong_flag_is_told_without_it_too(arguments, says):
    done = subprocess.run([sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    *_, error, loaded = done.stderr.splitlines()
    assert says in error
    assert loaded == "[]"


def test_a_line_is_translated_without_the_compiler():
    """PyTorch imports it, for a second, to compute anything on "meta"."""
    code = LOADED.replace('"numpy"', '"torch._dynamo", "sympy"')
    command = [sys.executable, "-c", code, "translate", "--model", "multi30k-en-de"]
    done = subprocess.run(command, input="A dog runs.\n", capture_output=True, text=True)
    assert done.stdout == "Ein Hund rennt.\n"
    assert "torch" in done.stderr
    assert "_dynamo" not in done.stderr
    assert "sympy" not in done.stderr


def test_it_runs_without_its_source(tmp_path):
    """Byte-compiled alone, as some installations keep a package."""
    package = Path(annotated.__path__[0])
    for path in package.glob("**/*.py"):
        name = path.relative_to(package.parent).with_suffix(".pyc")
        py_compile.compile(path, tmp_path / name, doraise=True)
    shutil.copy(package / "__init__.pyi", tmp_path / package.name)  # the list of the public names
    options = {"env": {**os.environ, "PYTHONPATH": str(tmp_path)}, "cwd": tmp_path}
    command = [sys.executable, "-m", "annotated", "train"]
    for asked in ("--version", "--help"):
        done = subprocess.run([*command, asked], capture_output=True, text=True, **options)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout


def test_where_an_error_arose_is_shown_on_request():
    command = [sys.executable, "-m", "annotated", "translate", "--model", "nope"]
    for flags, lines in (([], 1), (["--traceback"], 5)):
        done = subprocess.run([*command, *flags], capture_output=True, text=True)
        assert done.returncode == 2
        assert ("Traceback" in done.stderr) == bool(flags)
        assert done.stderr.count("\n") >= lines
        assert done.stderr.splitlines()[-1].startswith("annotated: there is no model folder nope")
