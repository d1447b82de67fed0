"""Runs of annotated 0.2.0 load and resume: fixtures/run-0.2.0 stopped at update 14 of a longer run."""

import json
import shutil
from pathlib import Path

import pytest
from tiny_runs import log_of, make_trainer, steps, validate_as, weights

import annotated
from annotated.cli.main import main
from annotated.files import read_json, write_json
from annotated.settings import current_settings
from annotated.training.run_folder import RunFolder

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


def of_0_2_0(progress):
    older = of_the_days_before_0_3_0(progress)
    return {**{k: v for k, v in older.items() if k not in ("validation_rank", "metric")}, "log_bytes": 9}


def of_the_days_before_0_3_0(progress):
    older = {"badness": "validation_rank", "batches_in_epoch": "epoch_batches", "fingerprint": "text"}
    return {older.get(name, name): value for name, value in progress.items()}


@pytest.mark.parametrize("older", [of_0_2_0, of_the_days_before_0_3_0])
def test_an_older_checkpoint_is_still_one_of_the_best(older, tmp_path, monkeypatch):
    settings = {"average_of": "best", "epochs": 4}
    validate_as(monkeypatch, [1, 2, 3, 4, 9, 9, 1, 2, 9, 9, 3, 4, 9, 9])  # 9 is at an end
    make_trainer(tmp_path / "whole", **settings).fit()
    make_trainer(tmp_path / "run", **settings, max_steps=16).fit()
    for folder in RunFolder(tmp_path / "run").checkpoints():
        write_json(folder / "progress.json", older(read_json(folder / "progress.json")))
    make_trainer(tmp_path / "run", **settings).fit(resume=True)
    assert steps(tmp_path / "run") == steps(tmp_path / "whole") == [8, 16, 32]
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_tokenized_text_of_an_older_run_is_still_known(run):
    settings = read_json(run / "training.json")
    write_json(run / "training.json", {**settings, "variant": "tok"})
    assert annotated.Translator.load(run).lower_cased
    flags = [f"--src={TEXT}", f"--out={run}", "--resume", "--max-steps=15", "--device=cpu"]
    assert main(["train", *flags, "--form=raw"]) == 2
    assert main(["train", *flags]) == 0
    assert read_json(run / "training.json")["form"] == "tok"


@pytest.mark.parametrize("by_loss", [{"average_of": "best"}, {"patience": 2}])
def test_bleu_for_the_log_decides_nothing_that_the_loss_decided(by_loss):
    """0.2.0 chose checkpoints and the end by the loss, however often BLEU was logged."""
    logged = {"metric": "bleu", "metric_every": 2}
    for chooses_nothing in ({}, {"average_of": "last", "patience": 0}):
        assert current_settings({"bleu_every": 2, **chooses_nothing}) == {**logged, **chooses_nothing}
    assert current_settings({"bleu_every": 2, **by_loss}) == by_loss
