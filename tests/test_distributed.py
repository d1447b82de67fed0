"""Several processes train one model: the same updates as one process makes with as many batches."""

import os
import signal
import subprocess
import sys

import pytest
import torch
from tiny_runs import exit_code, log_of, make_trainer, start
from torch import distributed as dist

from annotated.__main__ import main
from annotated.checkpoints import WEIGHTS, read_tensors
from annotated.trainer import Trainer

EXACT = {"dtype": torch.float64, "model": {"dropout": 0.0}, "clip": 0.5}


def work(rank, store, out, interrupt_at=None, resume=False, **settings):
    """One of two processes; the first interrupts itself after some update, if asked to."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    report = Trainer.report

    def interrupted(self, *arguments):
        report(self, *arguments)
        if self.progress.step == interrupt_at and rank == 0:
            os.kill(os.getpid(), signal.SIGINT)

    Trainer.report = interrupted
    trainer = make_trainer(out, **{**EXACT, **settings})
    trainer.train(resume)
    code = 0 if trainer.finished() else 7
    del trainer
    dist.destroy_process_group()
    sys.exit(code)


def two_processes(tmp_path, name, **settings):
    """Run both to their ends; returns their exit codes."""
    store = tmp_path / f"store-{len(list(tmp_path.iterdir()))}"
    processes = [start(work, rank, store, tmp_path / name, **settings) for rank in range(2)]
    return [exit_code(process) for process in processes]


def assert_close(out, expected):
    tensors, wanted = read_tensors(out / WEIGHTS), read_tensors(expected / WEIGHTS)
    assert tensors.keys() == wanted.keys()
    for name, tensor in tensors.items():
        torch.testing.assert_close(tensor, wanted[name], rtol=0, atol=1e-9)
    for line, like in zip(log_of(out), log_of(expected), strict=True):
        assert line == pytest.approx(like, abs=1e-9)


@pytest.mark.parametrize(("accumulate", "count", "rest"), [(1, 50, 1), (2, 50, 3)])
def test_two_processes_are_one_with_twice_the_batches(accumulate, count, rest, tmp_path):
    alone = make_trainer(tmp_path / "alone", accumulate=2 * accumulate, count=count, **EXACT)
    # The last update of an epoch has `rest` batches: one process has fewer than the other, or none.
    assert len(alone.epoch_batches(0)) % (2 * accumulate) == rest
    alone.train()
    assert two_processes(tmp_path, "both", accumulate=accumulate, count=count) == [0, 0]
    assert_close(tmp_path / "both", tmp_path / "alone")


def test_one_process_interrupted_stops_both_at_one_step(tmp_path):
    make_trainer(tmp_path / "alone", accumulate=2, **EXACT).train()
    assert two_processes(tmp_path, "both", interrupt_at=3) == [7, 7]
    assert [folder.name for folder in (tmp_path / "both" / "checkpoints").iterdir()] == ["step-00000003"]
    assert two_processes(tmp_path, "both", resume=True) == [0, 0]
    assert_close(tmp_path / "both", tmp_path / "alone")


def test_torchrun_starts_the_command(tmp_path, one_thread, monkeypatch):
    for name, line in (("a.en", "the cat number {} sees a dog"), ("a.de", "die Katze {} sieht den Hund")):
        (tmp_path / name).write_text("".join(line.format(i) + "\n" for i in range(80)), encoding="utf-8")
    files = ["--src", str(tmp_path / "a.en"), "--tgt", str(tmp_path / "a.de")]
    shape = "--vocab 320 --N 1 --d-model 16 --d-ff 16 --h 2 --dropout 0 --max-tokens 200 --max-steps 4"
    flags = ["train", *files, *shape.split(), "--device", "cpu", "--threads", "1"]
    assert main([*flags, "--accumulate", "2", "--out", str(tmp_path / "alone")]) == 0
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    command = [*torchrun, "-m", "annotated", *flags, "--out", str(tmp_path / "both")]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stderr
    assert said.count("the model is in") == 1  # of two processes, one speaks
    both, alone = (read_tensors(tmp_path / name / WEIGHTS) for name in ("both", "alone"))
    torch.testing.assert_close(both, alone, rtol=0, atol=1e-5)
