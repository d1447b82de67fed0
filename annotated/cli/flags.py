"""Flags made of settings classes: one for each field that `setting` declares."""

import argparse
import difflib
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args, get_origin

from annotated.training.config import HINTS, PRESETS


class Help(argparse.RawDescriptionHelpFormatter):
    """Shows in the usage what has to be given, and that there are flags, not each of them."""

    def _format_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any) -> str:
        if usage is None:
            needed = [action for action in actions if action.required or not action.option_strings]
            usage = super()._format_usage(None, needed, groups, "").rstrip() + " [FLAG ...]"
        return super()._format_usage(usage, actions, groups, prefix)


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and ends with exit code 2; takes no abbreviated flags."""

    commands: dict[str, "Parser"]  # of the parser that has them

    def __init__(self, **options: Any):
        super().__init__(allow_abbrev=False, formatter_class=Help, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")

    @property
    def flags(self) -> list[str]:
        """The flags that it takes."""
        return list(self._option_string_actions)

    def nearest(self, flag: str) -> str:
        """Ask whether a flag like this one, which is unknown, was meant; nothing where there is none."""
        name, _, _ = flag.partition("=")
        hint = flag_of(HINTS.get(name.lstrip("-").replace("-", "_"), ""))
        found = [hint] if hint in self.flags else difflib.get_close_matches(name, self.flags, 1)
        return f"; did you mean {found[0]}?" if found else ""


def flag_of(name: str) -> str:
    """Return the flag that sets a field."""
    return "--" + name.replace("_", "-")


def flag_fields(settings: type) -> Iterator[Field[Any]]:
    """Iterate over the fields of a settings class that the command line can set."""
    return (field for field in fields(settings) if "help" in field.metadata)


def is_positional(field: Field[Any]) -> bool:
    """Tell whether a field is given by its place, without a flag."""
    return "nargs" in field.metadata


def add_flags(group: argparse._ActionsContainer, settings: type) -> None:
    """Add an argument for each field; those not given are left out of what is parsed."""
    for field in flag_fields(settings):
        options = {**kind_of(field.type), **field.metadata}
        options["help"] = f"{options['help']}{default_note(settings, field)}".replace("%", "%%")
        if not is_positional(field):
            options["required"] = field.default is MISSING
        name = field.name if is_positional(field) else flag_of(field.name)
        group.add_argument(name, default=argparse.SUPPRESS, **options)


def kind_of(kind: Any) -> dict[str, Any]:
    """Return what `argparse` has to know of a field's type; of `X | None`, that of X."""
    if type(None) in get_args(kind):
        kind = get_args(kind)[0]
    if kind is bool:
        return {"action": argparse.BooleanOptionalAction}
    if get_origin(kind) is Literal:
        return {"choices": get_args(kind)}
    if kind is str:
        return {}
    return (
        {"type": named, "metavar": "FILE"}
        if kind is Path
        else {"type": kind, "metavar": kind.__name__.upper()}
    )


def has_presets(settings: type) -> bool:
    """Tell whether the values of a settings class that are not given come from a preset."""
    return hasattr(settings, PRESETS[0])


def default_values(settings: type, preset: str = PRESETS[0]) -> dict[str, Any]:
    """Return what each flag of a settings class is when it is not given, MISSING where it has to be."""
    found: Any = settings  # as an attribute, the class of a dataclass has each default
    if has_presets(settings):
        sizes = [1 for field in fields(settings) if field.default is MISSING]  # of the vocabularies
        found = getattr(settings, preset)(*sizes)
    return {field.name: getattr(found, field.name, MISSING) for field in flag_fields(settings)}


def default_note(settings: type, field: Field[Any]) -> str:
    """Say in brackets what a setting is when it is not given: `(default: 30)`, or `(tiny: 30, base: 100)`."""
    names: dict[object, list[str]] = {}
    for preset in PRESETS:
        names.setdefault(default_values(settings, preset)[field.name], []).append(preset)
    if len(names) > 1:
        each = (f"{' and '.join(presets)}: {value}" for value, presets in names.items())
        return f" ({', '.join(each)})"
    if has_presets(settings):
        return "" if field.default is False else f" (default: {field.default})"
    said = field.default in (None, 0, MISSING) or is_positional(field)  # False is 0 too
    return "" if said else f" (default: {field.default})"


def settings_from(settings: type, args: argparse.Namespace) -> dict[str, Any]:
    """Collect the fields of a settings class that the command line or its file gave."""
    return {field.name: getattr(args, field.name) for field in fields(settings) if field.name in args}


def named(text: str) -> Path:
    """Read the name of a file or folder; refuse "", as a variable of the shell gives that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty")
    return Path(text)


def within(low: int, high: int, kind: type = int) -> Callable[[str], float]:
    """Return what reads a number from `low` to `high` from the command line, and refuses all else."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:  # NaN is not either
            what = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"must be {what} from {low} to {high}, not {text!r}")
        return value

    return read
