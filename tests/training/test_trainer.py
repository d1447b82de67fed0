"""What a training run computes and when it ends."""

import io
import signal
import sys

import pytest
import torch
from tiny_runs import log_of, make_trainer, steps, weights

from annotated.data.batches import Batch
from annotated.devices import say
from annotated.files import read_json
from annotated.metrics import Score, bleu, tokenized_bleu
from annotated.perplexity import TokenScores
from annotated.storage.model_folder import WEIGHTS
from annotated.storage.tensor_files import read_tensors
from annotated.tokenizers import WordTokenizer
from annotated.training import loss as loss_module
from annotated.training.checkpoint import Progress
from annotated.training.distributed import stop_on_interrupt
from annotated.training.loss import LabelSmoothing, SummedLoss, symmetric_divergence
from annotated.training.run_folder import RunFolder
from annotated.training.validation import Validation, translate_greedily

pytestmark = pytest.mark.usefixtures("one_thread")


# ---- what is computed


def test_the_loss_is_the_readable_one():
    trainer = make_trainer("unused", model={"dropout": 0.0})
    model = trainer.model
    batch = Batch(torch.tensor([[4, 5, 1], [6, 1, 2]]), torch.tensor([[0, 5, 4, 1], [0, 6, 1, 2]]))
    found = SummedLoss(model, 0.1, 2)(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask, batch.tgt_y)
    log_probs = model.generator(model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask))
    wanted = LabelSmoothing(16, 2, 0.1)(log_probs.flatten(0, 1), batch.tgt_y.flatten())
    torch.testing.assert_close(found, wanted)


def test_two_passes_have_dropout_of_their_own_and_are_held_to_agree():
    model = make_trainer("unused", model={"dropout": 0.4}).model.train()
    batch = Batch(torch.tensor([[4, 5, 1], [6, 1, 2]]), torch.tensor([[0, 5, 4, 1], [0, 6, 1, 2]]))
    inputs = batch.src, batch.tgt, batch.src_mask, batch.tgt_mask
    loss = SummedLoss(model, 0.1, 2)
    loss.rdrop_weight = 0.7
    torch.manual_seed(5)
    found = loss(*inputs, batch.tgt_y)
    torch.manual_seed(5)
    x, y = model.generator(model(*(torch.cat([z, z]) for z in inputs))).flatten(1, 2).view(2, -1, 16)
    target, criterion = batch.tgt_y.flatten(), LabelSmoothing(16, 2, 0.1)
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
    batch = Batch(torch.tensor([[4, 5, 1], [6, 1, 2]]), torch.tensor([[0, 5, 4, 1], [0, 6, 1, 2]]))
    loss = SummedLoss(model, 0.1, 2)
    loss.rdrop_weight = rdrop_weight
    with torch.autocast("cpu", torch.bfloat16):
        found = loss(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask, batch.tgt_y)
    assert found.dtype == torch.float32
    assert seen == [torch.float32] * 2


def test_rdrop_begins_with_its_epoch(tmp_path):
    trainer = make_trainer(tmp_path, epochs=3, rdrop_weight=0.7, rdrop_from=2)
    batches, seen = trainer.batches_at, []
    trainer.batches_at = lambda epoch: seen.append(trainer.summed.rdrop_weight) or batches(epoch)
    trainer.fit()
    assert seen[-3:] == [0.0, 0.7, 0.7]


def plain_loop(trainer, epochs, accumulate, clip):
    """The same training written out: one gradient of the mean over all tokens of `accumulate` batches."""
    model, config = trainer.model.train(), trainer.config
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    criterion, losses = LabelSmoothing(16, 2, config.smoothing), []
    for epoch in range(epochs):
        batches = list(trainer.batches_at(epoch).epoch(epoch))
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


def test_the_same_seed_gives_the_same_run_and_another_seed_another(tmp_path):
    make_trainer(tmp_path / "a").fit()
    torch.manual_seed(99)  # whatever the global stream was before
    trainer = make_trainer(tmp_path / "b")
    torch.rand(3)
    trainer.fit()
    make_trainer(tmp_path / "c", seed=1).fit()
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    assert log_of(tmp_path / "a") == log_of(tmp_path / "b")
    assert weights(tmp_path / "a") != weights(tmp_path / "c")


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
    make_trainer(tmp_path / "half", precision="bf16", max_steps=4, model={"dropout": 0.0}).fit()
    make_trainer(tmp_path / "full", max_steps=4, model={"dropout": 0.0}).fit()
    half, full = (read_tensors(tmp_path / name / WEIGHTS) for name in ("half", "full"))
    assert {tensor.dtype for tensor in half.values()} == {torch.float32}
    losses = [[line["loss"] for line in log_of(tmp_path / n) if "loss" in line] for n in ("half", "full")]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
    assert half.keys() == full.keys()


@pytest.mark.parametrize("d_model", [8, 32])
@pytest.mark.parametrize("warmup", [3, 8])
def test_the_rate_peaks_where_the_settings_say_whatever_warmup_and_width(tmp_path, d_model, warmup):
    settings = {"max_steps": 12, "learning_rate": 0.01, "warmup": warmup, "log_every": 1, "average": 0}
    make_trainer(tmp_path, model={"d_model": d_model}, **settings).fit()
    rates = rates_of(tmp_path)
    assert rates[warmup] == max(rates.values()) == pytest.approx(0.01)
    for step, found in rates.items():
        assert found == pytest.approx(0.01 * min(step / warmup, (warmup / step) ** 0.5))


def rates_of(out):
    """The rate of each update that the log has."""
    return {line["step"]: line["rate"] for line in log_of(out) if "rate" in line}


def test_a_warmup_that_is_not_given_follows_from_the_length_of_the_run(tmp_path):
    settings = {"epochs": 2, "warmup": 0, "log_every": 1, "average": 0}
    trainer = make_trainer(tmp_path, **settings)
    trainer.fit()
    warmup = trainer.config.warmup_in(trainer.progress.step)
    rates = rates_of(tmp_path)
    assert 1 < warmup < len(rates)
    assert max(rates, key=rates.get) == warmup
    assert read_json(tmp_path / "training.json")["warmup"] == warmup


def test_a_longer_run_keeps_the_warmup_it_was_begun_with(tmp_path):
    make_trainer(tmp_path / "run", warmup=0, epochs=2, log_every=1).fit()
    warmup = read_json(tmp_path / "run" / "training.json")["warmup"]
    make_trainer(tmp_path / "run", warmup=0, epochs=4, log_every=1).fit(resume=True)
    make_trainer(tmp_path / "whole", warmup=warmup, epochs=4, log_every=1).fit()
    assert rates_of(tmp_path / "run") == rates_of(tmp_path / "whole")
    assert read_json(tmp_path / "run" / "training.json")["warmup"] == warmup


def test_the_log_has_the_bleu_of_the_epochs_asked_for(tmp_path, capfd):
    make_trainer(tmp_path, epochs=4, metric="bleu", metric_every=2).fit()
    lines = [line for line in log_of(tmp_path) if "validation_loss" in line]
    assert ["validation_bleu" in line for line in lines] == [False, True, False, True]
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("epoch")]
    assert ["greedy BLEU" in line for line in said] == [False, True, False, True]
    assert ["min left" in line for line in said] == [True, True, True, False]


@pytest.mark.parametrize(("form", "measure"), [("tok", tokenized_bleu), ("raw", bleu)])
def test_the_bleu_is_the_one_that_the_card_will_have(form, measure, tmp_path, monkeypatch):
    def in_halves(_, ids):  # which one of the two measures cuts
        return " ".join(f"{i}-{i}" for i in ids)

    monkeypatch.setattr(WordTokenizer, "decode", in_halves)
    trainer = make_trainer(tmp_path, max_steps=1, epochs=1, metric="bleu", notes={"form": form})
    trainer.fit()
    found = log_of(tmp_path)[-1]["validation_bleu"]
    batches = trainer.validation.batches.epoch(0)
    texts = translate_greedily(trainer.model, batches, trainer.tokenizers[1])
    by = {m: m(*texts).value for m in (bleu, tokenized_bleu)}
    assert found == by[measure]
    assert by[bleu] != by[tokenized_bleu]


@pytest.mark.parametrize(("pair", "cut"), [("en-th", "char"), ("en-de", "13a"), (None, "13a")])
def test_that_bleu_is_counted_as_the_target_language_asks(pair, cut, tmp_path):
    trainer = make_trainer(tmp_path, metric="bleu", notes={"pair": pair})
    assert f"tok:{cut}|" in trainer.validation.metric.signature


def scores_of(monkeypatch, losses, values):
    """Let validations return these losses, and these scores by the metric."""
    losses, values = iter(losses), iter(values)
    monkeypatch.setattr(Validation, "score", lambda *_: TokenScores(next(losses), 0.5, 1))
    monkeypatch.setattr(Validation, "measure", lambda self, _: Score("it", next(values), ""))


@pytest.mark.parametrize(
    ("metric", "values"), [("wer", [30, 20, 25, 28, 20, 40]), ("bleu", [10, 30, 20, 25, 30, 5])]
)
def test_the_best_checkpoint_and_patience_go_by_the_metric(metric, values, tmp_path, monkeypatch):
    """The loss is best in the last epoch, the metric in the second; the last two values are the end's."""
    scores_of(monkeypatch, [4.0, 3.0, 2.0, 1.0], values)
    settings = {"metric": metric, "average_of": "best", "average": 2, "keep": 2}
    trainer = make_trainer(tmp_path, epochs=9, patience=2, **settings)
    trainer.fit()
    assert trainer.progress.epoch == 4
    second = tmp_path / "checkpoints" / f"step-{2 * trainer.progress.batches_in_epoch:08d}"
    assert weights(tmp_path) == weights(second)
    found = [line[f"validation_{metric}"] for line in log_of(tmp_path) if "validation_loss" in line]
    assert found == values[:4]


def test_another_metric_begins_to_count_anew(tmp_path, monkeypatch):
    scores_of(monkeypatch, [4.0, 5.0, 6.0, 7.0], [30, 20])
    make_trainer(tmp_path, epochs=9, patience=1, average=0).fit()
    trainer = make_trainer(tmp_path, epochs=4, patience=1, metric="wer", average=0)
    trainer.fit(resume=True)
    assert trainer.progress.epoch == 4
    assert trainer.progress.best == 20


def test_the_end_compares_scores_of_one_metric(tmp_path, capfd):
    make_trainer(tmp_path, epochs=2, average=2, metric="bleu").fit()
    trainer = make_trainer(tmp_path, epochs=2, average=2)
    trainer.fit(resume=True)
    said = capfd.readouterr().err.splitlines()
    [compared] = [line for line in said if line.startswith("validation loss")]
    loss = Progress.load(trainer.out.newest()).validation_loss
    assert f"{loss:.4f} of the newest checkpoint" in compared


def test_the_best_by_one_metric_do_not_give_way_to_another(tmp_path):
    make_trainer(tmp_path, epochs=2, average_of="best").fit()
    before = RunFolder(tmp_path).checkpoints()
    with pytest.raises(ValueError, match="metric"):
        make_trainer(tmp_path, epochs=3, average_of="best", metric="wer").fit(resume=True)
    assert RunFolder(tmp_path).checkpoints() == before


def test_the_last_epoch_is_scored_whatever_is_due(tmp_path):
    make_trainer(tmp_path, epochs=3, metric="chrf", metric_every=2).fit()
    validated = [line for line in log_of(tmp_path) if "validation_loss" in line]
    assert ["validation_chrf" in line for line in validated] == [False, True, True]


def test_epochs_are_counted_from_1(tmp_path, capfd):
    """In messages and in the log, as `rdrop_from` counts them; a rest of an epoch is part of it."""
    trainer = make_trainer(tmp_path, epochs=3, log_every=1, max_steps=10)
    trainer.fit()
    length = trainer.progress.batches_in_epoch
    assert length < 10 < 2 * length
    for line in log_of(tmp_path):
        assert line["epoch"] == (line["step"] - 1) // length + 1
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("epoch")]
    assert [line.partition(":")[0] for line in said] == [f"epoch 1, step {length}", "epoch 2, step 10"]


def test_a_compiled_model_is_trained_alike(tmp_path, monkeypatch):
    compile_module = torch.nn.Module.compile  # captured as on request, but run without generated code
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self: compile_module(self, backend="eager"))
    for name in ("plain", "compiled"):
        make_trainer(tmp_path / name, compile=name == "compiled", max_steps=4, model={"dropout": 0.0}).fit()
    plain, compiled = (read_tensors(tmp_path / name / WEIGHTS) for name in ("plain", "compiled"))
    torch.testing.assert_close(compiled, plain)


class ClosedStream(io.StringIO):
    closed = True

    def write(self, text):
        raise ValueError("I/O operation on closed file")


@pytest.mark.parametrize(
    "stream", [None, ClosedStream(), io.TextIOWrapper(io.BytesIO(), encoding="cp1252")], ids=type
)
def test_a_terminal_that_shows_nothing_stops_no_training(stream, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream)
    say("Katze → 猫")
    trainer = make_trainer(tmp_path, max_steps=2)
    trainer.fit()
    assert trainer.progress.step == 2


# ---- when it ends


def test_max_steps_ends_in_the_midst_of_an_epoch(tmp_path):
    trainer = make_trainer(tmp_path, max_steps=3, average=0)
    trainer.fit()
    assert trainer.progress.finished(trainer.config)
    assert steps(tmp_path) == [3]
    assert log_of(tmp_path)[-1]["step"] == 3
    assert "validation_loss" in log_of(tmp_path)[-1]


def test_patience_counts_epochs_without_a_better_loss(tmp_path, monkeypatch):
    losses = iter([3.0, 2.0, 2.5, 1.9, 1.9, 2.0, 1.0, 1.0])
    monkeypatch.setattr(Validation, "score", lambda *_: TokenScores(next(losses), 0.5, 1))
    trainer = make_trainer(tmp_path, epochs=7, patience=2)
    trainer.fit()
    assert trainer.progress.epoch == 6  # two epochs after that of 1.9, which the next 1.9 does not better
    assert trainer.progress.best == 1.9


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
