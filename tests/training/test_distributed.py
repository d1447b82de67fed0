"""Several processes train one model: the same updates as one process makes with as many batches.

They meet over TCP on this machine's own address, as nodes do.
"""

import math
import os
import signal
import socket
import subprocess
import sys
import warnings
from itertools import count

import pytest
import torch
from command_line import SIZES
from tiny_runs import exit_code, log_of, make_trainer, start, steps

from annotated.translation.cli.main import main
from annotated.translation.processes import process_group
from annotated.translation.storage.model_folder import WEIGHTS
from annotated.translation.storage.tensor_files import read_tensors
from annotated.translation.training.summed_loss import SummedLoss
from annotated.translation.training.trainer import Trainer

EXACT = {"dtype": torch.float64, "clip": 0.5, "model": {"dropout": 0.3}}


def free_port():
    """A port of this machine that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def as_node(rank, port):
    """Make this process the only one of a node, in the variables that `torchrun` sets."""
    torch.set_num_threads(1)
    warnings.simplefilter("error", FutureWarning)  # what a next version of PyTorch will not take any more
    place = {"RANK": rank, "GROUP_RANK": rank, "LOCAL_RANK": 0, "WORLD_SIZE": 2, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()}, MASTER_ADDR="127.0.0.1")


def work(rank, port, outs, sent=None, at=None, resume=False, texts=("", ""), ruined=False, **settings):
    """One of two processes; the last sends itself a signal after some update, or both lose a loss."""
    as_node(rank, port)
    if ruined:
        forward, calls = SummedLoss.forward, count(1)
        SummedLoss.forward = lambda self, *batch: forward(self, *batch) * (math.nan if next(calls) > 1 else 1)
    report = Trainer.report

    def interrupted(self, *arguments):
        report(self, *arguments)
        if self.progress.step == at - (sent != signal.SIGKILL) and rank == 1:
            os.kill(os.getpid(), sent)

    if sent is not None:
        Trainer.report = interrupted
    code = 1
    try:
        with process_group(torch.device("cpu")):
            code = train(outs[rank], texts[rank], resume, settings)
    except Exception as error:
        (outs[0].parent / f"error-{rank}").write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
    sys.exit(code)


def train(out, text, resume, settings):
    """Train as far as it goes."""
    trainer = make_trainer(out, fingerprint=text, **{**EXACT, **settings})
    trainer.fit(resume)
    return 0 if trainer.progress.finished(trainer.config) else 7


def two_processes(*outs, **settings):
    """Run both to their ends, each with its own folder or with one for both; returns their exit codes."""
    port, outs = free_port(), outs * 2
    started = [start(work, rank, port, outs, **settings) for rank in range(2)]
    return [exit_code(process) for process in started]


def assert_close(out, expected):
    torch.testing.assert_close(
        read_tensors(out / WEIGHTS), read_tensors(expected / WEIGHTS), rtol=0, atol=1e-9
    )
    for line, like in zip(log_of(out), log_of(expected), strict=True):
        assert line == pytest.approx(like, abs=1e-9)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A run of one process with two batches an update."""
    out = tmp_path_factory.mktemp("alone") / "run"
    make_trainer(out, accumulate=2, **EXACT).fit()
    return out


@pytest.mark.parametrize(("accumulate", "count", "rest"), [(1, 50, 1), (2, 50, 3)])
def test_two_processes_are_one_with_twice_the_batches(accumulate, count, rest, tmp_path):
    bleu = {"metric": "bleu", "metric_every": 3}
    alone = make_trainer(tmp_path / "alone", accumulate=2 * accumulate, count=count, **bleu, **EXACT)
    # The last update of an epoch has `rest` batches: one process has fewer than the other, or none.
    assert len(alone.batches) % (2 * accumulate) == rest
    alone.fit()
    assert two_processes(tmp_path / "both", accumulate=accumulate, count=count, **bleu) == [0, 0]
    assert_close(tmp_path / "both", tmp_path / "alone")


def test_sinusoids_that_grow_in_one_process_alone_break_nothing(tmp_path):
    few = {"model": {"dropout": 0.0, "max_len": 4}, "epochs": 1}
    assert two_processes(tmp_path / "run", **few) == [0, 0]
    assert two_processes(tmp_path / "again", accumulate=2, **few) == [0, 0]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_one_process_asked_to_stop_stops_both_at_one_step(sent, alone, tmp_path):
    out = tmp_path / "both"
    assert two_processes(out, sent=sent, at=3) == [7, 7]
    assert steps(out) == [3]
    assert two_processes(out, resume=True) == [0, 0]
    assert_close(out, alone)


def test_one_process_killed_ends_the_other_at_once(alone, tmp_path):
    out = tmp_path / "both"
    assert two_processes(out, sent=signal.SIGKILL, at=6) == [1, -signal.SIGKILL]
    assert "has lost another process" in (tmp_path / "error-0").read_text(encoding="utf-8")
    assert two_processes(out, resume=True) == [0, 0]
    assert_close(out, alone)


def test_other_numbers_of_processes_make_the_same_updates(alone, tmp_path, capfd):
    out = tmp_path / "run"
    make_trainer(out, accumulate=2, max_steps=3, **EXACT).fit()
    assert two_processes(out, resume=True, accumulate=2, max_steps=6) == [0, 0]
    make_trainer(out, accumulate=1, **EXACT).fit(resume=True)  # what the two of them had
    assert "an update keeps its 2 batches: accumulate is now 2" in capfd.readouterr().err
    torch.testing.assert_close(read_tensors(out / WEIGHTS), read_tensors(alone / WEIGHTS), rtol=0, atol=1e-9)


def errors(folder):
    """What each of the two processes raised."""
    return [(folder / f"error-{rank}").read_text(encoding="utf-8") for rank in range(2)]


def test_updates_that_cannot_be_shared_are_refused_by_all(tmp_path):
    out = tmp_path / "run"
    make_trainer(out, accumulate=3, max_steps=2, **EXACT).fit()
    assert two_processes(out, resume=True, accumulate=3) == [1, 1]
    for said in errors(tmp_path):
        assert said.startswith("DistributedError: node 0 (")
        assert "2 processes cannot share the 3 batches of an update" in said
    with pytest.raises(ValueError, match="accumulate = 3, not 2"):  # that would be other updates
        make_trainer(out, accumulate=2, **EXACT).fit(resume=True)


def test_other_text_on_a_node_ends_both(tmp_path):
    assert two_processes(tmp_path / "run", texts=("a", "b")) == [1, 1]
    for said in errors(tmp_path):
        assert said.startswith("DistributedError: node 1 (")
        assert "differs from that of the first node" in said


def test_a_loss_that_is_not_finite_ends_both_with_one_message(tmp_path):
    assert two_processes(tmp_path / "run", ruined=True, save_every=1) == [1, 1]
    first, second = errors(tmp_path)
    assert first == second
    assert first.startswith("TrainingError: the loss or its gradient is not finite at step 2;")


SHAPE = f"{SIZES} --dropout 0 --max-tokens 200 --device cpu --threads 1"


def train_alone(files, steps, out):
    """Train in one process with two batches an update; the weights."""
    flags = ["train", *files, *SHAPE.split(), "--accumulate", "2", "--max-steps", str(steps)]
    assert main([*flags, "--out", str(out)]) == 0
    return read_tensors(out / WEIGHTS)


def test_torchrun_on_two_nodes_resumes_what_one_of_them_has(files, tmp_path, one_thread):
    nodes = tmp_path / "one", tmp_path / "two"
    train_alone(files, 2, nodes[0] / "run")
    nodes[1].joinpath("run").mkdir(parents=True)  # nor does it matter what another node has there
    meet = f"--nnodes 2 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:{free_port()} --rdzv-id test".split()
    flags = ["train", "--out", "run", "--resume", "--max-steps", "5"]
    command = [sys.executable, "-m", "torch.distributed.run", *meet, "-m", "annotated", *flags]
    options = {"stderr": subprocess.PIPE, "text": True, "env": os.environ | {"OMP_NUM_THREADS": "1"}}
    started = [subprocess.Popen(command, cwd=folder, **options) for folder in nodes]
    said = [process.communicate(timeout=500)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    assert sum(text.count("finished at step 5") for text in said) == 1  # of two processes, one speaks
    assert not list(nodes[1].joinpath("run").iterdir())
    found = read_tensors(nodes[0] / "run" / WEIGHTS)
    alone = train_alone(files, 5, tmp_path / "alone")
    torch.testing.assert_close(found, alone, rtol=0, atol=1e-5)
