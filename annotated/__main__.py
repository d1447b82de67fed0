"""The command line: `python -m annotated train | translate | evaluate | average`, or `annotated ...`."""

import argparse
import dataclasses
import inspect
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from annotated import __version__, commands
from annotated.data.corpora import NAMES as CORPORA
from annotated.files import read_json
from annotated.model import TransformerConfig
from annotated.trainer import TrainingConfig, TrainingError


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and ends with exit code 2."""

    def error(self, message: str) -> None:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


class Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows the defaults that say something, and leaves examples as they are laid out."""

    def _get_help_string(self, action: argparse.Action) -> str:
        says_something = action.default not in (None, False, argparse.SUPPRESS)
        return super()._get_help_string(action) if says_something else action.help


def field_comments(settings: type) -> dict[str, str]:
    """What the comment beside each field of a settings class says, by the field's name."""
    lines = re.findall(r"^    (\w+): .*?  # (.*)$", inspect.getsource(settings), flags=re.MULTILINE)
    return {name: comment.replace("%", "%%") for name, comment in lines}


def add_settings(parser: argparse.ArgumentParser, title: str, settings: type, without: Sequence[str] = ()) -> None:
    """A flag for each field of a settings class; those not given keep the preset's value."""
    group = parser.add_argument_group(title)
    comments = field_comments(settings)
    for field in dataclasses.fields(settings):
        if field.name in without:
            continue
        flag = "--" + field.name.replace("_", "-")
        default = f" (base: {field.default})"
        if field.type is bool:
            group.add_argument(
                flag,
                action=argparse.BooleanOptionalAction,
                default=argparse.SUPPRESS,
                help=comments[field.name] + default,
            )
        else:
            choices = getattr(field.type, "__args__", None)
            kind = str if choices else field.type
            group.add_argument(
                flag,
                type=kind,
                choices=choices,
                default=argparse.SUPPRESS,
                metavar=None if choices else kind.__name__.upper(),
                help=comments[field.name] + default,
            )


def common_flags() -> argparse.ArgumentParser:
    """Flags that every command has."""
    common = Parser(add_help=False)
    group = common.add_argument_group("everywhere")
    group.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto", help="where to compute")
    group.add_argument("--threads", type=int, default=0, metavar="INT", help="CPU threads; 0 lets PyTorch choose")
    group.add_argument("--seed", type=int, default=0, metavar="INT", help="of everything random")
    group.add_argument("--config", type=Path, metavar="FILE", help="JSON with any of these settings; flags win")
    return common


def corpus_flags(parser: argparse.ArgumentParser) -> None:
    """Flags that choose the data."""
    group = parser.add_argument_group("data")
    group.add_argument("--corpus", choices=CORPORA, default="multi30k", help="where the sentences come from")
    group.add_argument("--path", type=Path, metavar="FILE", help="where iwslt or tatoeba lie on your disk")
    group.add_argument("--pair", default="en-de", help="source and target language")
    group.add_argument("--variant", choices=("raw", "tok"), help="multi30k's text: raw, or lower-cased and tokenised")


def search_flags(parser: argparse.ArgumentParser) -> None:
    """Flags that choose the model and how it searches."""
    parser.add_argument("--model", required=True, metavar="MODEL", help="a model folder, or a shipped model's name")
    group = parser.add_argument_group("search")
    group.add_argument("--beam", type=int, default=4, metavar="INT", help="hypotheses kept; 1 is greedy")
    group.add_argument("--alpha", type=float, default=0.6, metavar="FLOAT", help="length penalty of section 6.1")
    group.add_argument("--penalty", choices=("gnmt", "power"), default="gnmt", help="form of the length penalty")


def train_parser(add, common: argparse.ArgumentParser) -> None:
    """`annotated train`."""
    parser = add(
        "train",
        parents=[common],
        formatter_class=Help,
        help="train a model",
        description="Train a model on a corpus, or on your own pair of files. Ctrl-C leaves a usable checkpoint.",
        epilog="examples:\n"
        "  annotated train --corpus multi30k --pair en-de --preset tiny --out runs/first\n"
        "  annotated train --src my.en --tgt my.de --val-src val.en --val-tgt val.de --out runs/mine\n"
        "  annotated train --out runs/first --resume      go on where it stopped, with the same flags\n"
        "  torchrun --nproc-per-node 4 -m annotated train ...      one process a GPU",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the run is kept")
    parser.add_argument("--preset", choices=("tiny", "base", "big"), default="tiny", help="settings to start from")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out; start it if there is none")
    parser.add_argument("--init-from", metavar="MODEL", help="start from this model's weights and tokenizers")
    parser.add_argument("--vocab", type=int, default=8000, metavar="INT", help="subwords, shared by both languages")
    corpus_flags(parser)
    for side in ("src", "tgt", "val-src", "val-tgt"):
        parser.add_argument(f"--{side}", type=Path, metavar="FILE", help="your own text, one sentence a line")
    add_settings(parser, "model", TransformerConfig, without=("src_vocab", "tgt_vocab"))
    add_settings(parser, "training", TrainingConfig, without=("seed",))
    parser.set_defaults(run=commands.train)


def make_parser() -> Parser:
    """All commands and their flags."""
    parser = Parser(prog="annotated", description=__doc__.splitlines()[0], formatter_class=Help)
    parser.add_argument("--version", action="version", version=f"annotated {__version__}")
    add = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser).add_parser
    common = common_flags()
    train_parser(add, common)

    translate = add(
        "translate",
        parents=[common],
        formatter_class=Help,
        help="translate lines of text",
        description="Translate standard input, one line in, one line out.",
        epilog="example:\n  annotated translate --model runs/first < en.txt > de.txt",
    )
    search_flags(translate)
    translate.set_defaults(run=commands.translate)

    evaluate = add(
        "evaluate",
        parents=[common],
        formatter_class=Help,
        help="score a model on a corpus",
        description="Translate a split of a corpus and score it: BLEU, chrF, perplexity without smoothing.",
        epilog="example:\n  annotated evaluate --model runs/first --corpus multi30k --split test_2016_flickr",
    )
    search_flags(evaluate)
    corpus_flags(evaluate)
    evaluate.add_argument("--split", default="val", help="which part of the corpus")
    evaluate.add_argument("--save", type=Path, metavar="FILE", help="also write the translations to this file")
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
    return parser


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line, and under it the file that `--config` names."""
    parser = make_parser()
    args = parser.parse_args(arguments)
    if args.config is None:
        return args
    known = set(vars(args)) | {f.name for c in (TransformerConfig, TrainingConfig) for f in dataclasses.fields(c)}
    flags = []
    for name, value in read_json(args.config).items():
        if name not in known - {"run", "config"}:
            parser.error(f"{args.config}: unknown setting {name!r}")
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            flags += [flag] if value else ["--no-" + name.replace("_", "-")]
        else:
            flags += [flag, str(value)]
    # The file's settings come right after the command's name, so that flags given by hand come later and win.
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    return parser.parse_args([arguments[0], *flags, *arguments[1:]])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; what the user got wrong is said in one line, with exit code 2."""
    try:
        args = parse(arguments)
        args.run(args)
    except (ValueError, OSError, TrainingError, ImportError) as error:
        print(f"annotated: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
