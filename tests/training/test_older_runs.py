"""Runs of annotated 0.2.0 load and resume: fixtures/run-0.2.0 stopped at update 14 of a longer run."""

import json
import shutil
from pathlib import Path

import pytest
from tiny_runs import log_of

import annotated
from annotated.cli.main import main

FIXTURES = Path(__file__).parent / "fixtures"
TEXT = FIXTURES / "run-0.2.0.tsv"
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def run(tmp_path):
    shutil.copytree(FIXTURES / "run-0.2.0", tmp_path / "run")
    return tmp_path / "run"


def resume_in_python(run):
    settings = {"vocab": 290, "N": 1, "d_model": 8, "d_ff": 8, "h": 2, "max_tokens": 100, "epochs": 3}
    settings |= {"keep": 2, "average": 2, "log_every": 3, "save_every": 4, "max_steps": 20}
    annotated.train(TEXT, run, resume=True, pair="en-de", device="cpu", **settings)


def resume_by_command(run):
    flags = ["--resume", "--max-steps", "20", "--src", str(TEXT), "--device", "cpu"]
    assert main(["train", "--out", str(run), *flags]) == 0


@pytest.mark.parametrize("resume", [resume_in_python, resume_by_command])
def test_an_older_run_is_resumed_as_its_own_version_resumed_it(resume, run):
    resume(run)
    lines = (FIXTURES / "run-0.2.0-resumed.jsonl").read_text(encoding="utf-8").splitlines()
    for line, expected in zip(log_of(run)[-3:], map(json.loads, lines), strict=True):
        del expected["seconds"]
        assert line == pytest.approx(expected, abs=1e-3)
    assert [line["step"] for line in log_of(run)] == [3, 6, 9, 12, 14, 15, 18, 19, 19, 20]


def test_an_older_run_is_a_model_and_its_checkpoints_are_too(run):
    translate = annotated.Translator.load(run)
    assert translate("the cat number 3 sees a dog") is not None
    checkpoint = run / "checkpoints" / "step-00000014"
    assert annotated.Translator.load(checkpoint).model.config == translate.model.config
