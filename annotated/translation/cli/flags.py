"""The commands and their flags. The docstring of the function that adds a command's flags is its --help."""

from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction, _ActionsContainer
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args

from annotated.search.config import SearchConfig
from annotated.settings import field_comments
from annotated.transformer.config import TransformerConfig
from annotated.translation.limits import ENGINES, QUANTIZATIONS, Limits
from annotated.translation.tokenizers import KINDS, SUBWORDS
from annotated.translation.training.config import PRESETS, FurtherMetric, Preset, TrainingConfig

MODEL_HELP = "model folder, or name of a shipped model"
DEFAULT_CORPUS = "multi30k"
# What --help shows of a command with many flags; --help-all shows all of them.
ALWAYS_SHOWN = {"help", "help_all", "model", "corpus", "pair", "src", "tgt", "device", "config"}
SHOWN_FLAGS = {
    "train": ALWAYS_SHOWN
    | {"out", "val_src", "val_tgt", "preset", "minutes", "resume", "vocab", "epochs"}
    | {"max_tokens", "learning_rate", "dropout"},
    "translate": ALWAYS_SHOWN
    | {"files", "columns", "n_best", "beam", "alpha", "engine", "max_source", "max_target"},
    "evaluate": ALWAYS_SHOWN | {"columns", "split", "metric", "save", "json", "beam", "alpha", "engine"},
}


def recipes() -> dict[str, Path]:
    """Find the recipes of the shipped models by name."""
    return {path.stem: path for path in sorted(Path(__file__).parent.glob("recipes/*.toml"))}


def add_settings(group: _ActionsContainer, settings: type) -> None:
    """Add a flag for each field that has a default; the comment behind it is the help text."""
    comments = field_comments(settings)
    sizes = [1 for field in fields(settings) if field.default is MISSING]  # the sizes of vocabularies
    presets = {preset: getattr(settings, preset, settings)(*sizes) for preset in get_args(Preset)}
    for field in fields(settings):
        if field.default is MISSING or field.name == "n_best":  # a flag of translate alone
            continue
        options: dict[str, Any] = {"type": field.type}
        if field.type is bool:
            options = {"action": BooleanOptionalAction}
        elif choices := get_args(field.type):
            options = {"choices": choices}
        defaults = {preset: getattr(values, field.name) for preset, values in presets.items()}
        if len(set(defaults.values())) == 1:
            defaults = {"default": defaults["base"]}
        note = ", ".join(f"{preset}: {value}" for preset, value in defaults.items())
        text = f"{comments.get(field.name, '')} ({note})".replace("%", "%%")
        group.add_argument(flag_name(field.name), default=SUPPRESS, help=text, **options)


def flag_name(setting: str) -> str:
    """Return the flag that sets a field."""
    return "--" + setting.replace("_", "-")


def add_data(group: _ActionsContainer) -> None:
    """Add the flags of a corpus or of the user's own text."""
    add = group.add_argument
    add("--corpus", metavar="NAME", help="source of the sentences: multi30k, wmt14, sigmorphon2020, "
        "grammar, own, or hf:NAME or hf:NAME:CONFIG, a dataset of the Hugging Face Hub "
        f"(default: {DEFAULT_CORPUS}, or with --src own)")  # fmt: skip
    add("--pair", help="source and target language, such as en-de; of sigmorphon2020 one, such as fre")
    add("--tokenized", action=BooleanOptionalAction, help="the lower-cased, tokenized text of multi30k")
    add("--src", type=Path, metavar="FILE", help="text of your own instead: a sentence a line, or both "
        "sides in a .tsv, .csv, .jsonl, .parquet or .xlsx file")  # fmt: skip
    add("--tgt", type=Path, metavar="FILE", help="translation of --src, line by line")
    add("--columns", metavar="SRC,TGT", help="names or numbers of the columns of source and target (default: "
        "the two there are, or those that are named as the languages of --pair)")  # fmt: skip


def add_search(command: ArgumentParser) -> None:
    """Add the flags of a search, and of what computes it."""
    group = command.add_argument_group("search")
    add_settings(group, SearchConfig)
    add = group.add_argument
    add("--engine", choices=ENGINES, default=ENGINES[0], help="library that searches: ctranslate2 finds the "
        "same on a CPU about twice as fast (default: pytorch, the search of this package)")  # fmt: skip
    add("--quantization", choices=QUANTIZATIONS, default="float32", help="number format of the matrices in "
        "CTranslate2 (default: float32)")  # fmt: skip
    add_settings(command.add_argument_group("limits"), Limits)


def add_torch(command: ArgumentParser, device: bool = True) -> None:
    """Add the flags of every command that computes with a model, some on the CPU alone."""
    add = command.add_argument_group("every command").add_argument
    if device:
        add("--device", default="auto", help="device to compute on: auto, cpu, cuda, cuda:1, ... or mps")
    add("--threads", type=int, default=0, help="number of CPU threads; by default PyTorch chooses")
    add("--variants", type=Path, metavar="FILE", help="Python file that registers variants; it is executed")
    add_files(command)


def add_files(command: ArgumentParser) -> None:
    """Add the flags of every command."""
    add = command.add_argument
    add("--config", type=Path, metavar="FILE", help="JSON or TOML file with any of these settings")
    add("--traceback", action="store_true", help="show where an error arose")


def add_train(command: ArgumentParser) -> None:
    """train a model

    Train a model on a corpus, or on your own pair of files.
    Ctrl-C, or SIGTERM, leaves a model that can be used, and a run that can be resumed.

    examples:
      annotated train --corpus multi30k --pair en-de --preset tiny --out runs/first
      annotated train --src my.csv --pair en-de --minutes 30 --out runs/mine      settings are chosen
      annotated train --src my.en --tgt my.de --val-src val.en --val-tgt val.de --out runs/mine
      annotated train --out runs/first --resume      go on where it stopped, with the settings it had
      annotated train --config runs/first/training.json --dropout 0.2 --out runs/second
      annotated train --variants my_parts.py --variant rms --out runs/rms
      torchrun --nproc-per-node 4 -m annotated train ...      one process a GPU
      torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint HOST:29400 \\
          -m annotated train ...                              the same on each of two machines
    """
    begin = command.add_argument_group("begin with these")
    add = begin.add_argument
    add("--out", type=Path, required=True, metavar="FOLDER", help="folder of the run, new or empty")
    add_data(begin)
    add("--preset", choices=PRESETS, help="settings to start from; auto chooses them by the text and "
        "the time (default: auto with --src, else tiny)")  # fmt: skip
    add("--minutes", type=float, help="time for which auto chooses settings (default: 10, or --epochs)")
    add("--resume", action="store_true", help="continue the run in --out; start it if there is none "
        "and its text is named")  # fmt: skip
    add = command.add_argument_group("text and tokens").add_argument
    add("--val-src", type=Path, metavar="FILE", help="text to validate on (default: 5%% of --src, held out)")
    add("--val-tgt", type=Path, metavar="FILE", help="translation of --val-src")
    add("--keep-equal", action=BooleanOptionalAction, help="keep pairs of --src and --tgt with equal sides "
        "(default: only with chars or spaces on a side)")  # fmt: skip
    add("--init-from", metavar="MODEL", help="model whose weights, settings and tokenizers to start from")
    add("--tokenizer", choices=KINDS, help="units of text (default: subwords); chars are "
        "grapheme clusters, spaces are for text that is cut already, words are cut by the rules of --pair's "
        "languages, or without it at white space")  # fmt: skip
    add("--src-tokenizer", choices=KINDS, help="units of the source, if not those of --tokenizer")
    add("--tgt-tokenizer", choices=KINDS, help="units of the target, if not those of --tokenizer")
    add("--vocab", type=int, help="number of tokens at most, shared by both sides if all embeddings are tied "
        f"(default: {SUBWORDS} subwords; all words that occur twice; all chars and spaces)")  # fmt: skip
    add("--cache", type=Path, metavar="FOLDER", help="folder for the encoded text, shared by processes and "
        "later runs; without it, each process keeps it in memory")  # fmt: skip
    add_settings(command.add_argument_group("model"), TransformerConfig)
    add_settings(command.add_argument_group("training"), TrainingConfig)
    add_torch(command)


def add_translate(command: ArgumentParser) -> None:
    """translate lines of text

    Translate files, or standard input, to standard output: one line in, one line out.
    Lines are translated as they come, many together where many are there, and written at once.
    A table comes back with a further column, translation (or translation_2, where there is one).

    examples:
      annotated translate --model runs/first < en.txt > de.txt
      annotated translate --model runs/first --columns en words.csv > both.csv
      annotated translate --model runs/first monday.txt tuesday.txt
      annotated translate --model runs/first --n-best 4 en.txt > candidates.tsv
      annotated translate --model multi30k-en-de      asks for a sentence at a time
    """
    add = command.add_argument
    add("files", type=Path, nargs="*", default=[Path("-")], metavar="FILE", help="text to translate, a "
        "sentence a line, or tables; standard input if none is named, or for -")  # fmt: skip
    add("--columns", metavar="SRC", help="name or number of a table's column to translate "
        "(default: the only one, that named as the source language, or in .tsv the first)")  # fmt: skip
    add("--model", required=True, help=MODEL_HELP)
    add("--n-best", type=int, default=SUPPRESS, help="number of translations of each line, best first, in "
        "three columns with tabs between them: number of the line, score, translation")  # fmt: skip
    add_search(command)
    add_torch(command)


def add_evaluate(command: ArgumentParser) -> None:
    """score a model on a corpus

    Translate a split of a corpus, or your own file, and print BLEU, chrF and perplexity (without
    label smoothing). Without flags, corpus and pair are those that the model was trained on; for
    a model of your own text, give --src and --tgt, which it must not have been trained on.

    examples:
      annotated evaluate --model runs/first --corpus multi30k --split test_2016_flickr
      annotated evaluate --model runs/mine --src test.en --tgt test.de
    """
    add = command.add_argument
    add("--model", required=True, help=MODEL_HELP)
    add("--split", help="part of the corpus (default: val)")
    add("--bleu-tokenize", metavar="NAME", help="sacreBLEU's tokenizer: 13a, zh, ... (default: by language)")
    add("--metric", action="append", default=[], choices=get_args(FurtherMetric), help="a score in "
        "addition, again for another: edits per 100 words or tokens (wer) or characters (cer), percentage of "
        "sentences that are right (exact)")  # fmt: skip
    add("--save", type=Path, metavar="FILE", help="file for the translations too; a .csv or .tsv file has "
        "the sources and references beside them")  # fmt: skip
    add("--json", type=Path, metavar="FILE", help="file for the scores too")
    add_data(command.add_argument_group("data"))
    add_search(command)
    add_torch(command)


def add_average(command: ArgumentParser) -> None:
    """average the weights of checkpoints

    Write a model whose weights are the mean of those of several checkpoints (section 6.1).

    example:
      annotated average runs/first/checkpoints/step-* --out runs/averaged
    """
    add = command.add_argument
    add("checkpoints", type=Path, nargs="+", metavar="FOLDER", help="model folders")
    add("--out", type=Path, required=True, metavar="FOLDER", help="new folder for the model")
    add_torch(command, device=False)


def add_export(command: ArgumentParser) -> None:
    """write a model for another engine

    Write a model for CTranslate2 or as Hugging Face's MarianMTModel, into a new folder.
    What that takes comes with pip install ".[interop]" in the clone.

    examples:
      annotated export --model runs/first --to ctranslate2 --quantization int8 --out first-int8
      annotated export --model runs/first --to marian --out first-marian
    """
    add = command.add_argument
    add("--model", required=True, help=MODEL_HELP)
    add("--to", required=True, choices=("ctranslate2", "marian"), help="engine to write for")
    add("--out", type=Path, required=True, metavar="FOLDER", help="new folder for what is written")
    add("--quantization", choices=QUANTIZATIONS, help="number format of the matrices, for CTranslate2 alone")
    add_torch(command, device=False)


def add_reproduce(command: ArgumentParser) -> None:
    """train and score a published model anew

    Train as a recipe says, then score the splits that it names.
    The same command goes on where it was stopped.
    """
    add = command.add_argument
    add("name", metavar="RECIPE", help=f"{', '.join(recipes())}, or a .toml file of your own")
    add("--out", type=Path, metavar="FOLDER", help="folder of the run (default: runs/RECIPE)")
    add("--seed", type=int, default=SUPPRESS, help="random seed (default: the recipe's)")
    add_torch(command)


def add_check(command: ArgumentParser) -> None:
    """tell whether a Transformer of your own is right

    Hold a Python file to the laws that every Transformer keeps: causality, padding, scale, the loss,
    the schedule, search. Names are those of the classic, or an adapter says what stands for what.

    examples:
      annotated check my_transformer.py
      annotated check my_transformer.py --hints 2
      annotated check my_transformer.py --translate "A dog runs across the grass."
      annotated check --grade submissions/ --require attention,multi_head_attention --csv grades.csv
    """
    add = command.add_argument
    add("files", type=Path, nargs="*", metavar="FILE.py", help="Python files to check; they are executed")
    add("--adapter", type=Path, metavar="FILE", help="Python file that says what stands for what; executed")
    add("--hints", type=int, choices=range(4), default=0, help="1 what to think of, 2 shapes, 3 the lines")
    add("--translate", metavar="TEXT", help="English sentence, for a model that keeps all laws; trained "
        "weights are loaded into it")  # fmt: skip
    add("--grade", type=Path, metavar="FOLDER", help="folder of submissions to check instead")
    add("--require", metavar="PARTS", help="parts that each submission must have: attention,rate; or all")
    add("--timeout", type=int, default=60, help="seconds for each submission (default: 60)")
    add("--verbose", action="store_true", help="list the laws that do not apply, too")
    add("--json", type=Path, metavar="FILE", help="file for the findings too, as JSON: an object for one "
        "FILE.py, else a list")  # fmt: skip
    add("--junit", type=Path, metavar="FILE", help="file for the findings too, as JUnit XML")
    add("--csv", type=Path, metavar="FILE", help="file for a line a submission too, as CSV")
    add_files(command)


def add_build(command: ArgumentParser) -> None:
    """write stubs of a Transformer to fill in

    Write transformer.py: the parts of a Transformer in the order of the lessons, each with its shapes.

    example:
      annotated build mine
      annotated check mine/transformer.py
    """
    command.add_argument("folder", type=Path, metavar="FOLDER", help="folder for transformer.py")
    add_files(command)
