"""What a training run computes and when it ends."""

import io
import itertools
import re
import signal
import sys
import time

import pytest
import torch
from tiny_runs import log_of, make_trainer, steps, validate_as, weights
from tqdm.std import tqdm

from annotated.batches import Batch
from annotated.loss import LabelSmoothing
from annotated.translation.files import read_json
from annotated.translation.messages import print_message
from annotated.translation.processes import stop_on_interrupt
from annotated.translation.storage.model_folder import WEIGHTS
from annotated.translation.storage.tensor_files import read_tensors
from annotated.translation.training import summed_loss as loss_module, trainer as trainer_module
from annotated.translation.training.run_folder import RunFolder
from annotated.translation.training.summed_loss import SummedLoss, symmetric_divergence

pytestmark = pytest.mark.usefixtures("one_thread")


BATCH = Batch(torch.tensor([[4, 5, 1], [6, 1, 2]]), torch.tensor([[0, 5, 4, 1], [0, 6, 1, 2]]))
INPUTS = BATCH.src, BATCH.tgt, BATCH.src_mask, BATCH.tgt_mask


def test_two_passes_have_dropout_of_their_own_and_are_held_to_agree():
    model = make_trainer("unused", model={"dropout": 0.4}).model.train()
    loss = SummedLoss(model, 0.1, 2)
    loss.rdrop_weight = 0.7
    torch.manual_seed(5)
    found = loss(*INPUTS, BATCH.tgt_y)
    torch.manual_seed(5)
    x, y = model.generator(model(*(torch.cat([z, z]) for z in INPUTS))).flatten(1, 2).view(2, -1, 16)
    target, criterion = BATCH.tgt_y.flatten(), LabelSmoothing(16, 2, 0.1)
    apart = symmetric_divergence(x[target != 2], y[target != 2])
    assert apart > 0.01
    torch.testing.assert_close(found, (criterion(x, target) + criterion(y, target)) / 2 + 0.7 * apart)


@pytest.mark.parametrize("rdrop_weight", [0.0, 0.7])
def test_in_half_precision_the_loss_itself_is_computed_in_float32(rdrop_weight, monkeypatch):
    model, seen = make_trainer("unused", model={"dropout": 0.0}).model, []
    for name in ("smoothed_cross_entropy", "rdrop_cross_entropy"):
        own = getattr(loss_module, name)
        spy = lambda *x, own=own, **o: seen.extend(t.dtype for t in x[:2]) or own(*x, **o)  # noqa: E731
        monkeypatch.setattr(loss_module, name, spy)
    loss = SummedLoss(model, 0.1, 2)
    loss.rdrop_weight = rdrop_weight
    with torch.autocast("cpu", torch.bfloat16):
        found = loss(*INPUTS, BATCH.tgt_y)
    assert found.dtype == torch.float32
    assert seen == [torch.float32] * 2


def test_rdrop_begins_with_its_epoch(tmp_path):
    trainer = make_trainer(tmp_path, epochs=3, rdrop_weight=0.7, rdrop_from=2)
    plan, seen = trainer.batches.plan, []
    trainer.batches.plan = lambda epoch: seen.append(trainer.summed_loss.rdrop_weight) or plan(epoch)
    trainer.fit()
    assert seen[-3:] == [0.0, 0.7, 0.7]


def plain_loop(trainer, epochs, accumulate, clip):
    """The same training written out: one gradient of the mean over all tokens of `accumulate` batches."""
    model, config = trainer.model.train(), trainer.config
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    criterion, losses = LabelSmoothing(16, 2, config.smoothing), []
    for epoch in range(epochs):
        batches = list(trainer.batches.epoch(epoch))
        for start in range(0, len(batches), accumulate):
            group = batches[start : start + accumulate]
            loss = 0
            for b in group:
                log_probs = model.generator(model(b.src, b.tgt, b.src_mask, b.tgt_mask))
                loss = loss + criterion(log_probs.flatten(0, 1), b.tgt_y.flatten())
            loss = loss / sum(b.ntokens for b in group)
            adam.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            step = len(losses) + 1
            rising, falling = step / config.warmup, (config.warmup / step) ** 0.5
            adam.param_groups[0]["lr"] = config.learning_rate * min(rising, falling)
            adam.step()
            losses.append(loss.item())
    return losses


@pytest.mark.parametrize("clip", [0.0, 0.7])  # 0 is for none
def test_updates_are_those_of_a_loop_written_out(clip, tmp_path):
    exact = {"dtype": torch.float64, "model": {"dropout": 0.0}, "epochs": 2, "accumulate": 3, "clip": clip}
    trainer, other = (make_trainer(tmp_path, log_every=1, average=0, **exact) for _ in range(2))
    trainer.fit()
    losses = plain_loop(other, 2, 3, clip or float("inf"))
    torch.testing.assert_close(
        dict(trainer.model.named_parameters()), dict(other.model.named_parameters()), rtol=0, atol=1e-9
    )
    assert [line["loss"] for line in log_of(tmp_path) if "loss" in line] == pytest.approx(losses, abs=1e-9)


def test_validation_does_not_disturb_training(tmp_path):
    make_trainer(tmp_path / "with").fit()
    without = make_trainer(tmp_path / "without")
    without.validation = None
    without.fit()
    assert weights(tmp_path / "with") == weights(tmp_path / "without")
    assert any("validation_loss" in line for line in log_of(tmp_path / "with"))
    assert log_of(tmp_path / "without") == [
        line for line in log_of(tmp_path / "with") if "validation_loss" not in line
    ]


def test_half_precision_keeps_the_weights_whole(tmp_path):
    losses = []
    for precision in ("bf16", "float32"):
        out = tmp_path / precision
        make_trainer(out, precision=precision, max_steps=4, model={"dropout": 0.0}).fit()
        assert {tensor.dtype for tensor in read_tensors(out / WEIGHTS).values()} == {torch.float32}
        losses.append([line["loss"] for line in log_of(out) if "loss" in line])
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


def test_a_warmup_that_is_not_given_follows_from_the_length_of_the_run_at_its_beginning(tmp_path):
    settings = {"warmup": 0, "log_every": 1, "average": 0}
    trainer = make_trainer(tmp_path, epochs=2, **settings)
    trainer.fit()
    warmup = trainer.config.warmup_in(trainer.progress.step)
    make_trainer(tmp_path, epochs=4, **settings).fit(resume=True)
    rates = {line["step"]: line["rate"] for line in log_of(tmp_path) if "rate" in line}
    assert 1 < warmup < len(rates)
    assert rates == pytest.approx({n: 0.08 * min(n / warmup, (warmup / n) ** 0.5) for n in range(1, 33)})
    # Another run with these settings, of another length, has a warm-up of its own.
    assert read_json(tmp_path / "training.json")["warmup"] == 0


@pytest.mark.parametrize(
    ("metric", "scored"), [("bleu", [False, True, False, True]), ("chrf", [False, True, True])]
)
def test_the_log_has_the_score_of_the_epochs_asked_for_and_of_the_last(metric, scored, tmp_path):
    make_trainer(tmp_path, epochs=len(scored), metric=metric, metric_every=2).fit()
    validated = [line for line in log_of(tmp_path) if "validation_loss" in line]
    assert [f"validation_{metric}" in line for line in validated] == scored


@pytest.mark.parametrize(
    ("record", "cut"),
    [
        ({"pair": "en-th"}, "char"),
        ({"pair": "en-de"}, "13a"),
        ({}, "13a"),
        ({"pair": "en-de", "tokenized": True}, "none"),
    ],
)
def test_bleu_is_counted_as_the_text_and_its_language_ask(record, cut, tmp_path):
    trainer = make_trainer(tmp_path, metric="bleu", record=record)
    assert f"tok:{cut}|" in trainer.validation.metric.signature


@pytest.mark.parametrize(
    ("metric", "values"), [("wer", [30, 20, 20, 25, 20, 40]), ("bleu", [10, 30, 30, 20, 30, 5])]
)
def test_the_best_checkpoint_and_patience_go_by_the_metric(metric, values, tmp_path, monkeypatch):
    """The loss is best in the fourth epoch, the metric in the second and third; the rest are the end's."""
    validate_as(monkeypatch, [4.0, 3.0, 2.0, 1.0], values)
    settings = {"metric": metric, "average_of": "best", "average": 2, "keep": 2}
    trainer = make_trainer(tmp_path, epochs=9, patience=2, **settings)
    trainer.fit()
    assert trainer.progress.epoch == 4
    third = tmp_path / "checkpoints" / f"step-{3 * trainer.progress.batches_in_epoch:08d}"
    assert weights(tmp_path) == weights(third)
    found = [line[f"validation_{metric}"] for line in log_of(tmp_path) if "validation_loss" in line]
    assert found == values[:4]


def test_another_metric_begins_to_count_anew(tmp_path, monkeypatch):
    validate_as(monkeypatch, [4.0, 5.0, 6.0, 7.0], [30, 20])
    make_trainer(tmp_path, epochs=9, patience=1, average=0).fit()
    trainer = make_trainer(tmp_path, epochs=4, patience=1, metric="wer", average=0)
    trainer.fit(resume=True)
    assert trainer.progress.epoch == 4
    assert trainer.progress.best == 20


def test_the_best_by_one_metric_do_not_give_way_to_another(tmp_path):
    make_trainer(tmp_path, epochs=2, average_of="best").fit()
    before = RunFolder(tmp_path).checkpoints()
    with pytest.raises(ValueError, match="metric"):
        make_trainer(tmp_path, epochs=3, average_of="best", metric="wer").fit(resume=True)
    assert RunFolder(tmp_path).checkpoints() == before


def test_epochs_are_counted_from_1_and_max_steps_ends_in_the_midst_of_one(tmp_path):
    trainer = make_trainer(tmp_path, epochs=3, log_every=1, max_steps=10)
    trainer.fit()
    log, length = log_of(tmp_path), trainer.progress.batches_in_epoch
    assert length < 10 < 2 * length
    assert trainer.progress.finished(trainer.config)
    assert steps(tmp_path)[-1] == log[-1]["step"] == 10
    assert "validation_loss" in log[-1]
    assert all(line["epoch"] == (line["step"] - 1) // length + 1 for line in log)


def test_a_compiled_model_is_trained_alike(tmp_path, monkeypatch):
    compile_module = torch.nn.Module.compile  # captured as on request, but run without generated code
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self: compile_module(self, backend="eager"))
    for name in ("plain", "compiled"):
        make_trainer(tmp_path / name, compile=name == "compiled", max_steps=4, model={"dropout": 0.0}).fit()
    plain, compiled = (read_tensors(tmp_path / name / WEIGHTS) for name in ("plain", "compiled"))
    torch.testing.assert_close(compiled, plain)


def test_bar_and_message_expect_the_same_time(tmp_path, monkeypatch):
    """With a clock that moves on by 100 seconds whenever it is read."""
    said, bars, ticks = [], [], itertools.count(step=100.0)

    class Bar(tqdm):
        def __init__(self, **options):
            super().__init__(**options | {"disable": False, "file": io.StringIO()})
            bars.append(self)

    def note(text):
        if found := re.search(r"about ([\d,]+) min left", text):
            now = bars[0].format_dict
            pace = now["elapsed"] / 60 / (now["n"] - now["initial"])
            said.append((float(found[1].replace(",", "")), (now["total"] - now["n"]) * pace))

    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    monkeypatch.setattr("tqdm.std.time", lambda: next(ticks))
    monkeypatch.setattr(trainer_module, "tqdm", Bar)
    monkeypatch.setattr(trainer_module, "print_message", note)
    make_trainer(tmp_path, epochs=3, patience=0).fit()
    assert len(said) == 2
    for told, shown in said:
        assert told == pytest.approx(shown, rel=0.2)


@pytest.mark.parametrize("stream", [None, io.TextIOWrapper(io.BytesIO(), encoding="cp1252")], ids=type)
def test_a_terminal_that_shows_nothing_stops_no_training(stream, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream)
    print_message("Katze → 猫")
    trainer = make_trainer(tmp_path, max_steps=2)
    trainer.fit()
    assert trainer.progress.step == 2


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_stops_at_once_except_under_torchrun_which_repeats_it(sent, monkeypatch):
    def stop_at_once(*_):
        raise ChildProcessError

    monkeypatch.setattr(signal, "SIG_DFL", stop_at_once)
    monkeypatch.setattr(signal, "default_int_handler", stop_at_once)
    before = signal.getsignal(sent)
    with stop_on_interrupt() as asked:
        assert not asked()
        signal.raise_signal(sent)
        assert asked()
        with pytest.raises(ChildProcessError):
            signal.raise_signal(sent)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "any")
    with stop_on_interrupt() as asked:
        for _ in range(3):
            signal.raise_signal(sent)
        assert asked()
    assert signal.getsignal(sent) == before
