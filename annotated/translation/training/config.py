"""The settings of a long training run, and its position."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, cast, get_args

from annotated.settings import check_fields, explained
from annotated.transformer.config import TransformerConfig
from annotated.translation.files import read_json, settings_from_json

Preset = Literal["tiny", "base", "big"]
PRESETS = ("auto", *get_args(Preset))  # auto chooses, by the text and the time
FurtherMetric = Literal["wer", "cer", "exact"]
MetricName = Literal["loss", "bleu", "chrf", FurtherMetric]

CAN_BE_0 = ("warmup", "patience", "save_every", "average", "seed")


@explained
@dataclass(frozen=True)
class TrainingConfig:
    """The settings of a training run. The defaults are the paper's (section 5).

    Raises ValueError for a value out of range.
    """

    epochs: int = 100  # times through the training data at most
    max_steps: int = 100_000  # updates at most
    max_tokens: int = 4096  # tokens in a batch at most, padding counted, on its longer side
    accumulate: int = 1  # gradient accumulation steps: batches in an update
    max_sentence: int = 256  # tokens in a sentence at most; longer pairs are left out, and counted
    learning_rate: float = 6.99e-4  # peak of the rate (equation 3); in the paper 1 / sqrt(512 * 4000)
    warmup: int = 0  # updates until that peak; 0 takes a quarter of the run, 4000 at most
    beta_1: float = 0.9  # Adam's decay of the mean gradient
    beta_2: float = 0.98  # Adam's decay of the mean squared gradient
    eps: float = 1e-9  # Adam's epsilon
    clip: float = 0.0  # largest norm of the gradient, above which it is scaled down; 0 never scales
    smoothing: float = 0.1  # label smoothing
    rdrop_weight: float = 0.0  # weight of R-Drop, the divergence of two passes; 0 makes one pass
    rdrop_from: int = 1  # epoch, counted from 1, in which R-Drop begins
    precision: Literal["float32", "bf16"] = "float32"  # bf16: matrix products in half precision
    compile: bool = False  # torch.compile, meant for a GPU: a CPU compiles for minutes, which did not pay
    patience: int = 0  # scored epochs without a better one before training stops; 0 never stops
    keep: int = 5  # checkpoints kept, besides the newest; no fewer than are averaged
    average: int = 5  # checkpoints averaged at the end (section 6.1); 0 or 1 takes one as it is
    average_of: Literal["last", "best"] = "last"  # checkpoints kept and averaged: newest, or best validated
    save_every: int = 0  # updates between checkpoints; 0 saves at the end of each epoch
    log_every: int = 50  # updates between lines of the log
    metric: MetricName = "loss"  # score of greedy translations, or the loss, that patience and "best" go by
    metric_every: int = 1  # epochs between scores by that metric
    seed: int = 0  # random seed of initial weights, order of the data and dropout

    def __post_init__(self) -> None:
        check_fields(self, CAN_BE_0, unbounded=("clip", "rdrop_weight"))
        for name in ("learning_rate", "eps"):
            if getattr(self, name) == 0:
                raise ValueError(f"{name} must be above 0")
        for name, needed in (("rdrop_from", "rdrop_weight"), ("metric_every", "metric")):
            if getattr(self, name) != 1 and getattr(self, needed) in (0, "loss"):
                raise ValueError(f"{name} has no effect without {needed}")
        if self.rdrop_weight and self.rdrop_from > self.epochs:
            raise ValueError(f"rdrop_from has no effect beyond the {self.epochs} epochs")

    @classmethod
    def base(cls, **settings: Any) -> "TrainingConfig":
        """The paper's base model: 100,000 updates, the last 5 checkpoints averaged."""
        return cls(**settings)

    @classmethod
    def big(cls, **settings: Any) -> "TrainingConfig":
        """The paper's big model: 300,000 updates, the last 20 checkpoints averaged."""
        paper = {"max_steps": 300_000, "learning_rate": 4.94e-4, "keep": 20, "average": 20}
        return cls(**{**paper, **settings})

    @classmethod
    def tiny(cls, **settings: Any) -> "TrainingConfig":
        """For a small corpus on a laptop: a higher rate, for a narrower model."""
        return cls(**{"epochs": 30, "learning_rate": 0.002, **settings})

    def check_without_validation(self) -> None:
        """Raise ValueError where a setting goes by a validation score, for a run that has none."""
        for name in ("average_of", "patience", "metric"):
            if (value := getattr(self, name)) != getattr(TrainingConfig, name):
                raise ValueError(f"{name}={value!r} needs validation data, and there is none")

    def warmup_in(self, updates: int) -> int:
        """Compute the updates until the peak in a run of so many: a quarter, or the paper's 4,000."""
        return self.warmup or max(1, min(4000, updates // 4))


# Settings that say what text a run reads, and those of them that are files on this machine.
PATHS = ("src", "tgt", "val_src", "val_tgt")
TEXT_SETTINGS = ("corpus", "pair", "tokenized", *PATHS, "columns")

# What a resumed run may change: when it ends, and what is kept of it. All else decides the weights.
CHANGEABLE = (
    "epochs", "max_steps", "patience", "keep", "average", "average_of", "save_every", "log_every", "metric",
    "metric_every", "compile",
)  # fmt: skip


def split_settings(
    preset: str, settings: Mapping[str, Any]
) -> tuple[int | None, dict[str, Any], TrainingConfig]:
    """Split what is given of the settings into vocab, model and training; NumPy's numbers become Python's."""
    given = {name: value for name, value in settings.items() if value is not None}
    plain = {name: value.item() if hasattr(value, "item") else value for name, value in given.items()}
    vocab = plain.pop("vocab", None)
    names = {field.name for field in fields(TransformerConfig)} - {"src_vocab", "tgt_vocab"}
    model_settings = {name: plain.pop(name) for name in [*plain] if name in names}
    of_paper = model_settings.get("variant", "paper") == "paper"
    if "max_len" in model_settings and of_paper and model_settings.get("positions") != "learned":
        raise ValueError("max_len has no effect without positions that are learned, or a variant of your own")
    if unknown := plain.keys() - {field.name for field in fields(TrainingConfig)}:
        raise TypeError(f"train() got an unexpected keyword argument {min(unknown)!r}")
    return vocab, model_settings, getattr(TrainingConfig, preset)(**plain)


# ---- the position

PROGRESS = "progress.json"  # its file in a checkpoint


@dataclass
class Progress:
    """The position of a run: all that a checkpoint must hold besides weights and the optimizer's state."""

    step: int = 0  # updates made
    epoch: int = 0  # the current epoch, from 0
    batches: int = 0  # batches of it that were trained on
    batches_in_epoch: int = 0  # its number of batches; at its start, that of the previous epoch
    update_batches: int = 1  # batches in an update, of all processes
    fingerprint: str = ""  # checksum of the text to train and validate on; "" is unknown
    seconds: float = 0.0  # spent on updates, interruptions not counted
    loss: float = 0.0  # summed since the last line of the log
    tokens: int = 0  # target tokens since then
    total_tokens: int = 0  # target tokens since the start
    validation_loss: float | None = None  # of exactly these weights, if they were validated
    off_schedule: bool = False  # saved because the run stopped here, not because a checkpoint was due
    metric: str = "loss"  # that gives the scores
    score: float | None = None  # of exactly these weights, if they were scored
    best: float | None = None  # score at the end of an epoch
    stale: int = 0  # epochs scored since then

    @classmethod
    def load(cls, checkpoint: Path) -> "Progress":
        """Read the position of a checkpoint. Raises ValueError for one that no version of annotated wrote."""
        path = checkpoint / PROGRESS
        progress = settings_from_json(cls, read_json(path), path)
        for field in fields(cls):
            value, kind = getattr(progress, field.name), cast(Any, field.type)
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
    from annotated.metrics import METRICS  # loads NumPy, and `annotated --help` reads this file

    return metric == "loss" or METRICS[metric]().lower_is_better
