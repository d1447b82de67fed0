"""Files of settings: what a command takes from one with `--config`, and what `--print-config` writes."""

import json
from collections.abc import Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from annotated.cli.flags import (
    Parser,
    flag_fields,
    flag_of,
    has_presets,
    is_positional,
    kind_of,
    preset_values,
)
from annotated.cli.options import COMMANDS
from annotated.cli.recipes import TABLES
from annotated.files import read_json, read_toml
from annotated.training.config import PRESETS

# A file must not name a file to execute, nor what only the hand at the keyboard can mean.
BY_HAND = ("help", "version", "config", "print_config", "resume", "variants")


def files_of_settings(arguments: Sequence[str], parser: Parser) -> list[dict[str, object]]:
    """Read the files that give settings: that of the run to resume, then that of --config."""
    name = arguments[0]
    first = Parser(prog=parser.commands[name].prog, add_help=False)
    first.add_argument("--config", type=Path)
    first.add_argument("--out")
    first.add_argument("--resume", action="store_true")
    args, _ = first.parse_known_args(arguments)
    files = [settings_in(args.config, name, parser)] if args.config else []
    out = args.out or next((settings.get("out") for settings in files), None)
    if args.resume and out:
        from annotated.translation.model_folder import SETTINGS  # loads PyTorch, which --help must not

        if (run := Path(str(out)) / SETTINGS).exists():
            files.insert(0, settings_in(run, name, parser))
    return files


def settings_in(path: Path, name: str, parser: Parser) -> dict[str, object]:
    """Read a command's settings from a JSON or TOML file; null stands for one that is not given.

    Where the file holds tables, those are the settings of one command each.
    """
    command = parser.commands[name]
    values = read_toml(path) if path.suffix == ".toml" else read_json(path)
    if any(isinstance(value, dict) for value in values.values()):
        tables = list(dict.fromkeys([*parser.commands, *TABLES]))
        for key, value in values.items():
            if key not in tables or not isinstance(value, dict):
                command.error(f"{path}: {key!r} is no table of settings; those are {', '.join(tables)}")
        if name not in values:
            command.error(f"{path} has tables, but none for {name}")
        values = values[name]
    for key, value in values.items():
        flag = flag_of(key)
        if flag not in command.flags:
            command.error(f"{path}: unknown setting {key!r}{command.nearest(flag)}")
        if flag in map(flag_of, BY_HAND):
            command.error(f"{path}: {flag} is given by hand, not in a file")
        if isinstance(value, list | dict):
            command.error(f"{path}: {key} must be one value, not {value!r}")
    return {key: value for key, value in values.items() if value is not None}


def flags_from(settings: dict[str, object]) -> list[str]:
    """Return settings as they are given by hand."""
    flags = []
    for name, value in settings.items():
        if isinstance(value, bool):
            flags.append(flag_of(name if value else f"no-{name}"))
        else:
            flags.append(f"{flag_of(name)}={value}")
    return flags


def config_text(name: str, given: dict[str, Any]) -> str:
    """Lay out all settings of a command as TOML, each explained; those not given are commented out."""
    parts = [
        f"# Settings for `annotated {name} --config FILE`; what is given by hand wins.\n"
        "# Behind # stand defaults, which a preset may change: take the # away to fix one.\n"
    ]
    for title, settings in COMMANDS[name].groups.items():
        preset = preset_values(settings, given.get("preset", PRESETS[0])) if has_presets(settings) else {}
        if title:
            parts.append(f"\n# ---- {title}\n")
        for field in flag_fields(settings):
            if field.name not in BY_HAND and not is_positional(field):
                value = given.get(field.name, preset.get(field.name, field.default))
                line = f"{'' if field.name in given else '#'}{field.name} = {toml_value(value)}".rstrip()
                choices = kind_of(field.type).get("choices")
                note = f" ({', '.join(choices)})" if choices else ""
                parts.append(f"\n# {field.metadata['help']}{note}\n{line}\n")
    return "".join(parts)


def toml_value(value: object) -> str:
    """Write one value as TOML; nothing for one that there is not."""
    if value in (None, MISSING):
        return ""
    if isinstance(value, bool | int | float):
        return str(value).lower()
    return json.dumps(str(value), ensure_ascii=False)
