"""The settings of a run: those that are given, and what the text or the run to resume adds to them."""

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from annotated.translation.data.pairs import Corpus
from annotated.translation.messages import print_message
from annotated.translation.processes import broadcast, is_first, raise_on_all_ranks, rank_and_world
from annotated.translation.storage.model_folder import find_model, training_settings
from annotated.translation.tokenizers import KINDS, SUBWORDS
from annotated.translation.training.auto_settings import choose_settings
from annotated.translation.training.checkpoint import check_settings
from annotated.translation.training.config import MODEL_FIELDS, PRESETS, TRAINING_FIELDS, TrainingConfig
from annotated.translation.training.progress import Progress
from annotated.translation.training.starting_model import (
    ModelAndTokenizers,
    Settings,
    load_matching_model,
    new_model,
)


@dataclass
class RunSettings:
    """What a run is asked for; of the settings that are `explicit`, `vocab`, those of model and of training.

    It is `incomplete` until the preset auto has chosen the others.
    """

    preset: str
    minutes: float | None
    init_from: str | None
    tokenizer: str | None
    src_tokenizer: str | None
    tgt_tokenizer: str | None
    keep_equal: bool | None
    explicit: dict[str, Any]

    def __post_init__(self) -> None:
        """Raise ValueError for arguments that contradict each other, or that there are not."""
        if self.preset not in PRESETS:
            raise ValueError(f"the preset must be one of {', '.join(PRESETS)}, not {self.preset!r}")
        if self.minutes is not None and self.preset != "auto":
            other = self.preset if self.init_from is None else "init_from"
            advice = f"for {other}, give epochs or max_steps"
            raise ValueError(f"minutes choose the settings of a new model; {advice}")
        if self.minutes is not None and not 0 < self.minutes < 2**31:
            raise ValueError(f"minutes must be above 0 and below 2^31, not {self.minutes}")
        if self.preset == "auto" and self.init_from is not None:
            raise ValueError("the preset auto builds a new model; with init_from, give another")
        for kind in self.kinds:
            if kind not in KINDS:
                raise ValueError(f"the tokenizer must be one of {', '.join(KINDS)}, not {kind!r}")
        if self.tokenizer and self.src_tokenizer and self.tgt_tokenizer:
            raise ValueError(f"tokenizer = {self.tokenizer!r} has no effect: each side has its own")
        if self.init_from is None and not (self.src_tokenizer and self.tgt_tokenizer):
            self.tokenizer = self.tokenizer or "subwords"
        if self.init_from is not None and Path(self.init_from).expanduser().is_dir():
            self.init_from = str(Path(self.init_from).expanduser().absolute())
        self.incomplete = self.preset == "auto"
        self.base = "tiny" if self.incomplete else self.preset  # it has the values that auto leaves alone
        self.split(self.explicit)

    def split(self, settings: Settings) -> None:
        """Split the settings that are given; the preset has the rest. NumPy's numbers become Python's."""
        given = {name: value for name, value in settings.items() if value is not None}
        self.explicit = {n: value.item() if hasattr(value, "item") else value for n, value in given.items()}
        training = dict(self.explicit)
        self.vocab = training.pop("vocab", None)
        self.model = {name: training.pop(name) for name in self.explicit if name in MODEL_FIELDS}
        paper = self.model.get("variant", "paper") == "paper"
        if "max_len" in self.model and paper and self.model.get("positions") != "learned":
            advice = "without positions that are learned, or a variant of your own"
            raise ValueError(f"max_len has no effect {advice}")
        if unknown := training.keys() - TRAINING_FIELDS:
            raise TypeError(f"train() got an unexpected keyword argument {min(unknown)!r}")
        self.training: TrainingConfig = getattr(TrainingConfig, self.base)(**training)

    @property
    def kinds(self) -> tuple[str, str]:
        """The units of text of source and target."""
        kind = self.tokenizer or "subwords"
        return self.src_tokenizer or kind, self.tgt_tokenizer or kind

    # ---- what completes them

    def complete_from(self, run: Path) -> None:
        """Take what auto chose when the run in this folder began."""
        if self.incomplete:
            self.incomplete = False
            names = {"vocab"} | MODEL_FIELDS | TRAINING_FIELDS
            chosen = {name: value for name, value in training_settings(run).items() if name in names}
            self.split(chosen | self.explicit)

    def complete_for(self, text: Corpus, device: torch.device) -> None:
        """Let auto choose, in the first process for all, by the text and the time."""
        chosen: Settings = {}
        with raise_on_all_ranks():
            if is_first():
                chosen, reason = choose_settings(
                    text["train"], self.kinds, self.minutes, self.explicit, device
                )
                print_message(reason)
        self.incomplete = False
        self.split(broadcast(chosen))

    # ---- what is made of them

    def load_model(self, checkpoint: Path | None, pair: str | None) -> ModelAndTokenizers | None:
        """Load the model of the run to resume, or that of `init_from`; None where a new one is to be built.

        Raises ValueError where its settings or tokenizers are not those that are asked for.
        """
        if checkpoint is not None:
            model = load_matching_model(checkpoint, self.model)
            saved = Progress.load(checkpoint)
            progress = replace(saved, update_batches=self.training.accumulate * rank_and_world()[1])
            requested = {**self.record(), **asdict(self.training), **({"pair": pair} if pair else {})}
            check_settings(checkpoint, saved, requested, progress)
            return model
        if self.init_from is None:
            return None
        folder = find_model(self.init_from)
        trained = training_settings(folder)
        record = self.record()
        for name in ("tokenizer", "src_tokenizer", "tgt_tokenizer", "vocab"):
            if record[name] not in (None, trained.get(name)):
                raise ValueError(f"{folder} keeps its tokenizers: {name} = {record[name]!r} has no effect")
        return load_matching_model(folder, self.model)

    def new_model(self, text: Corpus, cache: str | Path | None) -> ModelAndTokenizers:
        """Build a new model, with tokenizers that learn from the text."""
        return new_model(text, self.base, self.kinds, self.vocab, self.model, cache)

    def record(self) -> Settings:
        """Return what training.json says of the run besides its text and the fields of `TrainingConfig`."""
        arguments = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "explicit"}
        subwords = self.kinds == ("subwords", "subwords") and self.init_from is None
        vocab = SUBWORDS if self.vocab is None and subwords else self.vocab
        return {**arguments, "vocab": vocab, **self.model}


def default_preset(own_text: bool, init_from: str | Path | None) -> str:
    """Let settings be chosen for the user's own text, where no model has them already."""
    return "auto" if own_text and init_from is None else "tiny"


def keeps_equal(init_from: str | Path | None, *kinds: str | None) -> bool | None:
    """Decide whether pairs with equal sides are kept: faults in translation, they are none in spelling.

    None leaves them out where they are few.
    """
    if init_from is not None:
        return training_settings(find_model(init_from)).get("keep_equal") or None
    return None if {"chars", "spaces"}.isdisjoint(kinds) else True
