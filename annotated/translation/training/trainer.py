"""The training loop of long runs: checkpoints that survive a kill, early stopping, several processes.

Each batch draws its dropout from (seed, step, number in the update), so a run that was killed and resumed
ends with the same weights, bit for bit, as one that was not. With another number of processes it makes the
same updates, equal up to the order of additions.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm.auto import tqdm

from annotated.batches import Batch
from annotated.schedule import rate
from annotated.transformer.model import EncoderDecoder
from annotated.translation import processes
from annotated.translation.data.token_batches import TokenBatches, mixed_seed
from annotated.translation.devices import default_torch_state, find_device
from annotated.translation.messages import print_message, silent
from annotated.translation.processes import broadcast, raise_on_all_ranks
from annotated.translation.storage import model_folder
from annotated.translation.tokenizers import Tokenizer
from annotated.translation.training.checkpoint import average_checkpoints, broadcast_state, restore
from annotated.translation.training.config import Progress, TrainingConfig, is_better
from annotated.translation.training.run_folder import RunFolder
from annotated.translation.training.starting_model import rehearse
from annotated.translation.training.summed_loss import SummedLoss, compute_context
from annotated.translation.training.validation import Validation

ADVICE = "begin another run, with a lower learning rate or with clip: resumed, this one would end here again"


class TrainingError(RuntimeError):
    """Training cannot go on, because the loss or its gradient is not finite."""


class Trainer:
    """Train `model` on `batches`, into the run folder `out`.

    Under `torchrun`, each process takes its share of every update, and only the first reads and writes `out`.

    Args:
        model: as `make_model` builds it, which is moved to the `device`.
        tokenizers: of source and target.
        batches, validation: what to train on, and what to validate on after each epoch.
        config, out: settings and folder of the run (see `RunFolder`).
        device: by default the CPU, as where a model is loaded: what you hold stays with your tensors. Only
            `annotated.train`, which makes the model itself, takes the best device that there is.
        record: what training.json says besides `config`, such as the name of the corpus. What it tells of the
            text (see `TrainedText`), validation goes by.
        fingerprint: checksum of the text. A resumed run must have the same, the same settings and record.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        tokenizers: Sequence[Tokenizer],
        batches: TokenBatches,
        validation: TokenBatches | None,
        config: TrainingConfig,
        out: str | Path | RunFolder,
        device: str | torch.device = "cpu",
        record: dict[str, object] | None = None,
        fingerprint: str = "",
    ):
        if validation is None:
            config.check_without_validation()
        model_folder.check_has_settings(model)
        self.device = find_device(device)
        self.model, self.tokenizers, self.batches = model.to(self.device), tokenizers, batches
        record, self.validation = record or {}, None
        if validation is not None:
            text = model_folder.TrainedText.of(record)
            self.validation = Validation(validation, tokenizers[1], text, config.metric)
        self.out = out if isinstance(out, RunFolder) else RunFolder(out)
        self.config, self.settings = config, {**record, **dataclasses.asdict(config)}
        self.rank, self.world = processes.rank_and_world()
        self.progress = Progress(update_batches=config.accumulate * self.world, fingerprint=fingerprint)
        betas = (config.beta_1, config.beta_2)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=betas, eps=config.eps, fused=True)
        self.summed = SummedLoss(model, config.smoothing, tokenizers[1].pad)
        if config.compile:
            self.summed.compile()
        self.parallel: Any = processes.data_parallel(self.summed, variant=model.config.variant != "paper")

    def fit(self, resume: bool = False) -> Path:
        """Train to the end, or until Ctrl-C; returns the run's folder.

        With `resume`, go on from the newest checkpoint, or start where there is none. Raises ValueError
        where `out` holds another run, TrainingError where the loss is not finite, before weights change.
        """
        with default_torch_state(self.device), self.out.open(resume):
            self.run(resume)
        return self.out.path

    def run(self, resume: bool) -> None:
        """Train in the run's folder, which is open."""
        self.begin(resume)
        c, p = self.config, self.progress
        self.first_step, self.first_second = p.step, time.perf_counter()
        # With None, a bar is shown on a terminal or in a notebook. Unsmoothed, it agrees with `minutes_left`.
        bar = tqdm(initial=p.step, total=p.last_step(c), unit="update", smoothing=0, disable=silent() or None)
        with bar, processes.stop_on_interrupt() as stop_asked:
            if self.validation and p.validation_due(c):  # it was killed between checkpoint and validation
                self.validate()
            stop = False
            while not (stop or p.finished(c)):
                stop = self.train_epoch(stop_asked, bar)
        if p.finished(c):
            self.average()

    # ---- before the first update

    def begin(self, resume: bool) -> None:
        """Begin a new run, or restore the newest checkpoint; give the state to all processes."""
        fingerprint = self.progress.fingerprint
        with raise_on_all_ranks():
            if self.rank == 0:
                checkpoint = self.out.newest() if resume else None
                if resume and checkpoint is None:
                    print_message(f"there is no checkpoint in {self.out.path}: a new run begins")
                self.progress.batches_in_epoch = len(self.batches)
                asked, last = self.config.warmup, self.progress.last_step(self.config)
                warmup = self.config.warmup_in(last)
                if checkpoint is not None and not asked:
                    warmup = model_folder.training_settings(checkpoint).get("warmup", warmup)
                if warmup > last:
                    text = "the rate never comes to its peak; give a smaller warmup, or none"
                    print_message(f"the warm-up of {warmup:,} updates ends after the run of {last:,}: {text}")
                self.config = dataclasses.replace(self.config, warmup=warmup)
                self.settings["warmup"] = warmup
                if checkpoint is not None:
                    parts = self.model, self.optimizer, self.progress, self.settings
                    self.progress = restore(checkpoint, *parts, self.world)
                # As it was asked for: a run that takes over these settings may be of another length.
                self.out.prepare({**self.settings, "warmup": asked}, self.progress)
                if checkpoint is None:  # else that was saved and has come back
                    rehearse(self.out.path, self.model, *self.tokenizers)
        if self.world > 1:
            self.config, self.progress = broadcast((self.config, self.progress))
            with raise_on_all_ranks("; copy the text of the first node"):
                if self.progress.fingerprint != fingerprint:
                    raise ValueError("the text to train or validate on differs from that of the first node")
            broadcast_state(self.model, self.optimizer)

    # ---- updates

    def train_epoch(self, stop_asked: Callable[[], bool], bar: tqdm) -> bool:
        """Train to the end of the current epoch or of the run, with checkpoints; returns whether to stop."""
        c, p = self.config, self.progress
        self.summed.rdrop_weight = c.rdrop_weight if p.epoch + 1 >= c.rdrop_from else 0.0
        plan = self.batches.plan(p.epoch)
        with raise_on_all_ranks():
            p.begin_epoch(len(plan))
        for start in range(p.batches, len(plan), p.update_batches):
            stop = self.update(plan[start : start + p.update_batches], stop_asked, bar)
            epoch_ends = p.batches == len(plan)
            if epoch_ends:
                p.epoch, p.batches = p.epoch + 1, 0
            due = epoch_ends or (c.save_every > 0 and p.step % c.save_every == 0)
            p.off_schedule = not due
            if due or stop or p.finished(c):
                with raise_on_all_ranks():
                    if self.rank == 0:
                        self.out.save(self.model, self.tokenizers, self.optimizer, p, self.settings)
            if self.validation and p.validation_due(c):
                self.validate()
            if stop or p.finished(c):
                return stop
        return False

    def update(self, group: list[list[int]], stop_asked: Callable[[], bool], bar: tqdm) -> bool:
        """Update the weights by the mean loss a token of a group of batches; returns whether to stop."""
        started = time.perf_counter()
        c, p = self.config, self.progress
        mine = group[self.rank :: self.world]  # this process's batches
        weight = 1.0 if mine else 0.0  # every process must take part
        share = [self.batches.collate(indices) for indices in mine or group[:1]]
        self.model.train()
        loss = ntokens = 0.0
        for number, batch in enumerate(share):
            torch.manual_seed(mixed_seed(c.seed, p.step, self.rank + number * self.world))
            loss += self.backward(batch, weight, last=number == len(share) - 1)
            ntokens += batch.ntokens * weight
        loss, ntokens, stop = processes.all_reduce([loss, ntokens, stop_asked()], self.device)
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad *= self.world / ntokens  # DistributedDataParallel averages over processes
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), c.clip or math.inf)
        if not (math.isfinite(loss) and norm.isfinite()):
            raise TrainingError(f"the loss or its gradient is not finite at step {p.step + 1}; {ADVICE}")
        p.count_update(loss, int(ntokens))
        self.optimizer.param_groups[0]["lr"] = self.rate()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        p.seconds += time.perf_counter() - started
        self.report(loss / ntokens, bar)
        return stop > 0

    def backward(self, batch: Batch, weight: float, last: bool) -> float:
        """Add the gradient of a batch's summed loss times `weight`; returns that loss."""
        batch.to(self.device)
        # Processes add up their gradients at the last batch of an update.
        local = nullcontext() if last or self.world == 1 else self.parallel.no_sync()
        with local, compute_context(self.device, self.config.precision):
            loss = self.parallel(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask, batch.tgt_y) * weight
            loss.backward()
        return loss.item()

    def rate(self) -> float:
        """Return the learning rate of the latest update (equation 3)."""
        c, width = self.config, self.model.config.d_model
        factor = c.learning_rate * math.sqrt(width * c.warmup)  # so that the peak is the learning rate
        return rate(self.progress.step, width, factor, c.warmup)

    def report(self, loss: float, bar: tqdm) -> None:
        """Move the bar; every `log_every` updates and at the end of an epoch, log the mean loss."""
        p = self.progress
        bar.set_postfix_str(f"loss={loss:.3f}, tokens_per_s={p.total_tokens / p.seconds:,.0f}", refresh=False)
        bar.total = p.last_step(self.config)
        bar.update(1)
        if p.step % self.config.log_every == 0 or p.batches == p.batches_in_epoch:
            if self.rank == 0:
                self.out.log({"loss": p.loss / p.tokens, "rate": self.rate(), "tokens": p.total_tokens}, p)
            p.loss, p.tokens = 0.0, 0

    # ---- validation

    def validate(self) -> None:
        """Score the validation data, and write the loss into the newest checkpoint."""
        assert self.validation is not None
        c, p, scores = self.config, self.progress, self.validation.score(self.model)
        if not math.isfinite(scores.loss):
            raise TrainingError(f"the validation loss is not finite after step {p.step}; {ADVICE}")
        logged = {"validation_loss": scores.loss, "validation_accuracy": scores.accuracy}
        line = f"validation cross-entropy {scores.loss:.3f}, accuracy {scores.accuracy:.1%}"
        metric = self.validation.metric
        chosen_by = None if metric else scores.loss
        if metric and (p.epoch % c.metric_every == 0 or p.step >= p.last_step(c)):
            score = self.validation.measure(self.model)
            chosen_by = logged[f"validation_{c.metric}"] = score.value
            line += f", greedy {score.name} {score.value:.1f}"
            if chosen_by == (100 if metric.lower_is_better else 0) and scores.accuracy > 0.9:
                line += ", which does not fit the accuracy: another metric may suit this text"
        p.validation_loss = scores.loss
        # At the end of an epoch, not of a run that may yet go on from here.
        p.count_score(chosen_by, c.metric, epoch_ends=p.batches == 0)
        if self.rank == 0:
            self.out.log({**logged, "tokens": p.total_tokens}, p)
            self.out.record_validation(p, self.settings)
            left = f"; about {minutes:,.0f} min left" if (minutes := self.minutes_left()) > 0.5 else ""
            print_message(f"epoch {p.current_epoch}, step {p.step}: {line}{left}")
            print_message(f"  {self.validation.example(self.model, p.epoch, self.tokenizers[0])}")

    def minutes_left(self) -> float:
        """Return how long the rest takes at the pace so far, validation and saving counted."""
        step, last = self.progress.step, self.progress.last_step(self.config)
        done, minutes = step - self.first_step, (time.perf_counter() - self.first_second) / 60
        return minutes / done * (last - step) if done else 0.0

    # ---- the end

    def average(self) -> None:
        """Save the mean of the checkpoints that the settings name, unless the newest or best is better."""
        c, validation = self.config, self.validation
        folders: list[Path] = []
        with raise_on_all_ranks():
            if self.rank == 0:
                folders = self.out.select_checkpoints(max(1, c.average), self.settings, off_schedule=True)
                folders = folders or self.out.checkpoints()[-1:]
        folders = broadcast(folders)
        if validation is None or len(folders) == 1:
            self.load_mean(folders)
        else:
            mean = f"the mean of the {c.average_of} {len(folders)} checkpoints"
            single = "the newest checkpoint" if c.average_of == "last" else "the best checkpoint"
            self.load_mean(folders[-1:])
            of_one = validation.metric_value(self.model)
            self.load_mean(folders)
            of_mean = validation.metric_value(self.model)
            print_message(f"validation {c.metric} {of_mean:.4f} of {mean}, {of_one:.4f} of {single}")
            chosen = mean if of_mean == of_one or is_better(of_mean, of_one, c.metric) else single
            if chosen == single:
                self.load_mean(folders[-1:])
            print_message(f"the model is {chosen}")
        if self.rank == 0:
            model_folder.write_model(self.out.path, self.model, *self.tokenizers)

    def load_mean(self, folders: Sequence[Path]) -> None:
        """Load the mean of checkpoints, which the first process reads, in all processes."""
        with raise_on_all_ranks():
            if self.rank == 0:
                self.model.load_state_dict(average_checkpoints(folders))
        broadcast_state(self.model)
