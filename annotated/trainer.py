"""Long training runs: checkpoints that survive a kill, a log, early stopping, averaging, several processes.

A run's folder is a model folder (the newest weights, or their average at the end) that also holds

    training.json                settings of the run
    log.jsonl                    a line each `log_every` updates and each validation
    checkpoints/step-00001234/   a model folder with the optimizer's state and the position in the data

Each update draws its dropout from (seed, step, process), so its position alone decides what a run does next:
one that was killed and resumed ends with the same weights, bit for bit, as one that was not.
"""

import dataclasses
import json
import math
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch import distributed as dist
from tqdm import tqdm

from annotated.checkpoints import (
    average_checkpoints,
    load_weights,
    read_tensors,
    save_model,
    weights,
    write_tensors,
)
from annotated.data.batching import TokenBatches
from annotated.evaluation import score_tokens
from annotated.files import creating_folder, read_json, write_json
from annotated.loss import smoothed_cross_entropy
from annotated.masks import Batch
from annotated.model import EncoderDecoder
from annotated.schedule import rate
from annotated.tokenizers import Tokenizer


@dataclass(frozen=True)
class TrainingConfig:
    """Everything that decides how a model is trained. The defaults are the paper's (section 5)."""

    epochs: int = 100  # times through the training data at most
    max_steps: int = 100_000  # updates at most
    max_tokens: int = 4096  # tokens in a batch at most, padding counted, on its longer side
    accumulate: int = 1  # batches an update
    max_sentence: int = 256  # tokens in a sentence at most; longer pairs are left out, and counted
    warmup: int = 4000  # updates until the rate's peak (equation 3)
    factor: float = 1.0  # multiplies the rate of equation 3
    beta_1: float = 0.9  # Adam: decay of the mean gradient
    beta_2: float = 0.98  # Adam: decay of the mean squared gradient
    eps: float = 1e-9  # Adam: added to the root of that square
    clip: float = 0.0  # largest norm of the gradient, above which it is scaled down; 0 never scales
    smoothing: float = 0.1  # label smoothing
    subword_dropout: float = 0.0  # share of merges left out when training text is cut into subwords
    precision: Literal["float32", "bf16"] = "float32"  # bf16: matrix products in half precision
    compile: bool = False  # let torch.compile make the model faster, after a slow start
    patience: int = 0  # epochs without a better validation loss before training stops; 0 never stops
    keep: int = 5  # newest checkpoints kept
    average: int = 5  # newest checkpoints averaged at the end (section 6.1)
    save_every: int = 0  # updates between checkpoints; 0 saves at the end of each epoch
    log_every: int = 50  # updates between lines of the log
    seed: int = 0  # of initial weights, order of the data and dropout

    def __post_init__(self) -> None:
        for name in ("epochs", "max_steps", "max_tokens", "accumulate", "max_sentence", "warmup", "keep", "log_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.average <= self.keep:
            raise ValueError(f"average must be from 0 to keep, which is {self.keep}, not {self.average}")
        if self.precision not in ("float32", "bf16"):
            raise ValueError(f"precision must be float32 or bf16, not {self.precision!r}")

    @classmethod
    def base(cls, **settings) -> "TrainingConfig":
        """The paper's base model: 100,000 updates, the last 5 checkpoints averaged."""
        return cls(**settings)

    @classmethod
    def big(cls, **settings) -> "TrainingConfig":
        """The paper's big model: 300,000 updates, the last 20 checkpoints averaged."""
        return cls(**{"max_steps": 300_000, "keep": 20, "average": 20, **settings})

    @classmethod
    def tiny(cls, **settings) -> "TrainingConfig":
        """For a small corpus on a laptop: the rate peaks at 0.005 after 2,000 updates."""
        return cls(**{"epochs": 30, "warmup": 2000, "factor": 2.53, **settings})


class TrainingError(RuntimeError):
    """Training cannot go on; the message says where it stopped and which checkpoint is good."""


class SummedLoss(nn.Module):
    """Model, generator and loss as one module: what `torch.compile` and DistributedDataParallel wrap."""

    def __init__(self, model: EncoderDecoder, smoothing: float, pad: int):
        super().__init__()
        self.model = model
        self.smoothing = smoothing
        self.pad = pad

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor, tgt_mask: Tensor, tgt_y: Tensor) -> Tensor:
        """The label-smoothed loss summed over the batch's target tokens."""
        states = self.model(src, tgt, src_mask, tgt_mask)
        proj = self.model.generator.proj
        with torch.autocast(states.device.type, enabled=False):
            return smoothed_cross_entropy(
                states.flatten(0, 1).to(proj.weight.dtype),
                proj.weight,
                proj.bias,
                tgt_y.flatten(),
                self.smoothing,
                self.pad,
            )


@dataclass
class Progress:
    """Where a run stands: all that a checkpoint must hold besides weights and the optimizer's state."""

    step: int = 0  # updates made
    epoch: int = 0  # the epoch under way, from 0
    position: int = 0  # updates made in it
    seconds: float = 0.0  # spent training, interruptions not counted
    loss: float = 0.0  # summed since the last line of the log
    tokens: int = 0  # target tokens since then
    total_tokens: int = 0  # target tokens since the start
    log_bytes: int = 0  # the log's length; what a killed run wrote after its checkpoint is cut off
    best: float = math.inf  # validation loss
    stale: int = 0  # epochs since then


@contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C ask for a stop at the next good moment; a second one stops at once."""
    asked = False

    def ask(*_) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


class Trainer:
    """Trains `model` on what `epoch_batches(epoch)` gives, into the folder `out`.

    Under `torchrun`, each process takes its share of every update, and losses are divided by the tokens of all.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        tokenizers: tuple[Tokenizer, Tokenizer],
        epoch_batches: Callable[[int], TokenBatches],
        validation: TokenBatches | None,
        config: TrainingConfig,
        out: str | Path,
        device: str | torch.device = "cpu",
    ):
        self.model = model.to(device)
        self.tokenizers = tokenizers
        self.epoch_batches = epoch_batches
        self.validation = validation
        self.config = config
        self.out = Path(out)
        self.device = torch.device(device)
        self.progress = Progress()
        self.rank, self.world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        betas = (config.beta_1, config.beta_2)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=betas, eps=config.eps, fused=True)
        self.loss = self.wrap(SummedLoss(model, config.smoothing, tokenizers[1].pad))

    def wrap(self, loss: nn.Module) -> nn.Module:
        """Compile the module and share it between processes, as far as asked for."""
        if self.config.compile:
            loss.compile()
        if self.world > 1:
            return nn.parallel.DistributedDataParallel(loss)
        return loss

    # ---- the run

    def train(self, resume: bool = False) -> Path:
        """Train to the end, or until Ctrl-C; returns the folder whose weights are the newest.

        With `resume` a run goes on from its newest checkpoint, and starts where there is none.
        Raises TrainingError where the loss or its gradient is not finite, before the weights are touched.
        """
        if resume:
            self.resume()
        else:
            self.start_log()
        write_json(self.out / "training.json", dataclasses.asdict(self.config))
        with stop_on_interrupt() as stop_asked, self.bar() as bar:
            while not self.finished():
                if not self.run_epoch(bar, stop_asked):
                    return self.save()
        return self.finish()

    def finished(self) -> bool:
        """Whether the settings say that this is the end."""
        c, p = self.config, self.progress
        return p.step >= c.max_steps or p.epoch >= c.epochs or (c.patience > 0 and p.stale >= c.patience)

    def run_epoch(self, bar: tqdm, stop_asked: Callable[[], bool]) -> bool:
        """Go on to the end of the epoch, validate and save; False if a stop was asked for before that."""
        batches = self.epoch_batches(self.progress.epoch)
        updates = list(self.updates(batches))
        bar.total = min(self.config.max_steps, self.progress.step + len(updates) - self.progress.position
                        + len(updates) * (self.config.epochs - self.progress.epoch - 1))
        for share in updates[self.progress.position :]:
            self.update([(batches.collate(indices), weight) for indices, weight in share], bar)
            if self.progress.step >= self.config.max_steps:
                break
            if stop_asked():
                return False
            if self.config.save_every and self.progress.step % self.config.save_every == 0:
                self.save()
        self.progress.epoch += 1
        self.progress.position = 0
        self.validate(bar)
        self.save()
        return True

    def updates(self, batches: TokenBatches) -> Iterator[list[tuple[list[int], float]]]:
        """This process's batches of each update of an epoch, each with its weight in the loss.

        A process for which the last update leaves no batch computes one with weight 0: all have to take part.
        """
        plan = batches.batches(self.progress.epoch)
        size = self.config.accumulate * self.world
        for start in range(0, len(plan), size):
            group = plan[start : start + size]
            share = [(indices, 1.0) for indices in group[self.rank :: self.world]]
            yield share or [(group[0], 0.0)]

    def update(self, share: list[tuple[Batch, float]], bar: tqdm) -> None:
        """One step of the optimizer, from the mean loss over the target tokens of all batches of all processes."""
        started = time.perf_counter()
        p = self.progress
        self.model.train()
        torch.manual_seed((self.config.seed * 1_000_000 + p.step) * self.world + self.rank)
        ntokens = self.total(sum(batch.ntokens * weight for batch, weight in share))
        loss = self.total(sum(self.backward(share, i, ntokens) for i in range(len(share))))
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip or math.inf)
        if not (math.isfinite(loss) and norm.isfinite()):
            self.refuse([line for batch, _ in share for line in batch.lines])
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(p.step + 1)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        p.step += 1
        p.position += 1
        p.loss += loss
        p.tokens += int(ntokens)
        p.total_tokens += int(ntokens)
        p.seconds += time.perf_counter() - started
        bar.update(1)
        bar.set_postfix(
            loss=f"{loss / ntokens:.3f}",
            rate=f"{self.rate(p.step):.2e}",
            tokens_per_s=f"{p.total_tokens / p.seconds:,.0f}",
            refresh=False,
        )
        if p.step % self.config.log_every == 0:
            self.log({"loss": p.loss / p.tokens, "rate": self.rate(p.step), "tokens": p.total_tokens})
            p.loss, p.tokens = 0.0, 0

    def backward(self, share: list[tuple[Batch, float]], i: int, ntokens: float) -> float:
        """Add the gradient of one batch's part of the mean loss; returns its summed loss."""
        batch, weight = share[i]
        batch.to(self.device)
        last = i == len(share) - 1
        quiet = nullcontext() if last or self.world == 1 else self.loss.no_sync()
        half = torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision == "bf16")
        with quiet:
            with half:
                loss = self.loss(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask, batch.tgt_y)
            # DistributedDataParallel averages over processes; times their number, that is a sum.
            (loss * (weight * self.world / ntokens)).backward()
        return loss.item() * weight

    def total(self, value: float) -> float:
        """The sum of a number over all processes."""
        if self.world == 1:
            return value
        number = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.all_reduce(number)
        return number.item()

    def rate(self, step: int) -> float:
        """The learning rate of an update, counted from 1."""
        return rate(step, self.model.config.d_model, self.config.factor, self.config.warmup)

    def refuse(self, lines: list[int]) -> None:
        """Stop before an update that would ruin the weights."""
        good = self.newest()
        raise TrainingError(
            f"the loss or its gradient is not finite at step {self.progress.step + 1}, in a batch of lines "
            f"{', '.join(map(str, sorted(lines)))}; "
            + (f"the last good checkpoint is {good}" if good else "there is no checkpoint yet")
        )

    def validate(self, bar: tqdm) -> None:
        """Score the validation data and remember whether it was the best yet."""
        if self.validation is None:
            return
        batches = (self.validation.collate(indices) for indices in self.validation.batches(0))
        scores = score_tokens(self.model, batches, self.tokenizers[1].pad)
        p = self.progress
        p.stale = 0 if scores.loss < p.best else p.stale + 1
        p.best = min(p.best, scores.loss)
        self.log({"validation_loss": scores.loss, "validation_accuracy": scores.accuracy})
        if self.rank == 0:
            bar.write(
                f"epoch {p.epoch}, step {p.step}: validation perplexity {scores.perplexity:.2f}, "
                f"accuracy {scores.accuracy:.1%}"
            )

    # ---- what is kept

    def checkpoints(self) -> list[Path]:
        """The run's whole checkpoints, oldest first."""
        return sorted((self.out / "checkpoints").glob("step-*"))

    def newest(self) -> Path | None:
        """The newest whole checkpoint, if there is one."""
        return (self.checkpoints() or [None])[-1]

    def save(self) -> Path:
        """Write a checkpoint, make its weights the run's, drop the oldest; returns the run's folder."""
        if self.rank == 0:
            with creating_folder(self.out / "checkpoints" / f"step-{self.progress.step:08d}") as folder:
                save_model(folder, self.model, *self.tokenizers)
                write_tensors(folder / "optimizer.safetensors", self.optimizer_state())
                write_json(folder / "progress.json", dataclasses.asdict(self.progress))
            save_model(self.out, self.model, *self.tokenizers)
            for old in self.checkpoints()[: -self.config.keep]:
                shutil.rmtree(old)
        return self.out

    def optimizer_state(self) -> dict[str, Tensor]:
        """Adam's step and moments by the name of the parameter."""
        return {
            f"{name}.{key}": value
            for name, parameter in weights(self.model).items()
            for key, value in self.optimizer.state[parameter].items()
        }

    def resume(self) -> None:
        """Go on from the newest checkpoint. Raises ValueError if it does not fit the model."""
        folder = self.newest()
        if folder is None:
            self.start_log()
            return
        load_weights(self.model, read_tensors(folder / "model.safetensors"), folder)
        for key, value in read_tensors(folder / "optimizer.safetensors").items():
            name, _, part = key.rpartition(".")
            parameter = weights(self.model)[name]
            # Adam keeps its step count on the CPU, unless it is fused on a GPU.
            self.optimizer.state[parameter][part] = value.to(self.device)
        self.progress = Progress(**read_json(folder / "progress.json"))
        if self.rank == 0:
            os.truncate(self.out / "log.jsonl", self.progress.log_bytes)

    def start_log(self) -> None:
        """Begin an empty log. Raises ValueError where the folder already holds a run."""
        if self.checkpoints():
            raise ValueError(f"{self.out} already holds a run; resume it, or choose another folder")
        if self.rank == 0:
            self.out.mkdir(parents=True, exist_ok=True)
            (self.out / "log.jsonl").write_text("", encoding="utf-8")

    def log(self, record: dict[str, float]) -> None:
        """Add a line to the log."""
        if self.rank != 0:
            return
        p = self.progress
        line = json.dumps({"step": p.step, "epoch": p.epoch, **record, "seconds": round(p.seconds, 3)}) + "\n"
        with (self.out / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
            p.log_bytes = file.tell()

    def finish(self) -> Path:
        """Make the mean of the newest checkpoints the run's weights, if the settings ask for it."""
        newest = self.checkpoints()[-self.config.average :] if self.config.average > 1 else []
        if newest and self.rank == 0:
            load_weights(self.model, average_checkpoints(newest), self.out)
            save_model(self.out, self.model, *self.tokenizers)
        return self.out

    def bar(self) -> tqdm:
        """The progress bar, on the first process, where there is a terminal."""
        quiet = True if self.rank else None
        return tqdm(initial=self.progress.step, unit="update", disable=quiet, smoothing=0.05)
