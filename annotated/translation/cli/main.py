"""The command line: `annotated train | translate | evaluate | ...`, or `python -m annotated ...`.

Settings come from flags, under them from the file that --config names, under that from the run to resume.
PyTorch takes seconds to import: it and a command's own module are imported when the command runs.
"""

import errno
import os
import sys
import traceback
from argparse import SUPPRESS, ArgumentParser, Namespace, RawDescriptionHelpFormatter, _AppendAction
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from inspect import cleandoc
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NoReturn

from annotated import __version__
from annotated.translation.cli import flags
from annotated.translation.cli.flags import flag_name
from annotated.translation.files import read_json, read_toml

# For each command, what adds its flags, and the function that runs it, which is imported only to be called.
COMMANDS = {
    "train": (flags.add_train, "annotated.translation.cli.train:train"),
    "translate": (flags.add_translate, "annotated.translation.cli.translate:translate"),
    "evaluate": (flags.add_evaluate, "annotated.translation.cli.evaluate:evaluate"),
    "average": (flags.add_average, "annotated.translation.cli.models:average"),
    "export": (flags.add_export, "annotated.translation.cli.models:export"),
    "reproduce": (flags.add_reproduce, "annotated.translation.cli.models:reproduce"),
    "check": (flags.add_check, "annotated.translation.cli.check:check"),
    "build": (flags.add_build, "annotated.translation.cli.check:build"),
}
ERRNO_REMEDIES = {  # by the number of an error of the operating system
    errno.ENOENT: "is the name right, and the folder?",
    errno.EEXIST: "name another, or move it away",
    errno.EISDIR: "name a file in it",
    errno.ENOTDIR: "one of its folders is a file: name another",
    errno.ENOSPC: "make room on the disk, then try again (a run goes on with --resume)",
} | dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "you may not: change its rights, or name another")
# A file of settings must name no file to execute or to write, nor hold what is meant for one call.
COMMAND_LINE_ONLY = (
    "help", "help_all", "version", "config", "traceback", "resume", "variants", "adapter",
    "save", "json", "junit", "csv", "cache",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 2 after an error, which takes one line without --traceback."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if sys.stderr is None:  # the shell closed it; `print` would write to standard output
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    try:
        args = parse(arguments)
        if getattr(args, "variants", None):
            register_variants(args.variants)
        if "threads" in args:
            import torch

            if not 0 <= args.threads <= 1024:
                raise ValueError(f"--threads must be from 0 to 1,024, not {args.threads}")
            if args.threads:
                torch.set_num_threads(args.threads)
            torch.manual_seed(0)
        return resolve_name(args.command)(args) or 0
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, OSError, ImportError) as error:
        if "--traceback" in arguments:
            traceback.print_exc()
        remedy = ERRNO_REMEDIES.get(getattr(error, "errno", None) or 0)
        print(f"annotated: {error}" + (f"; {remedy}" if remedy else ""), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("annotated: stopped", file=sys.stderr)
        return 130


class Parser(ArgumentParser):
    """A parser that suggests the flag that was meant, and knows `~` in paths."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.words: Sequence[str] = ()  # of the command line: one may be a required flag, mistyped
        self.file = ""  # that the flags are from, if they are
        # A shell leaves the ~ of --out=~/run alone. That of an unknown user stays.
        self.register("type", Path, lambda text: Path(os.path.expanduser(text)))

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and exit."""
        names = [flag for flag in self._option_string_actions if flag.startswith("--")]
        _, unrecognized, given = message.partition("unrecognized arguments: ")
        for word in given.split() if unrecognized else self.words:
            flag = word.partition("=")[0]
            close = get_close_matches(flag, names, 1, 0.5)
            if flag.startswith("--") and flag not in names and close:
                message += f"; for {flag}, did you mean {close[0]}?"
        lacks_src = "--src" in names and not any(word.startswith("--src") for word in self.words)
        if lacks_src and len(given.split()) == 1 and given[0] != "-":
            message += f"; did you mean --src {given}?"
        super().error(self.file + message)


def make_parser() -> tuple[Parser, dict[str, Parser]]:
    """Describe all commands; returns the whole parser, and that of each command by its name."""
    description = "Train, use and score translation models."
    parser = Parser(prog="annotated", usage="annotated COMMAND [FLAG ...]", description=description)
    version = {"action": "version", "version": f"annotated {__version__}"}
    parser.add_argument("--version", **version)  # type: ignore[arg-type]
    commands = parser.add_subparsers(required=True, title="commands", metavar="COMMAND ...")
    for name, (add_flags, function) in COMMANDS.items():
        summary, _, text = cleandoc(add_flags.__doc__ or "").partition("\n\n")
        description, examples, closing = text.partition("example")
        command = commands.add_parser(
            name,
            prog=f"annotated {name}",
            help=summary,
            description=description,
            epilog=examples + closing,
            formatter_class=RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if name in flags.SHOWN_FLAGS:
            command.add_argument("--help-all", action="help", help="show all flags and exit")
        add_flags(command)
        command.add_argument("--version", **version)  # type: ignore[arg-type]
        forms = {"None": "{0}", "+": "{0} [{0} ...]", "*": "[{0} ...]"}
        operands = [forms[str(a.nargs)].format(a.metavar) for a in command._actions if not a.option_strings]
        command.usage = " ".join([command.prog, *operands, "[FLAG ...]"])
        command.set_defaults(command=function)
    return parser, commands.choices


def parse(arguments: Sequence[str]) -> Namespace:
    """Read the command line, and under it the files that give settings."""
    parser, commands = make_parser()
    if not arguments:
        parser.print_help(sys.stderr)
        raise SystemExit(2)
    if arguments[0] not in commands:
        if close := get_close_matches(arguments[0], commands, 1):
            parser.error(f"there is no command {arguments[0]}; did you mean {close[0]}?")
        return parser.parse_args(arguments)
    name, *rest = arguments
    command = commands[name]
    command.words = rest
    if "--help-all" not in rest:
        for action in command._actions:
            if action.dest not in flags.SHOWN_FLAGS.get(name, [action.dest]):
                action.help = SUPPRESS
    given = [command._option_string_actions.get(word.partition("=")[0]) for word in rest]
    for action in filter(None, given):
        if given.count(action) > 1 and not isinstance(action, _AppendAction):
            several = "; a recipe on the site's page Recipes trains on several files"
            advice = several if (name, action.dest) == ("train", "src") else ""
            command.error(f"{'/'.join(action.option_strings)} is given twice; give it once{advice}")
    # Flags from files come first, so that those given by hand win. Files may stand between flags.
    args = command.parse_intermixed_args([*flags_of_files(name, rest, command), *rest])
    if out := getattr(args, "out", None):
        try:
            str(out.expanduser()).encode()
        except (RuntimeError, UnicodeEncodeError) as error:
            why = error if isinstance(error, RuntimeError) else "its name is not UTF-8"
            command.error(f"--out {str(out)!a} cannot be a folder: {why}")
    return args


# ---- files of settings


def flags_of_files(name: str, arguments: list[str], command: ArgumentParser) -> list[str]:
    """Return, as flags, the settings in the file of the run to resume and in that of --config, which wins."""
    parser = Parser(prog=command.prog, usage=command.usage, add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", action="store_true")
    args, _ = parser.parse_known_args(arguments)
    given = flags_in(args.config, name) if args.config else []
    args, _ = parser.parse_known_args([*given, *arguments])
    if args.resume and args.out and (saved := args.out / "training.json").exists():
        return [*flags_in(saved, name), *given]
    return given


def flags_in(path: Path, name: str) -> list[str]:
    """Return, as flags, a command's settings in a JSON or TOML file; null stands for one that is not given.

    Where the file holds tables, each has the settings of one command.
    """
    command = make_parser()[1][name]  # reads these flags alone, so that an error names the file
    command.file = f"{path}: "
    for action in command._actions:
        action.required = False
    if path.suffix not in (".json", ".toml"):
        command.error("it must be a .json or a .toml file")
    values = read_toml(path) if path.suffix == ".toml" else read_json(path)
    values.pop("lengths", None)  # a run writes them into its settings, and nobody sets them
    if any(isinstance(value, dict) for value in values.values()):
        if name not in values or not all(isinstance(value, dict) for value in values.values()):
            run = path.with_name("training.json")
            advice = f"; the settings of a run are in {run}" if name == "train" and run.exists() else ""
            command.error(f"it has tables, but no table for {name}, or settings outside of tables{advice}")
        values = values[name]
    elif path.name == "training.json" and name != "train":
        command.error(f"the settings of a run are for annotated train; {name} finds what it needs itself")
    keys = [key.replace("-", "_") for key in values]
    repeatable = {action.dest for action in command._actions if isinstance(action, _AppendAction)}
    arguments = []
    for setting, entry in zip(keys, values.values(), strict=True):
        if keys.count(setting) > 1:
            command.error(f"{flag_name(setting)} stands in it twice")
        if setting in COMMAND_LINE_ONLY:
            command.error(f"{flag_name(setting)} is given by hand, not in a file")
        for value in entry if setting in repeatable and isinstance(entry, list) else [entry]:
            if isinstance(value, list):
                command.error(f"{flag_name(setting)} takes one value, not {value}")
            flag = flag_name(f"no-{setting}" if value is False else setting)
            if value is not None:
                arguments.append(flag if isinstance(value, bool) else f"{flag}={value}")
    command.parse_args(arguments)
    return arguments


# ---- a file of variants


def register_variants(path: Path) -> None:
    """Execute a Python file, which the user has named by hand; it may import its neighbors."""
    # The module has a name of its own, because the file may be called torch.py.
    loader = SourceFileLoader(f"variants.{path.stem}", str(path))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = sys.modules[loader.name] = module_from_spec(spec)
    sys.path.append(str(path.parent.absolute()))
    loader.exec_module(module)
