"""The position of a run, which its checkpoints hold."""

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from annotated.metrics import METRICS
from annotated.translation.files import read_json, settings_from_json
from annotated.translation.training.config import TrainingConfig

PROGRESS = "progress.json"  # name of the file that holds a run's position, in a checkpoint


@dataclass
class Progress:
    """The position of a run: all that a checkpoint must hold besides weights and the optimizer's state."""

    step: int = 0  # updates made
    epoch: int = 0  # the current epoch, from 0
    batches: int = 0  # batches of the epoch that were trained on
    batches_in_epoch: int = 0  # batches in the epoch; at its start, those in the previous one
    update_batches: int = 1  # batches in an update, of all processes
    fingerprint: str = ""  # checksum of the text to train and validate on; "" is unknown
    seconds: float = 0.0  # time spent on updates, interruptions not counted
    loss: float = 0.0  # sum of the loss since the last line of the log
    tokens: int = 0  # target tokens since the last line of the log
    total_tokens: int = 0  # target tokens since the start
    validation_loss: float | None = None  # loss of exactly these weights, if they were validated
    off_schedule: bool = False  # saved because the run stopped here, not because a checkpoint was due
    metric: str = "loss"  # name of the metric that gives the scores
    score: float | None = None  # score of exactly these weights, if they were scored
    best: float | None = None  # best score at the end of an epoch
    stale: int = 0  # epochs scored since the best one

    @classmethod
    def load(cls, checkpoint: Path) -> "Progress":
        """Read the position of a checkpoint. Raises ValueError for one that no version of annotated wrote."""
        path = checkpoint / PROGRESS
        progress = settings_from_json(cls, read_json(path), path)
        for field in fields(cls):
            value = getattr(progress, field.name)
            kind = cast(Any, field.type)
            fits = isinstance(value, kind | int if isinstance(0.5, kind) else kind)
            if fits and kind is not str:
                low = int(field.name == "update_batches")
                fits = isinstance(value, bool) == (kind is bool) and low <= (value or 0) < 2**63
            if not fits:
                raise ValueError(f"{path}: {field.name} cannot be {value!r}")
        return progress

    @property
    def current_epoch(self) -> int:
        """The epoch of the latest update, counted from 1."""
        return self.epoch + (self.batches > 0)

    def finished(self, config: TrainingConfig) -> bool:
        """Return whether the run has come to its end, perhaps by early stopping."""
        out_of_patience = self.metric == config.metric and 0 < config.patience <= self.stale
        return self.step >= config.max_steps or self.epoch >= config.epochs or out_of_patience

    def validation_due(self, config: TrainingConfig) -> bool:
        """Return whether these weights end an epoch or the run, and have yet to be validated."""
        ends = (self.step > 0 and self.batches == 0) or self.step >= config.max_steps
        return ends and self.validation_loss is None

    def last_step(self, config: TrainingConfig) -> int:
        """Compute the update that ends the run, unless patience ends it earlier."""
        done = math.ceil(self.batches / self.update_batches)
        whole = math.ceil(self.batches_in_epoch / self.update_batches)
        return min(config.max_steps, self.step - done + whole * (config.epochs - self.epoch))

    def begin_epoch(self, batches: int) -> None:
        """Set the number of batches of the current epoch. Raises ValueError where it changed in its midst."""
        unchanged = batches == self.batches_in_epoch and self.batches < batches
        if self.batches and not unchanged:
            place = f"batch {self.batches:,} of an epoch of {self.batches_in_epoch:,}"
            advice = "resume it with the data of its beginning"
            raise ValueError(f"the run is at {place}, which now has {batches:,}; {advice}")
        self.batches_in_epoch = batches

    def count_update(self, loss: float, ntokens: int) -> None:
        """Count an update, by the summed loss of so many target tokens."""
        self.step += 1
        self.batches = min(self.batches + self.update_batches, self.batches_in_epoch)
        self.validation_loss = self.score = None
        self.loss += loss
        self.tokens += ntokens
        self.total_tokens += ntokens

    def count_score(self, score: float | None, metric: str, epoch_ends: bool) -> None:
        """Keep the score, if there is one; at the end of an epoch, count it. Another metric begins anew."""
        if metric != self.metric:
            self.metric, self.best, self.stale = metric, None, 0
        self.score = score
        if epoch_ends and score is not None:
            better = self.best is None or is_better(score, self.best, metric)
            self.stale = 0 if better else self.stale + 1
            self.best = score if better else self.best


def is_better(score: float, other: float, metric: str) -> bool:
    """Tell whether a score by this metric is better than another; NaN is not."""
    return score < other if lower_is_better(metric) else score > other


def lower_is_better(metric: str) -> bool:
    """Tell whether a lower score by a metric is better, as a lower loss is."""
    return metric == "loss" or METRICS[metric]().lower_is_better
