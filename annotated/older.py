"""Translate what older versions of annotated wrote into today's names, where it is read."""

from collections.abc import Mapping
from typing import Any


def current_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the settings of a run, such as training.json of 0.2.0 holds; today's stay as they are."""
    values = {name: value for name, value in settings.items() if name != "tensorboard"}
    if "variant" in values:
        values["form"] = values.pop("variant")
    every = values.pop("bleu_every", 0)  # BLEU for the log, where the loss decided which epochs are the best
    if every and not values.get("patience") and values.get("average_of", "last") == "last":
        values = {"metric": "bleu", "metric_every": every, **values}
    return values


def current_progress(progress: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the position of a checkpoint."""
    names = {"epoch_batches": "batches_in_epoch", "text": "fingerprint"}
    values = {names.get(name, name): value for name, value in progress.items() if name != "log_bytes"}
    rank = values.pop("validation_rank", values.get("validation_loss"))  # 0.2.0 went by the loss
    return {"badness": rank, **values}
