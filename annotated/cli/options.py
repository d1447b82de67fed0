"""The commands, and what can be given to each: one class for each group of flags.

The class with a command's name has the flags of that command alone.
"""

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Literal

from annotated.cli.flags import named, within
from annotated.cli.recipes import Search, recipe_names
from annotated.search.limits import MAX_BEAM, Limits
from annotated.training.config import Preset, TrainingConfig
from annotated.transformer.config import TransformerConfig, setting

MODEL = "model folder, or name of a shipped model"
Kind = Literal["subwords", "words", "chars", "spaces"]
Quantization = Literal["float32", "float16", "bfloat16", "int16", "int8"]


@dataclass(kw_only=True)
class Everywhere:
    """Flags of every command."""

    device: Literal["auto", "cpu", "cuda", "mps"] = setting("auto", "device to compute on")
    threads: int = setting(0, "number of CPU threads; 0 lets PyTorch choose", type=within(0, 1024))
    seed: int | None = setting(0, "random seed", type=within(0, 2**32 - 1))
    variants: Path | None = setting(
        None, "Python file of your own that registers variants of the model; it is executed"
    )
    config: Path | None = setting(None, "JSON or TOML file with any of these settings; flags win")


@dataclass(kw_only=True)
class Data:
    """The text."""

    corpus: str | None = setting(
        None,
        "source of the sentences: multi30k, wmt14, sigmorphon2020, iwslt, tatoeba, grammar, own, or hf:NAME "
        "or hf:NAME:CONFIG, a dataset of the Hugging Face Hub (multi30k, or with --src own)",
        metavar="NAME",
    )
    path: Path | None = setting(None, "place of iwslt or tatoeba on your disk")
    pair: str | None = setting(
        None, "source and target language, of sigmorphon2020 just fre, ... (en-de; of your own text unknown)"
    )
    variant: Literal["raw", "tok"] | None = setting(
        None, "form of multi30k: raw, or tokenised and lower-cased (raw)"
    )
    src: Path | None = setting(
        None,
        "text of your own instead: a sentence a line, or both sides in a .tsv, .csv, .jsonl or .parquet file",
    )
    tgt: Path | None = setting(None, "translation of --src, line by line")
    columns: str | None = setting(
        None, "names of the columns of source and target, with a comma between them", metavar="SRC,TGT"
    )


@dataclass(kw_only=True)
class TrainingData(Data):
    """The text to train and to validate on."""

    val_src: Path | None = setting(None, "text to validate on; without it, 5% of --src is held out")
    val_tgt: Path | None = setting(None, "translation of --val-src")
    keep_equal: bool | None = setting(
        None, "pairs of --src and --tgt with equal sides are kept (only with chars or spaces on a side)"
    )


@dataclass(kw_only=True)
class Train:
    out: Path = setting(MISSING, "folder of the run, new or empty", metavar="FOLDER")
    preset: Preset = setting("tiny", "settings to start from")
    resume: bool = setting(False, "continuation of the run in --out; a new run if there is none")
    init_from: str | None = setting(
        None, "model that lends its weights, settings and tokenizers to begin with", metavar="MODEL"
    )
    tokenizer: Kind = setting(
        "subwords",
        "units of text; chars are grapheme clusters, spaces are for text that is cut already, "
        "words need --pair for spaCy's rules and are cut at white space without it",
    )
    src_tokenizer: Kind | None = setting(None, "units of the source, if not those of --tokenizer")
    tgt_tokenizer: Kind | None = setting(None, "units of the target, if not those of --tokenizer")
    vocab: int | None = setting(
        None,
        "number of tokens at most, shared by both sides if all embeddings are tied "
        "(8000 subwords; all words that occur twice; all chars and spaces)",
        type=within(5, 10**6),
    )
    cache: Path | None = setting(
        None, "folder for the encoded text, shared by processes and later runs (in memory)", metavar="FOLDER"
    )


@dataclass(kw_only=True)
class Engine:
    """What computes a search."""

    engine: Literal["auto", "pytorch", "ctranslate2"] = setting(
        "auto", "library that searches: CTranslate2 is faster on a CPU, and auto takes it for many sentences"
    )
    quantization: Quantization = setting("float32", "number format of the matrices in CTranslate2")


@dataclass(kw_only=True)
class Translate:
    files: tuple[Path, ...] = setting(
        (Path("-"),),
        "text to translate, a sentence a line; standard input if none is named, or for -",
        type=named,
        nargs="*",
        metavar="FILE",
    )
    model: str = setting(MISSING, MODEL)
    n_best: int | None = setting(
        None,
        "number of translations of each line, best first, in three columns with tabs between them: "
        "number of the line, score, translation",
        type=within(1, MAX_BEAM),
    )
    tokenized: bool = setting(False, "text that is tokenised and lower-cased, for a model of such text")


@dataclass(kw_only=True)
class Evaluate:
    model: str = setting(MISSING, MODEL)
    split: str = setting("val", "part of the corpus")
    bleu_tokenize: str | None = setting(
        None,
        "sacreBLEU's tokenizer: 13a, intl, char, zh, ja-mecab, ko-mecab, ... (the target language's)",
        metavar="NAME",
    )
    save: Path | None = setting(None, "file for the translations too")
    json: Path | None = setting(None, "file for the scores too")


@dataclass(kw_only=True)
class Average:
    checkpoints: list[Path] = setting(MISSING, "model folders", type=named, nargs="+", metavar="FOLDER")
    out: Path = setting(MISSING, "new folder for the model", metavar="FOLDER")


@dataclass(kw_only=True)
class Export:
    model: str = setting(MISSING, MODEL)
    to: Literal["ctranslate2", "onnx", "marian"] = setting(MISSING, "engine to write for")
    out: Path = setting(MISSING, "new folder for what is written", metavar="FOLDER")
    quantization: Quantization | None = setting(None, "number format of the matrices, for CTranslate2 alone")


@dataclass(kw_only=True)
class Reproduce:
    name: str = setting(
        MISSING, "one of the recipes below, or a .toml file of your own", nargs=None, metavar="RECIPE"
    )
    out: Path | None = setting(None, "folder of the run (runs/RECIPE)", metavar="FOLDER")


@dataclass(kw_only=True)
class FileOfSettings:
    """Flags of a command that computes with nothing of ours."""

    config: Path | None = setting(None, "JSON or TOML file with any of these settings; flags win")


@dataclass(kw_only=True)
class Check(FileOfSettings):
    files: tuple[Path, ...] = setting(
        (), "Python files to check; they are executed", type=named, nargs="*", metavar="FILE.py"
    )
    adapter: Path | None = setting(
        None, "Python file that says what stands for what in the checked one (there: mine); it is executed"
    )
    hints: int = setting(
        0, "hints for what is open: 1 what to think of, 2 which shapes, 3 the lines", type=within(0, 3)
    )
    translate: str | None = setting(
        None,
        "English sentence, for a model that keeps all laws; trained weights are loaded into it",
        metavar="TEXT",
    )
    grade: Path | None = setting(None, "folder of submissions to check instead", metavar="FOLDER")
    timeout: int = setting(60, "seconds for each submission", type=within(1, 3600))
    json: Path | None = setting(None, "file for the findings too, as JSON")
    junit: Path | None = setting(None, "file for the findings too, as JUnit XML")
    csv: Path | None = setting(None, "file for a line a submission too, as CSV")


@dataclass(kw_only=True)
class Build(FileOfSettings):
    folder: Path = setting(MISSING, "folder for transformer.py", type=named, nargs=None, metavar="FOLDER")


@dataclass(kw_only=True)
class RecipesOwn(Everywhere):
    """Flags of every command, for one whose seed is the recipe's if none is given."""

    seed: int | None = setting(None, "random seed (the recipe's)", type=within(0, 2**32 - 1))


@dataclass(frozen=True)
class Command:
    """What can be said of a command without doing it; the function of its name in `module` does it."""

    summary: str
    description: str
    closing: str
    groups: dict[str, type]  # classes of flags by the title of their group; the first has none
    module: str = ""  # its own name, if none is said


COMMANDS = {
    "train": Command(
        "train a model",
        "Train a model on a corpus, or on your own pair of files.\n"
        "Ctrl-C, or SIGTERM, leaves a model that can be used, and a run that can be resumed.",
        "examples:\n"
        "  annotated train --corpus multi30k --pair en-de --preset tiny --out runs/first\n"
        "  annotated train --src my.en --tgt my.de --val-src val.en --val-tgt val.de --out runs/mine\n"
        "  annotated train --out runs/first --resume      go on where it stopped, with the settings it had\n"
        "  annotated train --preset base --print-config > base.toml      a file of settings to edit\n"
        "  annotated train --variants my_parts.py --parts rms --out runs/rms\n"
        "  torchrun --nproc-per-node 4 -m annotated train ...      one process a GPU\n"
        "  torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint HOST:29400 \\\n"
        "      -m annotated train ...                              the same on each of two machines",
        {
            "": Train,
            "data": TrainingData,
            "model": TransformerConfig,
            "training": TrainingConfig,
            "every command": Everywhere,
        },
    ),
    "translate": Command(
        "translate lines of text",
        "Translate files, or standard input, to standard output: one line in, one line out.\n"
        "Lines are translated as they come, many together where many are there, and written at once.",
        "examples:\n"
        "  annotated translate --model runs/first < en.txt > de.txt\n"
        "  annotated translate --model runs/first monday.txt tuesday.txt\n"
        "  annotated translate --model runs/first --n-best 4 en.txt > candidates.tsv\n"
        "  annotated translate --model multi30k-en-de      asks for a sentence at a time",
        {"": Translate, "search": Search, "engine": Engine, "limits": Limits, "every command": Everywhere},
    ),
    "evaluate": Command(
        "score a model on a corpus",
        "Translate a split of a corpus, or your own file, and print BLEU, chrF and perplexity (without\n"
        "label smoothing). Without flags, corpus and pair are those that the model was trained on; for\n"
        "a model of your own text, give --src and --tgt, which it must not have been trained on.",
        "examples:\n"
        "  annotated evaluate --model runs/first --corpus multi30k --split test_2016_flickr\n"
        "  annotated evaluate --model runs/mine --src test.en --tgt test.de",
        {
            "": Evaluate,
            "data": Data,
            "search": Search,
            "engine": Engine,
            "limits": Limits,
            "every command": Everywhere,
        },
        "translate",
    ),
    "average": Command(
        "average the weights of checkpoints",
        "Write a model whose weights are the mean of those of several checkpoints (section 6.1).",
        "example:\n  annotated average runs/first/checkpoints/step-* --out runs/averaged",
        {"": Average, "every command": Everywhere},
        "models",
    ),
    "export": Command(
        "write a model for another engine",
        "Write a model for CTranslate2, as ONNX, or as Hugging Face's MarianMTModel, into a new folder.\n"
        'What that takes comes with pip install ".[interop]" in the clone.',
        "examples:\n"
        "  annotated export --model runs/first --to ctranslate2 --quantization int8 --out first-int8\n"
        "  annotated export --model runs/first --to onnx --out first-onnx",
        {"": Export, "every command": Everywhere},
        "models",
    ),
    "reproduce": Command(
        "train and score a published model anew",
        "Train as a recipe says, average, translate, score, and write the model with its card.\n"
        "The same command goes on where it was stopped.",
        "recipes:\n" + "\n".join(f"  {name}" for name in recipe_names()),
        {"": Reproduce, "every command": RecipesOwn},
        "release",
    ),
    "check": Command(
        "tell whether a Transformer of your own is right",
        "Hold a Python file to the laws that every Transformer keeps: causality, padding, scale, the loss,\n"
        "the schedule, search. Names are those of the classic, or an adapter says what stands for what.",
        "examples:\n"
        "  annotated check my_transformer.py\n"
        "  annotated check my_transformer.py --hints 2\n"
        '  annotated check my_transformer.py --translate "A dog runs across the grass."\n'
        "  annotated check --grade submissions/ --csv grades.csv --junit grades.xml",
        {"": Check},
    ),
    "build": Command(
        "write stubs of a Transformer to fill in",
        "Write transformer.py: the parts of a Transformer in the order of the lessons, with contracts.",
        "example:\n  annotated build mine\n  annotated check mine/transformer.py",
        {"": Build},
        "check",
    ),
}
