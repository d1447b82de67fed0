"""The settings of a long training run."""

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from annotated.settings import check_fields, explained
from annotated.transformer.config import TransformerConfig

Preset = Literal["tiny", "base", "big"]
PRESETS = ("auto", *get_args(Preset))  # auto chooses, by the text and the time
FurtherMetric = Literal["wer", "cer", "exact"]
MetricName = Literal["loss", "bleu", "chrf", FurtherMetric]


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
        may_be_0 = ("warmup", "patience", "save_every", "average", "seed")
        check_fields(self, may_be_0, unbounded=("clip", "rdrop_weight"))
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


MODEL_FIELDS = {field.name for field in fields(TransformerConfig)} - {"src_vocab", "tgt_vocab"}
TRAINING_FIELDS = {field.name for field in fields(TrainingConfig)}

# Settings that say what text a run reads, and those of them that are files on this machine.
PATHS = ("src", "tgt", "val_src", "val_tgt")
TEXT_SETTINGS = ("corpus", "pair", "tokenized", *PATHS, "columns")

# What a resumed run may change: when it ends, and what is kept of it. All else decides the weights.
CHANGEABLE = (
    "epochs", "max_steps", "patience", "keep", "average", "average_of", "save_every", "log_every", "metric",
    "metric_every", "compile",
)  # fmt: skip
