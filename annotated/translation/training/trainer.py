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
from annotated.translation.training.averaging import save_average
from annotated.translation.training.checkpoint import broadcast_state, restore
from annotated.translation.training.config import TrainingConfig
from annotated.translation.training.progress import Progress
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
        record = record or {}
        self.device = find_device(device)
        self.model = model.to(self.device)
        self.tokenizers = tokenizers
        self.batches = batches
        self.validation = None
        if validation is not None:
            text = model_folder.TrainedText.of(record)
            self.validation = Validation(validation, tokenizers[1], text, config.metric)
        self.config = config
        self.settings = record | dataclasses.asdict(config)
        self.run_folder = out if isinstance(out, RunFolder) else RunFolder(out)
        self.rank, self.world = processes.rank_and_world()
        self.progress = Progress(update_batches=config.accumulate * self.world, fingerprint=fingerprint)
        betas = (config.beta_1, config.beta_2)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=betas, eps=config.eps, fused=True)
        self.summed_loss = SummedLoss(model, config.smoothing, tokenizers[1].pad)
        if config.compile:
            self.summed_loss.compile()
        is_variant = model.config.variant != "paper"
        self.parallel_loss: Any = processes.data_parallel(self.summed_loss, variant=is_variant)

    def fit(self, resume: bool = False) -> Path:
        """Train to the end, or until Ctrl-C; returns the run's folder.

        With `resume`, go on from the newest checkpoint, or start where there is none. Raises ValueError
        where `out` holds another run, TrainingError where the loss is not finite, before weights change.
        """
        with default_torch_state(self.device), self.run_folder.open(resume):
            self.run(resume)
        return self.run_folder.path

    def run(self, resume: bool) -> None:
        """Train in the run's folder, which is open."""
        self.begin(resume)
        config, progress = self.config, self.progress
        self.first_step, self.first_second = progress.step, time.perf_counter()
        # With None, a bar is shown on a terminal or in a notebook. Unsmoothed, it agrees with `minutes_left`.
        options: dict[str, Any] = {"unit": "update", "smoothing": 0, "disable": silent() or None}
        bar = tqdm(initial=progress.step, total=progress.last_step(config), **options)
        with bar, processes.stop_on_interrupt() as stop_asked:
            if self.validation and progress.validation_due(config):  # the run was killed before it validated
                self.validate()
            stop = False
            while not (stop or progress.finished(config)):
                stop = self.train_epoch(stop_asked, bar)
        if progress.finished(config):
            save_average(self.run_folder, self.model, self.tokenizers, self.validation, config)

    # ---- before the first update

    def begin(self, resume: bool) -> None:
        """Begin a new run, or restore the newest checkpoint; give the state to all processes."""
        fingerprint = self.progress.fingerprint
        with raise_on_all_ranks():
            if self.rank == 0:
                self.restore_or_rehearse(resume)
        if self.world > 1:
            self.config, self.progress = broadcast((self.config, self.progress))
            with raise_on_all_ranks("; copy the text of the first node"):
                if self.progress.fingerprint != fingerprint:
                    raise ValueError("the text to train or validate on differs from that of the first node")
            broadcast_state(self.model, self.optimizer)

    def restore_or_rehearse(self, resume: bool) -> None:
        """Restore the newest checkpoint; a new model, which has never been saved, is saved for a try."""
        checkpoint = self.run_folder.newest() if resume else None
        if resume and checkpoint is None:
            print_message(f"there is no checkpoint in {self.run_folder.path}: a new run begins")
        self.progress.batches_in_epoch = len(self.batches)
        requested_warmup = self.config.warmup
        self.set_warmup(checkpoint)
        if checkpoint is not None:
            parts = self.model, self.optimizer, self.progress, self.settings
            self.progress = restore(checkpoint, *parts, self.world)
        # A run that takes over these settings may be of another length.
        self.run_folder.prepare({**self.settings, "warmup": requested_warmup}, self.progress)
        if checkpoint is None:
            rehearse(self.run_folder.path, self.model, *self.tokenizers)

    def set_warmup(self, checkpoint: Path | None) -> None:
        """Set the warm-up as it was asked for, else as the run began, else by the length of the run."""
        last = self.progress.last_step(self.config)
        warmup = self.config.warmup_in(last)
        if checkpoint is not None and not self.config.warmup:
            warmup = model_folder.training_settings(checkpoint).get("warmup", warmup)
        if warmup > last:
            advice = "the rate never comes to its peak; give a smaller warmup, or none"
            print_message(f"the warm-up of {warmup:,} updates ends after the run of {last:,}: {advice}")
        self.config = dataclasses.replace(self.config, warmup=warmup)
        self.settings["warmup"] = warmup

    # ---- updates

    def train_epoch(self, stop_asked: Callable[[], bool], bar: tqdm) -> bool:
        """Train to the end of the current epoch or of the run, with checkpoints; returns whether to stop."""
        config, progress = self.config, self.progress
        with_rdrop = progress.epoch + 1 >= config.rdrop_from
        self.summed_loss.rdrop_weight = config.rdrop_weight if with_rdrop else 0.0
        plan = self.batches.plan(progress.epoch)
        with raise_on_all_ranks():
            progress.begin_epoch(len(plan))
        for start in range(progress.batches, len(plan), progress.update_batches):
            stop = self.update(plan[start : start + progress.update_batches], stop_asked, bar)
            epoch_ends = progress.batches == len(plan)
            if epoch_ends:
                progress.epoch += 1
                progress.batches = 0
            due = epoch_ends or (config.save_every > 0 and progress.step % config.save_every == 0)
            progress.off_schedule = not due
            if due or stop or progress.finished(config):
                with raise_on_all_ranks():
                    if self.rank == 0:
                        state = self.model, self.tokenizers, self.optimizer, progress, self.settings
                        self.run_folder.save(*state)
            if self.validation and progress.validation_due(config):
                self.validate()
            if stop or progress.finished(config):
                return stop
        return False

    def update(self, group: list[list[int]], stop_asked: Callable[[], bool], bar: tqdm) -> bool:
        """Update the weights by the mean loss a token of a group of batches; returns whether to stop."""
        started = time.perf_counter()
        progress = self.progress
        own_batches = group[self.rank :: self.world]
        weight = 1.0 if own_batches else 0.0  # every process must take part, even if only with another's
        batches = [self.batches.collate(indices) for indices in own_batches or group[:1]]
        self.model.train()
        loss = ntokens = 0.0
        for number, batch in enumerate(batches):
            torch.manual_seed(mixed_seed(self.config.seed, progress.step, self.rank + number * self.world))
            loss += self.backward(batch, weight, last=number == len(batches) - 1)
            ntokens += batch.ntokens * weight
        loss, ntokens, stop = processes.all_reduce([loss, ntokens, stop_asked()], self.device)
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad *= self.world / ntokens  # DistributedDataParallel averages over processes
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip or math.inf)
        if not (math.isfinite(loss) and norm.isfinite()):
            where = f"at step {progress.step + 1}"
            raise TrainingError(f"the loss or its gradient is not finite {where}; {ADVICE}")
        progress.count_update(loss, int(ntokens))
        self.optimizer.param_groups[0]["lr"] = self.rate()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        progress.seconds += time.perf_counter() - started
        self.report(loss / ntokens, bar)
        return stop > 0

    def backward(self, batch: Batch, weight: float, last: bool) -> float:
        """Add the gradient of a batch's summed loss times `weight`; returns that loss."""
        batch.to(self.device)
        # Processes add up their gradients at the last batch of an update.
        local = nullcontext() if last or self.world == 1 else self.parallel_loss.no_sync()
        with local, compute_context(self.device, self.config.precision):
            loss = self.parallel_loss(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask, batch.tgt_y)
            (loss * weight).backward()
        return loss.item() * weight

    def rate(self) -> float:
        """Return the learning rate of the latest update (equation 3)."""
        width, warmup = self.model.config.d_model, self.config.warmup
        factor = self.config.learning_rate * math.sqrt(width * warmup)  # then the peak is the learning rate
        return rate(self.progress.step, width, factor, warmup)

    def report(self, loss: float, bar: tqdm) -> None:
        """Move the bar; every `log_every` updates and at the end of an epoch, log the mean loss."""
        progress = self.progress
        pace = progress.total_tokens / progress.seconds
        bar.set_postfix_str(f"loss={loss:.3f}, tokens_per_s={pace:,.0f}", refresh=False)
        bar.total = progress.last_step(self.config)
        bar.update(1)
        if progress.step % self.config.log_every == 0 or progress.batches == progress.batches_in_epoch:
            if self.rank == 0:
                self.run_folder.log({"loss": progress.loss / progress.tokens, "rate": self.rate()}, progress)
            progress.loss = 0.0
            progress.tokens = 0

    # ---- validation

    def validate(self) -> None:
        """Score the validation data, and write the loss into the newest checkpoint."""
        assert self.validation is not None
        config, progress = self.config, self.progress
        scores = self.validation.score(self.model)
        if not math.isfinite(scores.loss):
            raise TrainingError(f"the validation loss is not finite after step {progress.step}; {ADVICE}")
        logged = {"validation_loss": scores.loss, "validation_accuracy": scores.accuracy}
        message = f"validation cross-entropy {scores.loss:.3f}, accuracy {scores.accuracy:.1%}"
        metric = self.validation.metric
        value = None if metric else scores.loss
        is_last = progress.step >= progress.last_step(config)
        if metric and (is_last or progress.epoch % config.metric_every == 0):
            score = self.validation.measure(self.model)
            value = logged[f"validation_{config.metric}"] = score.value
            message += f", greedy {score.name} {score.value:.1f}"
            if value == (100 if metric.lower_is_better else 0) and scores.accuracy > 0.9:
                message += ", which does not fit the accuracy: another metric may suit this text"
        progress.validation_loss = scores.loss
        # A score counts at the end of an epoch; a run that ends within one may yet go on.
        progress.count_score(value, config.metric, epoch_ends=progress.batches == 0)
        if self.rank == 0:
            self.run_folder.log(logged, progress)
            self.run_folder.record_validation(progress, self.settings)
            left = f"; about {minutes:,.0f} min left" if (minutes := self.minutes_left()) > 0.5 else ""
            print_message(f"epoch {progress.current_epoch}, step {progress.step}: {message}{left}")
            print_message(f"  {self.validation.example(self.model, progress.epoch, self.tokenizers[0])}")

    def minutes_left(self) -> float:
        """Return how long the rest takes at the pace so far, validation and saving counted."""
        done = self.progress.step - self.first_step
        left = self.progress.last_step(self.config) - self.progress.step
        minutes = (time.perf_counter() - self.first_second) / 60
        return minutes / done * left if done else 0.0
