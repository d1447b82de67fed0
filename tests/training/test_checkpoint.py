"""What a run's folder keeps of it, and how a run fails."""

import ast
import builtins
import errno
import os
import pathlib
import shutil

import pytest
import torch
from tiny_runs import log_of, make_trainer, steps, weights

import annotated
from annotated.perplexity import TokenScores
from annotated.storage.model_folder import WEIGHTS, load_model, save_model
from annotated.storage.tensor_files import read_tensors
from annotated.training.checkpoint import Progress, average_checkpoints, restore
from annotated.training.run_folder import RunFolder
from annotated.training.trainer import TrainingError
from annotated.training.validation import Validation

pytestmark = pytest.mark.usefixtures("one_thread")


# ---- what is kept


def test_checkpoints_at_each_epoch_and_the_newest_are_kept(tmp_path):
    trainer = make_trainer(tmp_path, epochs=4, keep=3)
    trainer.fit()
    epoch = trainer.progress.step // 4
    assert steps(tmp_path) == [2 * epoch, 3 * epoch, 4 * epoch]


def test_save_every(tmp_path):
    trainer = make_trainer(tmp_path, epochs=2, keep=99, save_every=3)
    trainer.fit()
    last = trainer.progress.step
    assert steps(tmp_path) == sorted({*range(3, last + 1, 3), last // 2, last})


def test_the_end_is_the_mean_of_the_newest_checkpoints(tmp_path):
    trainer = make_trainer(tmp_path, epochs=4, keep=3, average=2)
    trainer.validation = None  # nothing tells that the mean is worse
    trainer.fit()
    folders = sorted((tmp_path / "checkpoints").iterdir())
    one, two = (read_tensors(folder / WEIGHTS) for folder in folders[-2:])
    found = read_tensors(tmp_path / WEIGHTS)
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, (one[name] + two[name]) / 2)
        torch.testing.assert_close(tensor, dict(trainer.model.named_parameters())[name], rtol=0, atol=0)
    assert any(not torch.equal(found[name], two[name]) for name in found)


@pytest.mark.parametrize(("of_mean", "left"), [(0.5, "mean"), (1.0, "mean"), (1.5, "newest")])
def test_a_mean_that_validates_worse_is_not_what_is_left(of_mean, left, tmp_path, capfd, monkeypatch):
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
    folders = sorted((tmp_path / "checkpoints").iterdir())
    wanted = average_checkpoints(folders[-2:] if left == "mean" else folders[-1:])
    found = read_tensors(tmp_path / WEIGHTS)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert all(torch.equal(dict(trainer.model.named_parameters())[name], wanted[name]) for name in wanted)
    said = capfd.readouterr().err
    assert f"loss {of_mean:.4f} of the mean of the last 2 checkpoints, 1.0000 of the newest" in said
    assert f"the model is the {left}" in said


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
    trainer.model.load_state_dict(mean, strict=False)
    found = trainer.validation.score(trainer.model).loss
    wanted = mean if found <= losses[order[0]] else read_tensors(folders[0] / WEIGHTS)
    for name, tensor in read_tensors(tmp_path / WEIGHTS).items():
        torch.testing.assert_close(tensor, wanted[name])


def test_a_checkpoint_within_an_epoch_has_no_score(tmp_path):
    make_trainer(tmp_path, epochs=2, keep=99, save_every=1).fit()
    progress = [Progress.load(folder) for folder in RunFolder(tmp_path).checkpoints()]
    scored = [p.step for p in progress if p.badness is not None]
    assert scored == [line["step"] for line in log_of(tmp_path) if "validation_loss" in line]
    assert len(scored) < len(progress)


def test_the_best_checkpoint_is_what_is_left_if_the_mean_of_the_best_is_worse(tmp_path, monkeypatch):
    losses = iter([2.0, 2.2, 2.4, 2.0, 2.1])  # the last two are of the best and of the mean
    monkeypatch.setattr(Validation, "score", lambda *_: TokenScores(next(losses), 0.5, 10))
    make_trainer(tmp_path, epochs=3, keep=3, average=2, average_of="best").fit()
    assert weights(tmp_path) == weights(min((tmp_path / "checkpoints").iterdir()))


@pytest.mark.parametrize("average", [0, 1])
def test_without_averaging_the_last_weights_are_the_end(average, tmp_path):
    make_trainer(tmp_path, keep=1, average=average).fit()
    assert weights(tmp_path) == weights(sorted((tmp_path / "checkpoints").iterdir())[-1])


def test_the_log_covers_each_update_once(tmp_path):
    trainer = make_trainer(tmp_path, log_every=3)
    trainer.fit()
    lines = [line for line in log_of(tmp_path) if "loss" in line]
    assert [line["step"] for line in lines] == [3, 6, 8, 9, 12, 15, 16, 18, 21, 24]
    epoch = sum(batch.ntokens for batch in trainer.batches_at(0).epoch(0))
    assert trainer.progress.total_tokens == 3 * epoch
    assert {line["step"]: line["tokens"] for line in lines if line["step"] % 8 == 0} == {
        8: epoch,
        16: 2 * epoch,
        24: 3 * epoch,
    }


def test_nothing_in_a_run_is_a_pickle(tmp_path):
    make_trainer(tmp_path, max_steps=2).fit()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".json", ".jsonl", ".safetensors", ".lock"}
    for path in tmp_path.rglob("*.safetensors"):
        read_tensors(path)  # is what its name says
    files = pathlib.Path(annotated.__path__[0]).rglob("*.py")
    modules = [ast.parse(path.read_text(encoding="utf-8")) for path in files]
    nodes = [node for module in modules for node in ast.walk(module)]
    imported = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    assert not imported & {"pickle", "shelve", "joblib", "dill"}
    calls = [ast.unparse(node) for node in nodes if isinstance(node, ast.Call)]
    assert not [call for call in calls if call.startswith("torch.save(")]
    # A classic checkpoint that the user names is the one exception, and gives nothing but tensors.
    [load] = [call for call in calls if call.startswith("torch.load(")]
    assert "weights_only=True" in load


def test_two_processes_do_not_train_one_run(tmp_path):
    first, second = make_trainer(tmp_path), make_trainer(tmp_path)
    report = first.report

    def also(*arguments):
        report(*arguments)
        with pytest.raises(TimeoutError, match=str(tmp_path / "run.lock")):
            second.fit(resume=True)

    first.report = also
    first.fit()
    make_trainer(tmp_path / "alone").fit()
    assert log_of(tmp_path) == log_of(tmp_path / "alone")
    assert weights(tmp_path) == weights(tmp_path / "alone")


@pytest.mark.parametrize("what", ["run", "model"])
def test_a_folder_that_holds_something_is_refused(what, tmp_path):
    make_trainer(tmp_path, max_steps=1).fit()
    if what == "model":
        os.rename(tmp_path / "checkpoints", tmp_path / "gone")
    before = weights(tmp_path)
    with pytest.raises(ValueError, match="already holds a run or a model"):
        make_trainer(tmp_path).fit()
    assert weights(tmp_path) == before


@pytest.mark.parametrize("resume", [False, True])
def test_files_of_the_users_are_not_touched(resume, tmp_path):
    mine = {"log.jsonl": "{}\n", "training.json": "mine", "tokenizer.json": "mine"}
    for name, content in mine.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=r"holds log.jsonl, but no run; choose a new or an empty folder$"):
        make_trainer(tmp_path, max_steps=1).fit(resume)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == mine


def test_a_checkpoint_is_known_by_its_exact_name(tmp_path):
    make_trainer(tmp_path, max_steps=1, average=0).fit()
    backup = tmp_path / "checkpoints" / "step-00000001-my-backup"
    shutil.copytree(tmp_path / "checkpoints" / "step-00000001", backup)
    (tmp_path / "checkpoints" / "step-zzz").write_text("a note")
    (tmp_path / "checkpoints" / "step-99999999").write_text("a note")
    make_trainer(tmp_path, keep=1, average=0).fit(resume=True)
    found = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert found == {backup.name, "step-zzz", "step-99999999", "step-00000024"}


def test_what_a_killed_run_left_half_written_goes(tmp_path):
    make_trainer(tmp_path, max_steps=1, average=0).fit()
    for folder in (tmp_path, tmp_path / "checkpoints"):
        (folder / ".file.left.partial").mkdir()
        (folder / ".file.left.partial" / "file").write_text("half")
    make_trainer(tmp_path, max_steps=2, average=0).fit(resume=True)
    assert not list(tmp_path.rglob("*.partial"))


# ---- how it fails


def test_a_validation_that_fails_leaves_the_epoch(tmp_path, monkeypatch):
    make_trainer(tmp_path / "whole").fit()
    with monkeypatch.context() as patch:
        patch.delattr(Validation, "score")
        with pytest.raises(AttributeError):
            make_trainer(tmp_path / "run").fit()
    assert steps(tmp_path / "run") == [8]
    load_model(tmp_path / "run")
    make_trainer(tmp_path / "run").fit(resume=True)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    assert log_of(tmp_path / "run") == log_of(tmp_path / "whole")


def poison(trainer, step):
    """Let the loss of an update be infinite; returns what the weights were before it, when it is made."""
    loss, before = trainer.parallel.forward, {}

    def forward(*batch):
        found = loss(*batch)
        if trainer.progress.step + 1 < step:
            return found
        before.update({name: p.detach().clone() for name, p in trainer.model.named_parameters()})
        return found * torch.inf

    trainer.parallel.forward = forward
    return before


def test_a_loss_that_is_not_finite_stops_before_the_weights_are_touched(tmp_path):
    trainer = make_trainer(tmp_path, save_every=2)
    before = poison(trainer, 6)
    with pytest.raises(TrainingError, match="not finite at step 6; "):
        trainer.fit()
    for name, parameter in trainer.model.named_parameters():
        assert torch.equal(parameter, before[name])
    model, *_ = load_model(tmp_path)
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    make_trainer(tmp_path, save_every=2).fit(resume=True)
    make_trainer(tmp_path / "whole", save_every=2).fit()
    assert weights(tmp_path) == weights(tmp_path / "whole")


def test_weights_that_cannot_be_validated_are_not_called_good(tmp_path):
    trainer = make_trainer(tmp_path, save_every=1)
    trainer.rate = lambda: 1e36
    with pytest.raises(TrainingError, match="not finite at step 2; "):
        trainer.fit()
    assert steps(tmp_path) == [1]
    trainer = make_trainer(tmp_path / "validated", max_steps=1)
    trainer.rate = lambda: 1e36
    with pytest.raises(TrainingError, match="validation loss is not finite after step 1; "):
        trainer.fit()


def test_a_gradient_that_is_not_finite_stops_too(tmp_path):
    trainer = make_trainer(tmp_path)
    trainer.model.generator.proj.bias.register_hook(lambda gradient: gradient * torch.nan)
    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    with pytest.raises(TrainingError, match="not finite at step 1; "):
        trainer.fit()
    assert all(map(torch.equal, trainer.model.parameters(), before))


def test_the_mean_of_checkpoints_is_added_up_in_float64(tmp_path):
    values = [1.0, 2.0**-24, 2.0**-24, 2.0**-24]  # in float32 each of the small ones is lost beside 1
    for i, value in enumerate(values):
        model = make_trainer("unused").model
        torch.nn.init.constant_(model.generator.proj.bias, value)
        save_model(tmp_path / str(i), model, *make_trainer("unused").tokenizers)
    found = average_checkpoints([tmp_path / str(i) for i in range(4)])["generator.proj.bias"]
    assert (found == torch.tensor(sum(values) / 4)).all()
    assert found.dtype == torch.float32


class FullDisk:
    """From its n-th write on, a disk that takes half of what is written and then no more."""

    def __init__(self, monkeypatch, n):
        self.n, self.calls = n, 0
        for owner, name in (
            (pathlib.Path, "write_bytes"),
            (pathlib.Path, "write_text"),
            (pathlib.Path, "open"),
            (pathlib.Path, "mkdir"),
            (pathlib.Path, "rename"),
            (pathlib.Path, "replace"),
            (os, "fsync"),
        ):
            monkeypatch.setattr(owner, name, self.limited(name, getattr(owner, name)))

    def limited(self, name, function):
        def call(*arguments, **options):
            mode = options.get("mode", arguments[1] if name == "open" and len(arguments) > 1 else "r")
            if name == "open" and not set(mode) & set("wax+"):
                return function(*arguments, **options)  # to read needs no room
            self.calls += 1
            if self.calls < self.n:
                return function(*arguments, **options)
            if name.startswith("write"):
                path, content, *_ = arguments
                with builtins.open(path, "wb") as file:
                    file.write(content[: len(content) // 2].encode() if name == "write_text" else content[:9])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        return call


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
            disk = FullDisk(patch, n)
            try:
                trainer.out.save(
                    trainer.model, trainer.tokenizers, trainer.optimizer, trainer.progress, trainer.settings
                )
                break
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        newest = trainer.out.newest()
        fresh = make_trainer(tmp_path, max_steps=4, average=0, save_every=2)
        resume(fresh, newest)  # whole, whichever it is
        load_model(tmp_path)
        models.add(weights(tmp_path))
        if newest.name == "step-00000003":  # was whole before the disk was full: make room to write it again
            for path in newest.iterdir():
                path.unlink()
            newest.rmdir()
    assert 20 < n < 199
    assert disk.calls < n
    assert len(models) == 1  # as long as a write failed, the run's model was the old one
    assert steps(tmp_path) == [2, 3]
    assert weights(tmp_path) == weights(tmp_path / "checkpoints" / "step-00000003") != models.pop()
