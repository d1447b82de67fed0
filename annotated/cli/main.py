"""The command line: `annotated train | translate | evaluate | ...`, or `python -m annotated ...`.

Settings come from flags, under them from the file that --config names, under that from the run to resume.
Nothing here imports PyTorch, which takes seconds: a command's own module is imported when it is run.
"""

import json
import os
import re
import sys
from argparse import SUPPRESS, Namespace
from collections.abc import Sequence
from dataclasses import MISSING
from difflib import get_close_matches
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from traceback import extract_tb
from typing import Any, cast

from annotated import __version__
from annotated.cli.flags import (
    Parser,
    add_flags,
    default_values,
    flag_fields,
    flag_of,
    has_presets,
    is_positional,
    kind_of,
    named,
)
from annotated.cli.options import COMMANDS
from annotated.cli.recipes import TABLES
from annotated.files import naming, read_json, read_toml
from annotated.training.config import PRESETS

# A file must not name a file to execute, nor what only the hand at the keyboard can mean.
BY_HAND = ("help", "version", "config", "print_config", "resume", "variants", "adapter")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; what the user got wrong is said in one line, with exit code 2."""
    if sys.stderr is None:  # closed by the shell; `print` would write to standard output instead
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    try:
        args = parse(sys.argv[1:] if arguments is None else arguments)
        if getattr(args, "variants", None):
            register_variants(args.variants)
        module = import_module(f"annotated.cli.{COMMANDS[args.command].module or args.command}")
        return getattr(module, args.command)(args) or 0
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, OSError, ImportError) as error:
        said = str(error)
        if isinstance(error, OSError) and error.filename and error.strerror:
            said = f"{error.filename}: {error.strerror}"  # without the number of the operating system
        print(f"annotated: {said}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("annotated: stopped", file=sys.stderr)
        return 130


def make_parser() -> Parser:
    """Describe all commands and their flags."""
    what = "Train, use and score translation models."
    parser = Parser(prog="annotated", usage="annotated COMMAND [FLAG ...]", description=what)
    parser.add_argument("--version", action="version", version=f"annotated {__version__}")
    added = parser.add_subparsers(required=True, title="commands", metavar="COMMAND ...", prog="annotated")
    parser.commands = added.choices
    for name, says in COMMANDS.items():
        command = added.add_parser(name, help=says.summary, description=says.description, epilog=says.closing)
        for title, settings in says.groups.items():
            group = command.add_argument_group(title) if title else command
            add_flags(group, settings)
        printing = "print all settings, explained, as a file for --config, and exit"
        group.add_argument("--print-config", action="store_true", default=SUPPRESS, help=printing)
        group.add_argument("--version", action="version", version=f"annotated {__version__}")
        command.set_defaults(command=name)
    return parser


def parse(arguments: Sequence[str]) -> Namespace:
    """Read the command line, and under it the files that give settings."""
    parser = make_parser()
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            parser.error(f"{argument!a} is not UTF-8, as the names of files and folders must be")
    name = next(iter(arguments), "")
    if name not in parser.commands:
        if near := get_close_matches(name, parser.commands, 1):
            parser.error(f"unknown command {name}; did you mean {near[0]}?")
        return parser.parse_args(arguments)
    command = parser.commands[name]
    flags = [as_flag(*setting) for setting in settings_of_files(arguments, parser).items()]
    if printing := "--print-config" in arguments:
        for action in command._actions:
            action.required = False
    # They come first, so that flags given by hand come later and win. Files may stand between flags.
    given, unknown = command.parse_known_intermixed_args([*flags, *arguments[1:]])
    if unknown:
        what = "unknown setting" if unknown[0].startswith("-") else "unexpected"
        hint = command.nearest(unknown[0])
        if name == "translate" and unknown[0].startswith("--out"):
            hint = "; translations go to standard output: > FILE"
        command.error(f"{what} {unknown[0]}{hint}")
    if printing:
        with naming("standard output"):
            print(config_text(name, vars(given)), end="", flush=True)
        command.exit()
    taken: dict[str, Any] = {}
    for settings in COMMANDS[name].groups.values():
        if not has_presets(settings):  # else the preset's, in Python
            taken |= default_values(settings)
    return Namespace(**taken | vars(given))


# ---- files of settings


def settings_of_files(arguments: Sequence[str], parser: Parser) -> dict[str, object]:
    """Read the files that give settings: that of the run to resume, and that of --config, which wins."""
    name = arguments[0]
    first = Parser(prog=parser.commands[name].prog, add_help=False)
    first.add_argument("--config", type=named)
    first.add_argument("--out")
    first.add_argument("--resume", action="store_true")
    args, _ = first.parse_known_args(arguments)
    settings = settings_in(args.config, name, parser) if args.config else {}
    if args.resume and (out := args.out or settings.get("out")):
        from annotated.translation.model_folder import SETTINGS  # loads PyTorch, which --help must not

        if (run := Path(str(out)) / SETTINGS).exists():
            settings = settings_in(run, name, parser) | settings
    return settings


def settings_in(path: Path, name: str, parser: Parser) -> dict[str, object]:
    """Read a command's settings from a JSON or TOML file; null stands for one that is not given.

    Where the file holds tables, those are the settings of one command each.
    """
    command = parser.commands[name]
    values = read_toml(path) if path.suffix == ".toml" else read_json(path)
    if path.name == "training.json":
        values.pop("notes", None)  # what a user of `annotated.train` wanted to remember is no setting
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
        if isinstance(value, list | dict):
            command.error(f"{path}: {key} must be one value, not {value!r}")
        if flag not in command.flags:
            command.error(f"{path}: unknown setting {key!r}{command.nearest(flag)}")
        if flag in map(flag_of, BY_HAND):
            command.error(f"{path}: {flag} is given by hand, not in a file")
        if re.search("[\0\ud800-\udfff]", str(value)):
            command.error(f"{path}: {key} is {value!r}, which is no text")
    return {key: value for key, value in values.items() if value is not None}


def as_flag(name: str, value: object) -> str:
    """Return a setting as it is given by hand."""
    if isinstance(value, bool):
        return flag_of(name if value else f"no-{name}")
    return f"{flag_of(name)}={value}"


def config_text(name: str, given: dict[str, Any]) -> str:
    """Lay out all settings of a command as TOML, each explained; those not given are commented out."""
    parts = [
        f"# Settings for `annotated {name} --config FILE`; what is given by hand wins.\n"
        "# Behind # stand defaults, which a preset may change: take the # away to fix one.\n"
    ]
    for title, settings in COMMANDS[name].groups.items():
        values = default_values(settings, given.get("preset", PRESETS[0])) | given
        if title:
            parts.append(f"\n# ---- {title}\n")
        for field in flag_fields(settings):
            if field.name not in BY_HAND and not is_positional(field):
                mark = "" if field.name in given else "#"
                line = f"{mark}{field.name} = {toml_value(values[field.name])}".rstrip()
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


# ---- a file of variants


def register_variants(path: Path) -> None:
    """Execute a Python file, which the user has named by hand: no model and no file of settings can.

    It may import what lies beside it. Raises FileNotFoundError, or ValueError with the line that failed.
    """
    if not path.is_file():
        raise FileNotFoundError(f"--variants {path}: there is no such file")
    name = f"variants.{path.stem}"  # not the stem alone, because the file may be called torch.py
    loader = SourceFileLoader(name, str(path))
    module = sys.modules[name] = module_from_spec(cast(ModuleSpec, spec_from_loader(name, loader)))
    sys.path.append(str(path.parent.absolute()))
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = lines[-1] if lines else getattr(error, "lineno", 1)  # a syntax error has its own
        raise ValueError(f"--variants {path}, line {line}: {type(error).__name__}: {error}") from error
