"""The settings of a run: those that are given, and what the text or the run to resume adds to them."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from annotated.translation.data.pairs import Corpus
from annotated.translation.messages import print_message
from annotated.translation.processes import broadcast, is_first, raise_on_all_ranks
from annotated.translation.storage.model_folder import find_model, training_settings
from annotated.translation.tokenizers import KINDS, SUBWORDS
from annotated.translation.training.auto_settings import choose_settings
from annotated.translation.training.config import MODEL_FIELDS, PRESETS, TRAINING_FIELDS, TrainingConfig


@dataclass(frozen=True)
class RunSettings:
    """The arguments of `train`, and the `settings` it was given: of vocabulary, model and training.

    They are `complete` unless the preset auto has yet to choose further settings.
    """

    preset: str
    minutes: float | None
    init_from: str | None
    tokenizer: str | None
    src_tokenizer: str | None
    tgt_tokenizer: str | None
    keep_equal: bool | None
    settings: dict[str, Any]
    complete: bool

    def __post_init__(self) -> None:
        """Raise ValueError for arguments that contradict each other or are out of range."""
        if self.preset not in PRESETS:
            raise ValueError(f"the preset must be one of {', '.join(PRESETS)}, not {self.preset!r}")
        if self.minutes is not None and self.preset != "auto":
            other = self.preset if self.init_from is None else "init_from"
            advice = f"for {other}, give epochs or max_steps"
            raise ValueError(f"minutes choose the settings of a new model; {advice}")
        minutes = 1 if self.minutes is None else self.minutes
        if type(minutes) not in (int, float) or not 0 < minutes < 2**31:
            raise ValueError(f"minutes must be above 0 and below 2^31, not {minutes!r}")
        if type(vocab := self.settings.get("vocab", 1)) is not int:
            raise ValueError(f"vocab must be a whole number, not {vocab!r}")
        if self.preset == "auto" and self.init_from is not None:
            raise ValueError("the preset auto builds a new model; with init_from, give another")
        for kind in self.kinds:
            if kind not in KINDS:
                raise ValueError(f"the tokenizer must be one of {', '.join(KINDS)}, not {kind!r}")
        if self.tokenizer and self.src_tokenizer and self.tgt_tokenizer:
            raise ValueError(f"tokenizer = {self.tokenizer!r} has no effect: each side has its own")
        paper = self.model.get("variant", "paper") == "paper"
        if "max_len" in self.model and paper and self.model.get("positions") != "learned":
            advice = "without positions that are learned, or a variant of your own"
            raise ValueError(f"max_len has no effect {advice}")
        self.training()  # raises for unknown settings and for values out of range

    @property
    def base(self) -> str:
        """The preset that has the settings which are neither given nor chosen."""
        return "tiny" if self.preset == "auto" else self.preset

    @property
    def kinds(self) -> tuple[str, str]:
        """The units of text of source and target."""
        kind = self.tokenizer or "subwords"
        return self.src_tokenizer or kind, self.tgt_tokenizer or kind

    @property
    def model(self) -> dict[str, Any]:
        """The fields of `TransformerConfig` among the settings."""
        return {name: value for name, value in self.settings.items() if name in MODEL_FIELDS}

    def training(self) -> TrainingConfig:
        """Return the settings of the training. Raises TypeError for an unknown setting."""
        training = {n: value for n, value in self.settings.items() if n != "vocab" and n not in MODEL_FIELDS}
        if unknown := training.keys() - TRAINING_FIELDS:
            raise TypeError(f"train() got an unexpected keyword argument {min(unknown)!r}")
        config: TrainingConfig = getattr(TrainingConfig, self.base)(**training)
        return config

    def record(self) -> dict[str, Any]:
        """Return what training.json says of the run besides its text and the fields of `TrainingConfig`."""
        names = [field.name for field in fields(self) if field.name not in ("settings", "complete")]
        vocab = self.settings.get("vocab")
        if vocab is None and self.init_from is None and self.kinds == ("subwords", "subwords"):
            vocab = SUBWORDS
        return {**{name: getattr(self, name) for name in names}, "vocab": vocab, **self.model}

    def completed_from(self, run: Path) -> "RunSettings":
        """Add what auto chose when the run in this folder began."""
        names = {"vocab"} | MODEL_FIELDS | TRAINING_FIELDS
        saved = training_settings(run).items()
        chosen = {name: value for name, value in saved if name in names and value is not None}
        return replace(self, settings=chosen | self.settings, complete=True)

    def completed_for(self, text: Corpus, device: torch.device) -> "RunSettings":
        """Let auto choose, in the first process for all, by the text and the time."""
        settings = self.settings
        with raise_on_all_ranks():
            if is_first():
                settings, reason = choose_settings(text["train"], self.kinds, self.minutes, settings, device)
                print_message(reason)
        return replace(self, settings=broadcast(settings), complete=True)


def default_preset(own_text: bool, init_from: str | Path | None) -> str:
    """Return auto for text of one's own, unless the model to start from has settings already; else tiny."""
    return "auto" if own_text and init_from is None else "tiny"


def keeps_equal(init_from: str | Path | None, *kinds: str | None) -> bool | None:
    """Decide whether pairs with equal sides are kept: faults in translation, but not in spelling.

    None means that they are left out if they are few.
    """
    if init_from is not None:
        return training_settings(find_model(init_from)).get("keep_equal") or None
    return None if {"chars", "spaces"}.isdisjoint(kinds) else True
