"""Settings in dataclasses: checks of their fields, reading them from JSON, and the names that 0.2.0 wrote."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar, get_args

Settings = TypeVar("Settings")


def check_fields(settings: Any, may_be_0: Sequence[str] = (), unbounded: Sequence[str] = ()) -> None:
    """Raise ValueError for a field of a dataclass that is of another type, or out of range.

    Whole numbers begin at 1, those named in `may_be_0` at 0. Other numbers are in [0, 1), unless `unbounded`.
    NumPy's numbers become Python's.
    """
    for field in fields(settings):
        name, kind = field.name, field.type
        value = getattr(settings, name)
        if hasattr(value, "item"):  # a number of NumPy's
            value = value.item()
            object.__setattr__(settings, name, value)
        if choices := get_args(kind):
            valid, wanted = value in choices, f"be one of {', '.join(choices)}"
        elif kind is int:
            low = 0 if name in may_be_0 else 1
            valid = type(value) is int and low <= value < 2**31
            wanted = f"be a whole number from {low} to 2^31 - 1"
        elif kind is float:
            valid = type(value) in (int, float) and 0 <= value < (2**31 if name in unbounded else 1)
            wanted = f"be in [0, {'2^31' if name in unbounded else 1})"
        else:  # the text "no" would switch on what False switches off
            valid, wanted = type(value) is kind, f"be a {kind.__name__}"  # type: ignore[union-attr]
        if not valid:
            raise ValueError(f"{name} must {wanted}, not {value!r}")


def settings_from_json(cls: type[Settings], values: dict[str, Any], source: object) -> Settings:
    """Make a dataclass of a JSON object. Raises ValueError that names `source` and the wrong setting."""
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{source}: {error}") from None


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
