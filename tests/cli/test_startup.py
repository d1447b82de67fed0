"""What is asked of the command line itself is answered without PyTorch, which takes seconds to import."""

import subprocess
import sys

import pytest

from annotated.cli.options import COMMANDS

LOADED = """
import atexit, sys
from annotated.cli.parser import main
heavy = {"torch", "numpy", "sacrebleu", "sentencepiece", "tqdm"}
atexit.register(lambda: print(sorted(heavy & set(sys.modules)), file=sys.stderr))
sys.exit(main(sys.argv[1:]))
"""

ASKED = [
    ["--help"],
    ["--version"],
    *([name, "--help"] for name in COMMANDS),
    *([name, "--print-config"] for name in COMMANDS),
]


@pytest.mark.parametrize("arguments", ASKED, ids=" ".join)
def test_what_needs_no_model_loads_no_library(arguments):
    done = subprocess.run([sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "[]\n")
    assert "annotated" in done.stdout


@pytest.mark.parametrize(("arguments", "says"), [(["train", "--lr", "1"], "--out"), (["fly"], "fly")])
def test_a_wrong_flag_is_told_without_it_too(arguments, says):
    done = subprocess.run([sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    said, loaded = done.stderr.splitlines()
    assert says in said
    assert loaded == "[]"


def test_each_command_lies_in_the_file_of_its_name():
    for name in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-c", f"from annotated.cli.{name} import {name}; print({name}.__module__)"],
            capture_output=True,
            text=True,
        )
        assert done.stdout == f"annotated.cli.{name}\n", done.stderr
