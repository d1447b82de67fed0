"""The command line as tests use it."""

import io
import sys

from annotated.translation.cli.main import main

SIZES = "--vocab 320 --N 1 --d-model 16 --d-ff 16 --h 2"
TINY = f"--preset tiny {SIZES} --max-tokens 200 --epochs 2 --threads 1".split()


def ends(arguments):
    """The exit code, however the command ends."""
    try:
        return main([str(argument) for argument in arguments])
    except SystemExit as error:
        return error.code


def complains(arguments, capfd, *parts):
    """Assert exit code 2, no output, and an error that has these parts, without a traceback."""
    capfd.readouterr()
    assert ends(arguments) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert "Traceback" not in err
    for part in parts:
        assert part in err
    return err


def feed(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))
