"""The command line: `python -m annotated train | translate | evaluate | ...`, or `annotated ...`."""

import argparse
import dataclasses
import difflib
import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import get_args

try:
    from annotated import __version__
    from annotated.cli import commands
    from annotated.cli.recipes import TABLES, recipe_names, recipe_path
    from annotated.data.corpora import NAMES as CORPORA
    from annotated.files import read_json, read_toml
    from annotated.interop.exporting import add_export
    from annotated.training.config import TrainingConfig
    from annotated.training.devices import SharedError
    from annotated.transformer.model import TransformerConfig
    from annotated.translation.hypotheses import MAX_BEAM
    from annotated.translation.model_folder import SETTINGS
    from annotated.translation.translator import Limits
except KeyboardInterrupt:  # while PyTorch, which takes seconds, is imported
    print("annotated: stopped", file=sys.stderr)
    sys.exit(130)

PRESETS = ("tiny", "base", "big")

# What others call it.
HINTS = {
    "--lr": "--learning-rate",
    "--batch-size": "--max-tokens",
    "--layers": "--N",
    "--heads": "--h",
    "--hidden-size": "--d-model",
}


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and ends with exit code 2; takes no abbreviated flags."""

    def __init__(self, *args, **options):
        super().__init__(*args, allow_abbrev=False, **options)

    def error(self, message: str) -> None:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")

    @property
    def flags(self) -> list[str]:
        """The flags that it takes."""
        return list(self._option_string_actions)

    def nearest(self, flag: str) -> str:
        """Ask whether a flag like this one, which is unknown, was meant; nothing where there is none."""
        name, _, _ = flag.partition("=")
        hint = HINTS.get(name)
        found = [hint] if hint in self.flags else difflib.get_close_matches(name, self.flags, 1)
        return f"; did you mean {found[0]}?" if found else ""


class Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows the defaults that say something, and leaves examples as they are laid out."""

    def _get_help_string(self, action: argparse.Action) -> str:
        says_something = action.default not in (None, False, argparse.SUPPRESS)
        return super()._get_help_string(action) if says_something else action.help


def field_comments(settings: type) -> dict[str, str]:
    """What the comment beside each field of a settings class says, by the field's name.

    Nothing where there is byte code alone: comments are not part of it.
    """
    try:
        source = inspect.getsource(settings)
    except OSError:
        return {}
    lines = re.findall(r"^    (\w+): .*?  # (.*)$", source, flags=re.MULTILINE)
    return {name: comment.replace("%", "%%") for name, comment in lines}


def add_settings(
    parser: argparse.ArgumentParser, title: str, settings: type, without: Sequence[str] = ()
) -> None:
    """A flag for each field of a settings class; those not given keep the preset's value."""
    group = parser.add_argument_group(title)
    comments = field_comments(settings)
    sizes = (3, 3) if "src_vocab" in without else ()
    presets = {name: getattr(settings, name)(*sizes) for name in PRESETS}
    for field in dataclasses.fields(settings):
        if field.name in without:
            continue
        if field.type is bool:
            kind = {"action": argparse.BooleanOptionalAction}
        elif choices := get_args(field.type):
            kind = {"choices": choices}
        else:
            kind = {"type": field.type, "metavar": field.type.__name__.upper()}
        group.add_argument(
            "--" + field.name.replace("_", "-"),
            default=argparse.SUPPRESS,
            help=f"{comments.get(field.name, '')} ({values(presets, field.name)})".lstrip(),
            **kind,
        )


def values(presets: dict[str, object], name: str) -> str:
    """What each preset sets a field to, in short: `30`, or `tiny: 30, base and big: 100`."""
    names: dict[object, list[str]] = {}
    for preset, settings in presets.items():
        names.setdefault(getattr(settings, name), []).append(preset)
    if len(names) == 1:
        return f"default: {next(iter(names))}"
    return ", ".join(f"{' and '.join(found)}: {value}" for value, found in names.items())


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


def common_flags() -> argparse.ArgumentParser:
    """Flags that every command has."""
    common = Parser(add_help=False)
    group = common.add_argument_group("everywhere")
    devices = ("auto", "cpu", "cuda", "mps")
    group.add_argument("--device", choices=devices, default="auto", help="where to compute")
    group.add_argument(
        "--threads", type=within(0, 1024), default=0, metavar="INT", help="CPU threads; 0 lets PyTorch choose"
    )
    group.add_argument(
        "--seed", type=within(0, 2**32 - 1), default=0, metavar="INT", help="of everything random"
    )
    group.add_argument(
        "--config", type=Path, metavar="FILE", help="JSON or TOML with any of these settings; flags win"
    )
    group.add_argument("--version", action="version", version=f"annotated {__version__}")
    return common


def corpus_flags(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Flags that choose the data; returns their group, for more."""
    group = parser.add_argument_group("data")
    known = (*CORPORA, "own")
    group.add_argument("--corpus", choices=known, help="where the sentences come from (multi30k)")
    group.add_argument("--path", type=Path, metavar="FILE", help="where iwslt or tatoeba lie on your disk")
    group.add_argument("--pair", help="source and target language (en-de; of your own text unknown)")
    group.add_argument("--variant", choices=("raw", "tok"), help="multi30k raw, or tokenised and lower-cased")
    group.add_argument(
        "--src",
        type=Path,
        metavar="FILE",
        help="instead: your own text, a sentence a line, or a .tsv",
    )
    group.add_argument("--tgt", type=Path, metavar="FILE", help="its translation, line by line")
    return group


def search_flags(parser: argparse.ArgumentParser) -> None:
    """Flags that choose the model and how it searches."""
    which = "a model folder, or a shipped model's name"
    parser.add_argument("--model", required=True, metavar="MODEL", help=which)
    group = parser.add_argument_group("search")
    group.add_argument(
        "--beam", type=within(1, MAX_BEAM), default=4, metavar="INT", help="hypotheses kept; 1 is greedy"
    )
    group.add_argument(
        "--alpha", type=within(0, 10, float), default=0.6, metavar="FLOAT", help="of the length penalty"
    )
    penalties = "gnmt: ((5 + length) / 6)^alpha, as in section 6.1; power: length^alpha"
    group.add_argument("--penalty", choices=("gnmt", "power"), default="gnmt", help=penalties)
    limit = partial(group.add_argument, type=int, metavar="INT")
    limit("--max-source", default=Limits.max_source, help="tokens of a line that are read at most")
    limit("--max-length", default=Limits.max_length, help="tokens of a translation at most")
    what = "what becomes of a line with more tokens than --max-source"
    group.add_argument("--too-long", choices=("cut", "refuse"), default=Limits.too_long, help=what)


def train_parser(add, common: argparse.ArgumentParser) -> None:
    """`annotated train`."""
    parser = add(
        "train",
        parents=[common],
        formatter_class=Help,
        help="train a model",
        description="Train a model on a corpus, or on your own pair of files.\n"
        "Ctrl-C, or SIGTERM, leaves a model that can be used, and a run that can be resumed.",
        epilog="examples:\n"
        "  annotated train --corpus multi30k --pair en-de --preset tiny --out runs/first\n"
        "  annotated train --src my.en --tgt my.de --val-src val.en --val-tgt val.de --out runs/mine\n"
        "  annotated train --out runs/first --resume      go on where it stopped, with the settings it had\n"
        "  torchrun --nproc-per-node 4 -m annotated train ...      one process a GPU\n"
        "  torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint HOST:29400 \\\n"
        "      -m annotated train ...                              the same on each of two machines",
    )
    flag = parser.add_argument
    where = "where the run is kept: a new or an empty folder"
    flag("--out", type=Path, required=True, metavar="FOLDER", help=where)
    flag("--preset", choices=PRESETS, default="tiny", help="settings to start from")
    flag(
        "--resume",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="go on with the run in --out; start it if there is none",
    )
    flag("--init-from", metavar="MODEL", help="start from this model's weights, settings and tokenizers")
    flag("--tokenizer", choices=("subwords", "words"), default="subwords", help="what text is cut into")
    flag(
        "--vocab",
        type=within(260, 10**6),
        default=8000,
        metavar="INT",
        help="subwords, shared if all embeddings are tied",
    )
    data = corpus_flags(parser)
    without = "text to validate on; without it, 5%% of --src is held out"
    data.add_argument("--val-src", type=Path, metavar="FILE", help=without)
    data.add_argument("--val-tgt", type=Path, metavar="FILE", help="its translation")
    add_settings(parser, "model", TransformerConfig, without=("src_vocab", "tgt_vocab"))
    add_settings(parser, "training", TrainingConfig, without=("seed",))
    parser.set_defaults(run=commands.train)


def make_parser() -> Parser:
    """All commands and their flags."""
    parser = Parser(
        prog="annotated", description="Train, use and score translation models.", formatter_class=Help
    )
    parser.add_argument("--version", action="version", version=f"annotated {__version__}")
    commands_added = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    parser.commands = commands_added.choices
    add = commands_added.add_parser
    common = common_flags()
    train_parser(add, common)

    translate = add(
        "translate",
        parents=[common],
        formatter_class=Help,
        help="translate lines of text",
        description="Translate standard input, one line in, one line out.\n"
        f"The output comes in parts, each of {commands.WINDOW:,} lines for each thread: in a part, lines of\n"
        "like length are translated together. What has come is kept if the rest is interrupted.",
        epilog="example:\n  annotated translate --model runs/first < en.txt > de.txt",
    )
    search_flags(translate)
    translate.add_argument(
        "--tokenized",
        action="store_true",
        help="lines are tokenised and lower-cased, as a model of such text wants them",
    )
    translate.set_defaults(run=commands.translate)

    evaluate = add(
        "evaluate",
        parents=[common],
        formatter_class=Help,
        help="score a model on a corpus",
        description="Translate a split of a corpus, or your own file, and score that; corpus and pair\n"
        "that no flag gives are those that the model was trained on:\n"
        "BLEU, chrF, perplexity without smoothing.",
        epilog="examples:\n"
        "  annotated evaluate --model runs/first --corpus multi30k --split test_2016_flickr\n"
        "  annotated evaluate --model runs/mine --src test.en --tgt test.de",
    )
    search_flags(evaluate)
    corpus_flags(evaluate)
    cut = "sacreBLEU's tokenizer: 13a, intl, char, zh, ja-mecab, ko-mecab, ... (the target language's)"
    evaluate.add_argument("--bleu-tokenize", metavar="NAME", help=cut)
    evaluate.add_argument("--split", default="val", help="which part of the corpus")
    evaluate.add_argument("--save", type=Path, metavar="FILE", help="also write the translations here")
    evaluate.add_argument("--json", type=Path, metavar="FILE", help="also write the scores here")
    evaluate.set_defaults(run=commands.evaluate)

    average = add(
        "average",
        parents=[common],
        formatter_class=Help,
        help="average the weights of checkpoints",
        description="Write a model whose weights are the mean of those of several checkpoints (section 6.1).",
        epilog="example:\n  annotated average runs/first/checkpoints/step-* --out runs/averaged",
    )
    average.add_argument("checkpoints", nargs="+", type=Path, metavar="FOLDER", help="model folders")
    average.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where to write the model")
    average.set_defaults(run=commands.average)

    add_export(add, parents=[common], formatter_class=Help)

    known = "\n".join(f"  {name}" for name in recipe_names())
    again = add(
        "reproduce",
        parents=[common_flags()],  # its own, for the seed's default is the recipe's
        formatter_class=Help,
        help="train and score a published model anew",
        description="Train as a recipe says, average, translate, score, and write the model with its card.\n"
        "The same command goes on where it was stopped.",
        epilog=f"recipes:\n{known}",
    )
    again.add_argument("name", metavar="RECIPE", help="one of those below, or a .toml file of your own")
    again.add_argument("--out", type=Path, metavar="FOLDER", help="where the run is kept (runs/RECIPE)")
    again.set_defaults(run=reproduce, seed=None)
    return parser


def reproduce(args: argparse.Namespace) -> int:
    """Train and release what a recipe describes; see `annotated reproduce --help`."""
    recipe = Path(args.name) if args.name.endswith(".toml") else recipe_path(args.name)
    out = args.out or Path("runs") / recipe.stem
    machine = [f"--device={args.device}", f"--threads={args.threads}"]
    seed = [] if args.seed is None else [f"--seed={args.seed}"]
    training = ["train", f"--config={recipe}", f"--out={out}", "--resume", *machine, *seed]
    commands.check_recipe(recipe, parse(training))
    return main(training) or commands.publish(args, out, recipe)


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
        if flag in ("--help", "--version", "--config", "--resume"):
            command.error(f"{path}: {flag} is given by hand, not in a file")
        if isinstance(value, list | dict):
            command.error(f"{path}: {key} must be one value, not {value!r}")
    return {key: value for key, value in values.items() if value is not None}


def flag_of(name: str) -> str:
    """The flag that sets a field of the settings."""
    return "--" + name.replace("_", "-")


def flags_from(settings: dict[str, object]) -> list[str]:
    """Settings as they are given by hand."""
    flags = []
    for name, value in settings.items():
        if isinstance(value, bool):
            flags.append(flag_of(name if value else f"no-{name}"))
        else:
            flags.append(f"{flag_of(name)}={value}")
    return flags


def files_of_settings(arguments: Sequence[str], parser: Parser) -> list[dict[str, object]]:
    """What is in the files that give settings: that of the run to resume, then that of --config."""
    name = arguments[0]
    first = Parser(prog=parser.commands[name].prog, add_help=False)
    first.add_argument("--config", type=Path)
    first.add_argument("--out")
    first.add_argument("--resume", action="store_true")
    args, _ = first.parse_known_args(arguments)
    files = [settings_in(args.config, name, parser)] if args.config else []
    out = args.out or next((settings.get("out") for settings in files), None)
    if args.resume and out and (run := Path(str(out)) / SETTINGS).exists():
        files.insert(0, settings_in(run, name, parser))
    return files


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line, and under it the files that give settings."""
    parser = make_parser()
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            parser.error(f"{argument!a} is not UTF-8, as the names of files and folders must be")
    command = parser.commands.get(next(iter(arguments), None))
    if command is None:
        return parser.parse_args(arguments)
    flags = [flag for settings in files_of_settings(arguments, parser) for flag in flags_from(settings)]
    # They come right after the command's name, so that flags given by hand come later and win.
    args, unknown = parser.parse_known_args([*arguments[:1], *flags, *arguments[1:]])
    if unknown:
        command.error(f"unknown setting {unknown[0]}{command.nearest(unknown[0])}")
    return args


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; what the user got wrong is said in one line, with exit code 2."""
    if sys.stderr is None:  # closed by the shell; `print` would write to standard output instead
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    try:
        args = parse(sys.argv[1:] if arguments is None else arguments)
        return args.run(args) or 0
    except BrokenPipeError:  # whoever read our output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, OSError, SharedError, ImportError) as error:
        if not (isinstance(error, SharedError) and int(os.environ.get("LOCAL_RANK", 0))):  # else said already
            print(f"annotated: {in_words(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("annotated: stopped; what was saved before is as it was", file=sys.stderr)
        return 130


def in_words(error: Exception) -> str:
    """An error's message; that of the operating system without its number."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)
