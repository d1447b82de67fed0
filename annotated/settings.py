"""Settings are frozen dataclasses: checks of their fields, and the comments behind these as documentation."""

import inspect
import re
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar, get_args

Dataclass = TypeVar("Dataclass")


def field_comments(settings: type) -> dict[str, str]:
    """Read the comment behind each field of a dataclass; none where only the byte code is installed."""
    try:
        source = inspect.getsource(sys.modules[settings.__module__])  # of a class it takes longer
    except OSError:
        return {}
    return dict(re.findall(r"^    (\w+): .*?  # (.+)$", source, flags=re.MULTILINE))


def explained(settings: type[Dataclass]) -> type[Dataclass]:
    """Add the comment behind each field of a dataclass to its docstring, for `help` and a notebook's `?`."""
    comments = field_comments(settings)
    lines = [f"        {field.name}: {comments.get(field.name, '')}." for field in fields(settings)]  # type: ignore[arg-type]
    settings.__doc__ = "\n".join([f"{settings.__doc__ or ''}\n    Args:", *lines])
    return settings


def check_fields(
    settings: Any, may_be_0: Sequence[str] = (), unbounded: Sequence[str] = (), **most: int
) -> None:
    """Raise ValueError for a field of a dataclass that is of another type, or out of range.

    Whole numbers begin at 1, those named in `may_be_0` at 0; `most` bounds those that it names. Other numbers
    are in [0, 1), unless `unbounded`. NumPy's numbers become Python's.
    """
    for field in fields(settings):
        name, kind = field.name, field.type
        value = getattr(settings, name)
        if hasattr(value, "item"):  # a number of NumPy's
            value = value.item()
            object.__setattr__(settings, name, value)
        if choices := get_args(kind):
            valid = value in choices
            requirement = f"one of {', '.join(choices)}"
        elif kind is int:
            low = 0 if name in may_be_0 else 1
            valid = type(value) is int and low <= value <= most.get(name, 2**31 - 1)
            requirement = f"a whole number from {low} to {most.get(name, '2^31 - 1')}"
        elif kind is float:
            valid = type(value) in (int, float) and 0 <= value < (2**31 if name in unbounded else 1)
            requirement = f"in [0, {'2^31' if name in unbounded else 1})"
        else:  # the text "no" would switch on what False switches off
            valid = type(value) is kind
            requirement = f"a {kind.__name__}"  # type: ignore[union-attr]
        if not valid:
            raise ValueError(f"{name} must be {requirement}, not {value!r}")
