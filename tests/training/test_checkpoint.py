"""What a run's folder keeps of it, and how a run fails."""

import builtins
import errno
import math
import os
import pathlib
import shutil
from contextlib import suppress

import pytest
import torch
from filelock import FileLock
from tiny_runs import log_of, make_trainer, steps, weights

from annotated.perplexity import TokenScores
from annotated.translation.files import read_json, write_json
from annotated.translation.storage.model_folder import CONFIG, WEIGHTS, load_model, save_model
from annotated.translation.storage.tensor_files import read_tensors
from annotated.translation.training.checkpoint import average_checkpoints, restore
from annotated.translation.training.progress import Progress
from annotated.translation.training.run_folder import RunFolder
from annotated.translation.training.trainer import TrainingError
from annotated.translation.training.validation import Validation

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({"keep": 2, "epochs": 4}, {16, 24, 32}), ({"save_every": 3}, {3, 6, 8, 9, 12, 15, 16})],
)
def test_checkpoints_at_each_epoch_or_oftener_and_the_newest_are_kept(settings, expected, tmp_path):
    make_trainer(tmp_path, **{"epochs": 2, "keep": 99, "average": 3, **settings}).fit()
    assert set(steps(tmp_path)) == expected


@pytest.mark.parametrize(("of_mean", "left"), [(0.5, 2), (1.5, 1)])
def test_the_end_is_the_mean_of_the_newest_unless_it_validates_worse(of_mean, left, tmp_path, monkeypatch):
    """The newest checkpoint scores 1.0, other weights what the case says."""
    run = RunFolder(tmp_path)

    def score(_, model):
        newest = run.newest()
        saved = read_tensors(newest / WEIGHTS) if newest else {}
        own = dict(model.named_parameters())
        same = any(saved) and all(torch.equal(own[name], saved[name]) for name in saved)
        return TokenScores(1.0 if same else of_mean, 0.5, 10)

    monkeypatch.setattr(Validation, "score", score)
    trainer = make_trainer(tmp_path, epochs=3, keep=3, average=2)
    trainer.fit()
    wanted, found = average_checkpoints(run.checkpoints()[-left:]), read_tensors(tmp_path / WEIGHTS)
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in found.items())
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in trainer.model.named_parameters())


def test_the_end_is_the_mean_of_the_best_checkpoints(tmp_path):
    # The rate is so high that the validation loss rises again: best and newest differ.
    trainer = make_trainer(tmp_path, epochs=6, keep=3, average=2, average_of="best", learning_rate=0.4)
    trainer.fit()
    losses = [r["validation_loss"] for r in log_of(tmp_path) if "validation_loss" in r]
    epoch = trainer.progress.step // 6
    order = sorted(range(6), key=losses.__getitem__)
    assert order[:2] != [5, 4]
    assert steps(tmp_path) == sorted({epoch * (i + 1) for i in (*order[:3], 5)})
    folders = [tmp_path / "checkpoints" / f"step-{epoch * (i + 1):08d}" for i in order[:2]]
    mean = average_checkpoints(folders)
    trainer.model.load_state_dict(mean)
    found = trainer.validation.score(trainer.model).loss
    wanted = mean if found <= losses[order[0]] else read_tensors(folders[0] / WEIGHTS)
    for name, tensor in read_tensors(tmp_path / WEIGHTS).items():
        torch.testing.assert_close(tensor, wanted[name])


@pytest.mark.parametrize("average", [0, 1])
def test_without_averaging_the_last_weights_are_the_end(average, tmp_path):
    make_trainer(tmp_path, keep=1, average=average).fit()
    assert weights(tmp_path) == weights(sorted((tmp_path / "checkpoints").iterdir())[-1])


def test_the_log_covers_each_update_once(tmp_path):
    trainer = make_trainer(tmp_path, log_every=3)
    trainer.fit()
    lines = [line for line in log_of(tmp_path) if "loss" in line]
    assert [line["step"] for line in lines] == [3, 6, 8, 9, 12, 15, 16, 18, 21, 24]
    epoch = sum(batch.ntokens for batch in trainer.batches.epoch(0))
    assert trainer.progress.total_tokens == 3 * epoch
    assert {line["step"]: line["tokens"] for line in lines if line["step"] % 8 == 0} == {
        8: epoch,
        16: 2 * epoch,
        24: 3 * epoch,
    }


def test_two_processes_do_not_train_one_run(tmp_path):
    first, second = make_trainer(tmp_path), make_trainer(tmp_path)
    report = first.report

    def also(*arguments):
        report(*arguments)
        with pytest.raises(TimeoutError, match=f"another process trains in {tmp_path}"):
            second.fit(resume=True)

    first.report = also
    first.fit()


def test_a_run_that_began_while_another_waited_for_the_folder_is_not_mixed_with_it(tmp_path, monkeypatch):
    acquire = FileLock.acquire

    def late(lock, **options):
        (tmp_path / CONFIG).touch()
        return acquire(lock, **options)

    monkeypatch.setattr(FileLock, "acquire", late)
    with pytest.raises(ValueError, match="already holds a run or a model"):
        make_trainer(tmp_path).fit()


def test_a_folder_that_holds_a_run_or_a_model_is_refused(tmp_path):
    make_trainer(tmp_path, max_steps=1).fit()
    before = weights(tmp_path)
    for _ in range(2):
        with pytest.raises(ValueError, match="already holds a run or a model"):
            make_trainer(tmp_path).fit()
        shutil.rmtree(tmp_path / "checkpoints", ignore_errors=True)
    assert weights(tmp_path) == before


@pytest.mark.parametrize("resume", [False, True])
def test_files_of_the_users_are_not_touched(resume, tmp_path):
    mine = {"log.jsonl": "{}\n", "training.json": "mine", "tokenizer.json": "mine"}
    for name, content in mine.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=r"holds log.jsonl, but no run; choose a new or an empty folder$"):
        make_trainer(tmp_path, max_steps=1).fit(resume)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == mine


def test_what_is_not_the_runs_stays_and_what_it_left_half_written_goes(tmp_path):
    make_trainer(tmp_path, max_steps=1, average=0).fit()
    checkpoints = tmp_path / "checkpoints"
    shutil.copytree(checkpoints / "step-00000001", checkpoints / "step-00000001-my-backup")
    for name in ("step-zzz", "step-99999999"):
        (checkpoints / name).write_text("a note")
    for folder in (tmp_path, checkpoints):
        (folder / ".file.left.partial").mkdir()
    make_trainer(tmp_path, keep=1, average=0).fit(resume=True)
    found = {path.name for path in checkpoints.iterdir()}
    assert found == {"step-00000001-my-backup", "step-zzz", "step-99999999", "step-00000024"}
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize("part", ["loss", "gradient"])
def test_what_is_not_finite_stops_before_the_weights_are_touched(part, tmp_path):
    trainer = make_trainer(tmp_path, save_every=2)
    loss, before = trainer.parallel_loss.forward, {}

    def forward(*batch):
        found = loss(*batch)
        if trainer.progress.step == 5:
            before.update({name: p.detach().clone() for name, p in trainer.model.named_parameters()})
            if part == "loss":
                return found * torch.inf
            trainer.model.generator.proj.bias.register_hook(lambda gradient: gradient * torch.nan)
        return found

    trainer.parallel_loss.forward = forward
    with pytest.raises(TrainingError, match="not finite at step 6; "):
        trainer.fit()
    for name, parameter in trainer.model.named_parameters():
        assert torch.equal(parameter, before[name])
    load_model(tmp_path)
    make_trainer(tmp_path, save_every=2).fit(resume=True)
    make_trainer(tmp_path / "whole", save_every=2).fit()
    assert weights(tmp_path) == weights(tmp_path / "whole")


@pytest.mark.parametrize(
    ("settings", "says", "left"),
    [
        ({"save_every": 1}, "not finite at step 2; ", [1]),
        ({"max_steps": 1}, "validation loss is not finite after step 1; ", [1]),
    ],
)
def test_weights_that_cannot_be_validated_are_not_called_good(settings, says, left, tmp_path):
    trainer = make_trainer(tmp_path, **settings)
    trainer.rate = lambda: 1e36
    with pytest.raises(TrainingError, match=says):
        trainer.fit()
    assert steps(tmp_path) == left


def test_the_mean_of_checkpoints_is_added_up_in_float64(tmp_path):
    values = [1.0, 2.0**-24, 2.0**-24, 2.0**-24]  # in float32 each of the small ones is lost beside 1
    trainer = make_trainer("unused")
    for i, value in enumerate(values):
        torch.nn.init.constant_(trainer.model.generator.proj.bias, value)
        save_model(tmp_path / str(i), trainer.model, *trainer.tokenizers)
    found = average_checkpoints([tmp_path / str(i) for i in range(4)])["generator.proj.bias"]
    assert (found == torch.tensor(sum(values) / 4)).all()
    assert found.dtype == torch.float32


def full_disk(monkeypatch, n):
    """From the n-th write on, let the disk take some of what is written and no more; list the writes."""
    calls = []

    def limited(name, function):
        def call(*arguments, **options):
            mode = options.get("mode", arguments[1] if name == "open" and len(arguments) > 1 else "r")
            if name == "open" and not set(mode) & set("wax+"):
                return function(*arguments, **options)  # to read needs no room
            calls.append(name)
            if len(calls) < n:
                return function(*arguments, **options)
            if name == "write_bytes":
                with builtins.open(arguments[0], "wb") as file:
                    file.write(arguments[1][:9])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        return call

    names = "write_bytes", "write_text", "open", "mkdir", "rename", "replace"
    for owner, name in (*((pathlib.Path, name) for name in names), (os, "fsync")):
        monkeypatch.setattr(owner, name, limited(name, getattr(owner, name)))
    return calls


def resume(trainer, checkpoint):
    restore(checkpoint, trainer.model, trainer.optimizer, trainer.progress, trainer.settings, 1)


def test_a_full_disk_leaves_the_last_good_checkpoint_and_model(tmp_path):
    make_trainer(tmp_path, max_steps=2, average=0, save_every=2).fit()
    trainer = make_trainer(tmp_path, max_steps=4, average=0, save_every=2)
    resume(trainer, tmp_path / "checkpoints" / "step-00000002")
    trainer.progress.step = 3  # as if an update had been made
    with torch.no_grad():
        trainer.model.generator.proj.bias += 1
    models = {weights(tmp_path)}
    for n in range(1, 200):
        with pytest.MonkeyPatch.context() as patch:
            calls = full_disk(patch, n)
            with suppress(OSError):
                trainer.run_folder.save(
                    trainer.model, trainer.tokenizers, trainer.optimizer, trainer.progress, trainer.settings
                )
        if len(calls) < n:
            break
        newest = trainer.run_folder.newest()
        resume(make_trainer(tmp_path, max_steps=4, average=0, save_every=2), newest)  # whole, whichever it is
        load_model(tmp_path)
        models.add(weights(tmp_path))
        if newest.name == "step-00000003":  # was whole before the disk was full: make room to write it again
            shutil.rmtree(newest)
    assert 20 < n < 199
    assert len(models) == 1  # as long as a write failed, the run's model was the old one
    assert steps(tmp_path) == [2, 3]
    assert weights(tmp_path) == weights(tmp_path / "checkpoints" / "step-00000003") != models.pop()


def test_a_position_that_cannot_be_is_named(one_thread, tmp_path):
    make_trainer(tmp_path).fit()
    path = sorted((tmp_path / "checkpoints").iterdir())[-1] / "progress.json"
    right = read_json(path)
    wrong = {
        int: (-1, 1.5, True, None, "1"),
        float: (-1.0, True, "1", math.nan),
        bool: (0, None),
        str: (1, None),
    }
    for name, value in right.items():
        for other in (
            *wrong.get(type(value), wrong[float]),
            [1],
            {"a": 1},
            *[0] * (name == "update_batches"),
        ):
            write_json(path, {**right, name: other})
            with pytest.raises(ValueError, match=rf"progress\.json: {name} cannot be .*; delete the folder"):
                make_trainer(tmp_path, epochs=4).fit(resume=True)


def test_a_run_whose_folder_is_removed_ends_with_an_error(tmp_path, monkeypatch):
    trainer = make_trainer(tmp_path / "run")
    validate = trainer.validate
    monkeypatch.setattr(trainer, "validate", lambda: (validate(), shutil.rmtree(tmp_path / "run")))
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        trainer.fit()


def test_a_run_whose_folder_was_removed_ends_with_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"training\.json was removed while the run went on"):
        RunFolder(tmp_path / "run").save(None, (), None, Progress(), {})
