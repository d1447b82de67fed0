"""A run that is killed at any moment and resumed ends as one that was never killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from tiny_runs import exit_code, log_of, make_trainer, start, steps, train_until

from annotated.__main__ import main
from annotated.checkpoints import WEIGHTS, average_checkpoints, load_model, read_tensors
from annotated.files import read_json, write_json

DROPOUT = {"save_every": 7, "accumulate": 2}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was never killed."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("whole") / "run"
    make_trainer(out, **DROPOUT).train()
    yield out
    torch.set_num_threads(threads)


def assert_same_run(out, whole):
    assert (out / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes()
    assert log_of(out) == log_of(whole)
    names = [folder.name for folder in sorted((whole / "checkpoints").iterdir())]
    assert [folder.name for folder in sorted((out / "checkpoints").iterdir())] == names
    for name in names:
        for file in (WEIGHTS, "optimizer.safetensors"):
            assert (out / "checkpoints" / name / file).read_bytes() == (
                whole / "checkpoints" / name / file
            ).read_bytes()


@pytest.mark.parametrize(
    ("event", "part", "count"),
    [
        ("open", "log.jsonl", 4),  # between checkpoints, after some updates that have to be made again
        ("open", ".optimizer.safetensors", 3),  # while a checkpoint is written
        ("os.rename", ".step-", 2),  # a checkpoint is written, but not yet under its name
        ("open", "run/.config.json", 2),  # the checkpoint is whole, the run's model is being rewritten
        ("os.rename", "checkpoints/step-", 1),  # an old checkpoint is about to be removed
        ("os.remove", "optimizer", 1),  # ... and half of it is
    ],
)
def test_killed_and_resumed(event, part, count, whole, tmp_path):
    out = tmp_path / "run"
    assert exit_code(start(train_until, out, event, part, count, **DROPOUT)) == -signal.SIGKILL
    assert log_of(out) != log_of(whole)
    make_trainer(out, **DROPOUT).train(resume=True)
    assert_same_run(out, whole)


def test_killed_twice_before_the_first_checkpoint(whole, tmp_path):
    out = tmp_path / "run"
    for _ in range(2):
        assert exit_code(start(train_until, out, "open", "log.jsonl", 4, True, **DROPOUT)) == -signal.SIGKILL
        assert not list((out / "checkpoints").glob("step-*"))
    make_trainer(out, **DROPOUT).train(resume=True)
    assert_same_run(out, whole)


def test_resuming_a_finished_run_changes_nothing(whole):
    def state():
        return {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}

    before = state()
    make_trainer(whole, **DROPOUT).train(resume=True)
    assert state() == before


def test_resuming_where_there_is_nothing_starts(whole, tmp_path):
    make_trainer(tmp_path / "run", **DROPOUT).train(resume=True)
    assert_same_run(tmp_path / "run", whole)


def test_a_run_may_end_later_than_planned(whole, tmp_path):
    out = tmp_path / "run"
    make_trainer(out, max_steps=5, **DROPOUT).train()  # in the midst of the first epoch
    assert log_of(out)[-1]["step"] == 5
    make_trainer(out, **DROPOUT).train(resume=True)
    assert (out / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes()
    without_extra = [line for line in log_of(out) if line["step"] != 5]
    assert [line for line in log_of(whole) if line["step"] != 5] == without_extra


def stopped(out, step, **settings):
    """Train or go on, with Ctrl-C at some update."""
    trainer = make_trainer(out, **settings)
    report = trainer.report

    def interrupted(*arguments):
        report(*arguments)
        if trainer.progress.step == step:
            signal.raise_signal(signal.SIGINT)

    trainer.report = interrupted
    trainer.train(resume=True)
    assert steps(out)[-1] == trainer.progress.step == step


@pytest.mark.parametrize("average_of", ["last", "best"])
def test_what_a_stop_saved_is_not_averaged(average_of, one_thread, tmp_path):
    make_trainer(tmp_path / "whole", average_of=average_of).train()
    assert steps(tmp_path / "whole")[-1] == 24
    for step in (22, 23):
        stopped(tmp_path / "run", step, average_of=average_of)
    make_trainer(tmp_path / "run", average_of=average_of).train(resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("average_of", ["last", "best"])
def test_what_an_earlier_end_saved_is_not_averaged(average_of, one_thread, tmp_path):
    # The rate is so high that the validation loss rises again: the earlier end is among the best.
    settings = {"average_of": average_of, "epochs": 4, "factor": 5.0}
    make_trainer(tmp_path / "whole", **settings).train()
    make_trainer(tmp_path / "run", **settings, max_steps=12).train()
    make_trainer(tmp_path / "run", **settings).train(resume=True)
    assert steps(tmp_path / "run") == steps(tmp_path / "whole")
    assert (tmp_path / "run" / WEIGHTS).read_bytes() == (tmp_path / "whole" / WEIGHTS).read_bytes()


def test_the_end_counts_wherever_it_comes(one_thread, tmp_path):
    make_trainer(tmp_path, max_steps=20).train()
    folders = [tmp_path / "checkpoints" / f"step-{step:08d}" for step in (16, 20)]
    for name, tensor in average_checkpoints(folders).items():
        assert torch.equal(read_tensors(tmp_path / WEIGHTS)[name], tensor)


def test_a_checkpoint_that_does_not_say_why_it_was_made_counts(one_thread, tmp_path):
    make_trainer(tmp_path / "whole").train()
    make_trainer(tmp_path / "run", max_steps=16).train()
    for folder in (tmp_path / "run" / "checkpoints").iterdir():
        progress = read_json(folder / "progress.json")
        del progress["between"]  # as older versions wrote it
        write_json(folder / "progress.json", progress)
    make_trainer(tmp_path / "run").train(resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_run_keeps_its_settings(whole):
    for settings, names in (({"factor": 2.0}, "factor = 1.0, not 2.0"), ({"seed": 1}, "seed = 0, not 1")):
        with pytest.raises(ValueError, match=names):
            make_trainer(whole, **{**DROPOUT, **settings}).train(resume=True)
    out = whole.parent / "notes"
    make_trainer(out, max_steps=1, notes={"corpus": "a"}).train()
    with pytest.raises(ValueError, match="corpus = 'a', not 'b'"):
        make_trainer(out, max_steps=2, notes={"corpus": "b"}).train(resume=True)


def test_a_setting_that_the_run_did_not_know_has_its_default(one_thread, tmp_path):
    make_trainer(tmp_path, max_steps=2).train()
    recorded = read_json(tmp_path / "training.json")
    write_json(tmp_path / "training.json", {k: v for k, v in recorded.items() if "consistency" not in k})
    with pytest.raises(ValueError, match=r"was begun with consistency = 0\.0, not 1\.0;"):
        make_trainer(tmp_path, max_steps=3, consistency=1.0).train(resume=True)
    make_trainer(tmp_path, max_steps=3).train(resume=True)


def test_a_model_of_another_shape_is_named(whole):
    with pytest.raises(ValueError, match=r"model.safetensors: tensor .* has shape"):
        make_trainer(whole, model={"d_model": 32}, **DROPOUT).train(resume=True)


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("progress.json", b'{"step": "three"}', "progress.json: step must be int"),
        ("progress.json", b'{"steps": 3}', "progress.json: unknown setting 'steps'"),
        ("progress.json", b"{", "progress.json is not valid JSON"),
        ("optimizer.safetensors", b"cut", "optimizer.safetensors is not a whole safetensors file"),
        (WEIGHTS, b"cut", "model.safetensors is not a whole safetensors file"),
    ],
)
def test_a_damaged_checkpoint_is_named(file, content, says, tmp_path):
    make_trainer(tmp_path, max_steps=2).train()
    (tmp_path / "checkpoints" / "step-00000002" / file).write_bytes(content)
    with pytest.raises(ValueError, match=f"{says}.*; there is no checkpoint before it$"):
        make_trainer(tmp_path, max_steps=3).train(resume=True)


@pytest.mark.parametrize("file", ["progress.json", "optimizer.safetensors", WEIGHTS])
def test_a_damaged_checkpoint_can_be_done_without(file, one_thread, tmp_path):
    make_trainer(tmp_path / "whole", max_steps=12).train()
    make_trainer(tmp_path / "run", max_steps=12).train()
    damaged = tmp_path / "run" / "checkpoints" / "step-00000012"
    (damaged / file).unlink()
    with pytest.raises(
        ValueError, match=f"; delete the folder {damaged}, and the run goes on from step-00000008$"
    ):
        make_trainer(tmp_path / "run", max_steps=12).train(resume=True)
    shutil.rmtree(damaged)
    make_trainer(tmp_path / "run", max_steps=12).train(resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_lost_log_is_begun_again(tmp_path):
    make_trainer(tmp_path, max_steps=4).train()
    (tmp_path / "log.jsonl").unlink()
    make_trainer(tmp_path, max_steps=6).train(resume=True)
    assert [line["step"] for line in log_of(tmp_path)] == [6, 6]


# ---- through the command line


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    rows = [(f"the cat number {i} sees a dog", f"die Katze {i} sieht einen Hund") for i in range(80)]
    for name, column in zip(("a.en", "a.de"), zip(*rows, strict=True), strict=True):
        (folder / name).write_text("".join(line + "\n" for line in column), encoding="utf-8")
    return folder


@pytest.fixture
def flags(text):
    shape = "--vocab 320 --N 1 --d-model 16 --d-ff 16 --h 2 --max-tokens 200 --epochs 12 --log-every 3"
    return [
        "train",
        "--src",
        str(text / "a.en"),
        "--tgt",
        str(text / "a.de"),
        *shape.split(),
        "--threads",
        "1",
    ]


def test_ctrl_c_leaves_a_model_and_a_run_to_resume(flags, text, tmp_path, capfd, monkeypatch):
    out = tmp_path / "run"
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    command = [sys.executable, "-m", "annotated", *flags, "--out", str(out)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 600
        while not (out / "log.jsonl").exists() or len(log_of(out)) < 4:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=600)[1]
    assert process.returncode == 130
    assert "Traceback" not in said
    last = said.splitlines()[-1]
    assert f"the model is in {out}" in last
    assert "--resume" in last
    load_model(out)
    assert len(log_of(out)) < len(log_of(whole_run(flags, text)))
    assert main(["train", "--out", str(out), "--resume"]) == 0  # all other settings are remembered
    assert (out / WEIGHTS).read_bytes() == (text / "whole" / WEIGHTS).read_bytes()
    assert log_of(out) == log_of(text / "whole")


def whole_run(flags, text):
    """The run of these flags that nobody stopped."""
    out = text / "whole"
    if not out.exists():
        assert main([*flags, "--out", str(out)]) == 0
    return out


def test_resuming_with_other_settings_names_them(flags, text, capfd):
    out = str(whole_run(flags, text))
    for extra, says in (
        (["--N", "2"], "N is 1 in"),
        (["--factor", "1"], "factor = 2.53, not 1.0"),
        (["--vocab", "300"], "vocab = 320, not 300"),
        (["--corpus", "grammar"], "corpus = 'multi30k', not 'grammar'"),
    ):
        assert main(["train", "--out", out, "--resume", *extra]) == 2
        assert says in capfd.readouterr().err.splitlines()[-1]


def test_a_second_run_in_a_folder_is_refused(flags, text, capfd):
    out = str(whole_run(flags, text))
    capfd.readouterr()
    assert main([*flags, "--out", out]) == 2
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert "already holds a run" in error


def test_a_run_killed_before_its_first_checkpoint_remembers_its_flags(flags, text, tmp_path, capfd):
    out = tmp_path / "run"
    out.mkdir()
    settings = json.loads((whole_run(flags, text) / "training.json").read_text(encoding="utf-8"))
    write_json(out / "training.json", {**settings, "max_steps": 2})
    assert main(["train", "--out", str(out), "--resume"]) == 0
    model, *_ = load_model(out)
    assert model.config.d_model == 16
    assert os.path.getsize(out / WEIGHTS) == os.path.getsize(text / "whole" / WEIGHTS)
