"""The command line: `annotated train | translate | evaluate | ...`, or `python -m annotated ...`.

Nothing here imports PyTorch, which takes seconds: a command's own module is imported when it is run.
"""

import os
import sys
from argparse import SUPPRESS, Namespace
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from traceback import extract_tb
from typing import cast

from annotated import __version__
from annotated.cli.flags import Parser, add_flags
from annotated.cli.options import COMMANDS
from annotated.cli.settings import config_text, files_of_settings, flags_from
from annotated.files import naming


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
    files = files_of_settings(arguments, parser)
    flags = [flag for settings in files for flag in flags_from(settings)]
    if printing := "--print-config" in arguments:
        command.require_nothing()
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
    return Namespace(**COMMANDS[name].defaults | vars(given))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; what the user got wrong is said in one line, with exit code 2."""
    if sys.stderr is None:  # closed by the shell; `print` would write to standard output instead
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    try:
        args = parse(sys.argv[1:] if arguments is None else arguments)
        if args.variants:
            register_variants(args.variants)
        command = import_module(f"annotated.cli.{args.command}")
        return getattr(command, args.command)(args) or 0
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, OSError, ImportError) as error:
        print(f"annotated: {in_words(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("annotated: stopped", file=sys.stderr)
        return 130


def in_words(error: Exception) -> str:
    """Return an error's message; that of the operating system without its number."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


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
    except Exception as error:
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = lines[-1] if lines else getattr(error, "lineno", 1)  # a syntax error has its own
        raise ValueError(f"--variants {path}, line {line}: {type(error).__name__}: {error}") from error
