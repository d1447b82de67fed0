"""A run that is killed at any moment and resumed ends as one that was never killed."""

import shutil
import signal
import subprocess
import sys
import time

import pytest
from command_line import SIZES
from tiny_runs import (
    CATS,
    exit_code,
    log_of,
    make_trainer,
    single_thread,
    start,
    steps,
    train_until,
    validate_as,
)

import annotated
from annotated.translation.cli.main import main
from annotated.translation.files import read_json
from annotated.translation.storage.model_folder import WEIGHTS, load_model

DROPOUT = {"save_every": 7, "accumulate": 2}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was never killed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    with single_thread():
        make_trainer(out, **DROPOUT).fit()
        yield out


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
        ("open", "log.jsonl", 5),  # between checkpoints, after some updates that have to be made again
        ("open", ".optimizer.safetensors", 3),  # while a checkpoint is written
        ("os.rename", ".step-", 2),  # a checkpoint is written, but not yet under its name
        ("open", "run/.config.json", 2),  # the checkpoint is whole, the run's model is being rewritten
        ("open", "/step-00000004/.progress.json", 1),  # saved and validated, but that is not yet noted
        ("os.rename", "checkpoints/step-", 1),  # an old checkpoint is about to be removed
        ("shutil.rmtree", "checkpoints/.step-", 22),  # ... and has lost its name
    ],
)
def test_killed_and_resumed(event, part, count, whole, tmp_path):
    out = tmp_path / "run"
    assert exit_code(start(train_until, out, event, part, count, **DROPOUT)) == -signal.SIGKILL
    assert log_of(out) != log_of(whole)
    make_trainer(out, **DROPOUT).fit(resume=True)
    assert_same_run(out, whole)


def test_resuming_a_finished_run_changes_nothing(whole):
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    make_trainer(whole, **DROPOUT).fit(resume=True)
    assert {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()} == before


def test_a_run_may_end_later_than_planned(whole, tmp_path):
    out = tmp_path / "run"
    make_trainer(out, max_steps=5, **DROPOUT).fit()  # in the midst of the first epoch
    assert log_of(out)[-1]["step"] == 5
    make_trainer(out, **DROPOUT).fit(resume=True)
    assert (out / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes()
    without_extra = [line for line in log_of(out) if line["step"] != 5]
    assert [line for line in log_of(whole) if line["step"] != 5] == without_extra


def stopped(out, step, sent=signal.SIGINT, **settings):
    """Train or go on, with a signal to stop after some update."""
    trainer = make_trainer(out, **settings)
    report = trainer.report

    def interrupted(*arguments):
        report(*arguments)
        if trainer.progress.step == step - 1:
            signal.raise_signal(sent)

    trainer.report = interrupted
    trainer.fit(resume=True)
    assert steps(out)[-1] == trainer.progress.step == step


@pytest.mark.parametrize("average_of", ["last", "best"])
def test_what_a_stop_saved_is_not_averaged(average_of, one_thread, tmp_path):
    make_trainer(tmp_path / "whole", average_of=average_of).fit()
    assert steps(tmp_path / "whole")[-1] == 24
    for step, sent in ((21, signal.SIGINT), (23, signal.SIGTERM)):
        stopped(tmp_path / "run", step, sent, average_of=average_of)
    make_trainer(tmp_path / "run", average_of=average_of).fit(resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("average_of", ["last", "best"])
def test_what_an_earlier_end_saved_is_not_averaged(average_of, one_thread, tmp_path):
    # The rate is so high that the validation loss rises again: the earlier end is among the best.
    settings = {"average_of": average_of, "epochs": 4, "learning_rate": 0.4}
    make_trainer(tmp_path / "whole", **settings).fit()
    make_trainer(tmp_path / "run", **settings, max_steps=12).fit()
    make_trainer(tmp_path / "run", **settings).fit(resume=True)
    assert steps(tmp_path / "run") == steps(tmp_path / "whole")
    assert (tmp_path / "run" / WEIGHTS).read_bytes() == (tmp_path / "whole" / WEIGHTS).read_bytes()


def test_a_run_keeps_its_settings(tmp_path):
    begun = {"learning_rate": 0.08, "seed": 0, "record": {"corpus": "a"}}
    make_trainer(tmp_path, max_steps=1, **begun).fit()
    for other, says in (
        ({"learning_rate": 0.5}, "learning_rate = 0.08, not 0.5"),
        ({"seed": 1}, "seed = 0, not 1"),
        ({"record": {"corpus": "b"}}, "corpus = 'a', not 'b'"),
    ):
        with pytest.raises(ValueError, match=says):
            make_trainer(tmp_path, max_steps=2, **begun | other).fit(resume=True)


@pytest.mark.parametrize("preset", ["tiny", "auto"])
def test_other_settings_are_refused_before_the_text_is_read(preset, tmp_path):
    """Reading and encoding may take long."""

    def unread():
        raise AssertionError("it was read")

    begin = {"preset": preset, "N": 1, "d_model": 16, "d_ff": 16, "h": 2, "max_steps": 2, "vocab": 320}
    annotated.train(CATS, tmp_path, **begin, keep_equal=True, pair="en-de")
    for other, says in (
        ({"learning_rate": 0.5}, "learning_rate = .*, not 0.5"),
        ({"warmup": 7}, "warmup = .*, not 7"),
        ({"accumulate": 2}, "accumulate = 1, not 2"),
        ({"dropout": 0.9}, "dropout is .*, not 0.9"),
        ({"d_ff": 32}, "d_ff is 16 in .*, not 32"),
        ({"vocab": 400}, "vocab = 320, not 400; for another, begin a new run$"),
        ({"tokenizer": "chars"}, "tokenizer = 'subwords', not 'chars'"),
        ({"keep_equal": False}, "keep_equal = True, not False"),
        ({"pair": "de-en"}, "pair = 'en-de', not 'de-en'"),
    ):
        with pytest.raises(ValueError, match=says):
            annotated.train(unread, tmp_path, resume=True, **{**begin, "keep_equal": True} | other)
    with pytest.raises(AssertionError, match="it was read"):
        annotated.train(unread, tmp_path, resume=True, **begin | {"max_steps": 9}, keep_equal=True)
    with pytest.raises(FileNotFoundError, match="no model folder none"):
        annotated.train(unread, tmp_path / "new", init_from="none")


@pytest.mark.parametrize("file", ["progress.json", WEIGHTS])
def test_a_damaged_checkpoint_can_be_done_without(file, one_thread, tmp_path):
    settings = {"max_steps": 12, "save_every": 4, "keep": 3}
    make_trainer(tmp_path / "whole", **settings).fit()
    shutil.copytree(tmp_path / "whole", tmp_path / "run")
    damaged = tmp_path / "run" / "checkpoints" / "step-00000012"
    (damaged / file).unlink()
    with pytest.raises(ValueError, match=f"; delete the folder {damaged} to go on without it$"):
        make_trainer(tmp_path / "run", **settings).fit(resume=True)
    shutil.rmtree(damaged)
    make_trainer(tmp_path / "run", **settings).fit(resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_other_text_is_refused(tmp_path):
    out = tmp_path / "a run"
    make_trainer(out, max_steps=4, fingerprint="a").fit()
    before = read_json(out / "training.json")
    for text in ("b", ""):
        with pytest.raises(ValueError, match=f"was begun with other text .* --init-from '{out}', in Python"):
            make_trainer(out, fingerprint=text).fit(resume=True)
    assert read_json(out / "training.json") == before


@pytest.mark.parametrize("count", [20, 90])
def test_more_or_fewer_batches_are_refused_in_mid_epoch(count, tmp_path):
    make_trainer(tmp_path, max_steps=5).fit()
    with pytest.raises(ValueError, match="is at batch 5 of an epoch of 8, which now has "):
        make_trainer(tmp_path, count=count).fit(resume=True)
    assert steps(tmp_path) == [5]


@pytest.mark.parametrize("file", [WEIGHTS, "optimizer.safetensors", "progress.json"])
def test_a_checkpoint_of_two_steps_is_refused(file, one_thread, tmp_path):
    make_trainer(tmp_path, max_steps=16).fit()
    older, newer = (tmp_path / "checkpoints" / f"step-{step:08d}" for step in (8, 16))
    shutil.copyfile(older / file, newer / file)
    with pytest.raises(ValueError, match=f"not of one step; delete the folder {newer}"):
        make_trainer(tmp_path).fit(resume=True)


def test_patience_survives_an_interruption(one_thread, tmp_path, monkeypatch):
    validate_as(monkeypatch, [3.0, 3.5, 3.4, 9.0, 9.0])  # the last two are of the end
    stopped(tmp_path, 20, epochs=9, patience=2)  # one of two epochs without a better loss has passed
    trainer = make_trainer(tmp_path, epochs=9, patience=2)
    trainer.fit(resume=True)
    assert trainer.progress.epoch == 3


def test_a_validation_in_mid_epoch_is_nothing_to_patience(one_thread, tmp_path, monkeypatch):
    losses = [3.0, 4.0, 9.0, 9.0, 5.0, 9.0, 9.0, 2.9, 2.8, 9.0, 9.0]  # each 9 is of an end
    validate_as(monkeypatch, losses)
    for end in (10, 12):  # in the second epoch
        make_trainer(tmp_path, max_steps=end, patience=1, epochs=4).fit(resume=True)
    trainer = make_trainer(tmp_path, patience=1, epochs=3)
    trainer.fit(resume=True)
    assert trainer.progress.epoch == 3
    assert trainer.progress.best == 2.8


@pytest.fixture
def flags(files):
    return ["train", *files, *f"{SIZES} --max-tokens 200 --epochs 12 --log-every 3 --threads 1".split()]


def test_ctrl_c_leaves_a_model_and_a_run_to_resume(flags, tmp_path, monkeypatch):
    out, whole = tmp_path / "run", tmp_path / "whole"
    assert main([*flags, "--out", str(whole)]) == 0
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    command = [sys.executable, "-m", "annotated", *flags, "--out", str(out)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while not (out / "log.jsonl").exists() or len(log_of(out)) < 4:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=600)[1]
    assert process.returncode == 130
    assert "Traceback" not in said
    assert "--resume" in said.splitlines()[-1]
    load_model(out)
    assert len(log_of(out)) < len(log_of(whole))
    assert main(["train", "--out", str(out), "--resume"]) == 0  # all other settings are remembered
    assert (out / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes()
    assert log_of(out) == log_of(whole)


def test_a_run_knows_its_text_wherever_that_lies(flags, cats, tmp_path, capfd):
    for name in ("a.en", "a.de"):
        shutil.copy(cats / name, tmp_path / name)
    out, elsewhere = str(tmp_path / "run"), ["--src", str(tmp_path / "a.en"), "--tgt", str(tmp_path / "a.de")]
    assert main([*flags, "--max-steps", "2", "--out", out]) == 0
    resume = ["train", "--out", out, "--resume", "--max-steps", "3"]
    assert main([*resume, "--N", "2"]) == 2
    assert main([*resume, *elsewhere]) == 0
    for text in ("die Katze sieht zwei Hunde\n", "eine lange " * 10 + "Katze\n"):
        (tmp_path / "a.de").write_text(text * 60)
        capfd.readouterr()
        assert main(resume) == 2
        assert "was begun with other text" in capfd.readouterr().err.splitlines()[-1]
        assert main([*resume, "--val-src", flags[2], "--val-tgt", flags[4]]) == 2
        assert "was begun with other text" in capfd.readouterr().err.splitlines()[-1]
    assert main([*resume, *flags[1:5]]) == 0  # the first files again
