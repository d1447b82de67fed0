"""What each command does, given its flags. `__main__` describes the flags; other modules do the work."""

import argparse
import dataclasses
import hashlib
import io
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import torch
from tqdm import tqdm

from annotated.cli.recipes import read_recipe
from annotated.cli.release import release
from annotated.data import (
    Corpus,
    ParallelText,
    TokenBatches,
    encode_corpus,
    hold_out,
    load_corpus,
    read_parallel,
    read_tsv,
)
from annotated.data.batching import mixed_seed
from annotated.data.corpora import languages
from annotated.data.parallel import split_lines
from annotated.files import creating_folder, json_text, naming, write_as_shell, write_json
from annotated.tokenizers import SentencePieceTokenizer, Tokenizer, WordTokenizer
from annotated.training.config import TrainingConfig
from annotated.training.devices import agreed, find_device, from_first, processes
from annotated.training.run_folder import RunFolder
from annotated.training.trainer import Trainer
from annotated.transformer.model import EncoderDecoder, TransformerConfig
from annotated.translation.model_folder import (
    SETTINGS,
    average_checkpoints,
    find_model,
    load_model,
    load_weights,
    save_model,
    training_settings,
)
from annotated.translation.scoring import score_split
from annotated.translation.translator import Translator

# The flags that a run remembers besides the settings of the model and of training.
REMEMBERED = (
    "corpus",
    "path",
    "pair",
    "variant",
    "src",
    "tgt",
    "val_src",
    "val_tgt",
    "tokenizer",
    "vocab",
    "preset",
    "init_from",
)


WINDOW = 1000  # lines of standard input a thread that are translated together


def choose_device(args: argparse.Namespace) -> torch.device:
    """The device asked for, threads and seed set. Raises ValueError for a device that is not there."""
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.seed is not None:  # else a recipe has its own
        torch.manual_seed(args.seed)
    return find_device(args.device)


def is_first() -> bool:
    """Whether this is the first of the processes that `torchrun` started, or the only one."""
    return int(os.environ.get("RANK", 0)) == 0


def say(text: str) -> None:
    """Tell the user something, on standard error, from the first process only."""
    if is_first():
        print(text, file=sys.stderr)


def settings_from(cls: type, args: argparse.Namespace) -> dict[str, object]:
    """The fields of a settings class that the command line or its file gave."""
    given = vars(args)
    return {field.name: given[field.name] for field in dataclasses.fields(cls) if field.name in given}


def remembered(args: argparse.Namespace) -> dict[str, object]:
    """The flags that a resumed run keeps, as JSON; files by their full path."""
    values = {name: getattr(args, name) for name in REMEMBERED} | settings_from(TransformerConfig, args)
    return {name: str(v.absolute()) if isinstance(v, Path) else v for name, v in values.items()}


def training_corpus(args: argparse.Namespace) -> Corpus:
    """The user's own files, or a corpus by name; what no flag says of that, `args` is told."""
    text = own_pairs(args.src, args.tgt, "", "train")
    val = own_pairs(args.val_src, args.val_tgt, "val-", "val")
    if text is None:
        if val is not None:
            raise ValueError("--val-src goes with --src, which is missing")
        if args.corpus == "own":
            raise ValueError("--corpus own needs --src, and --tgt if that is no .tsv file")
        args.corpus, args.pair = args.corpus or "multi30k", args.pair or "en-de"
        return load_corpus(args.corpus, args.pair, args.path, args.variant)
    if args.corpus not in (None, "own"):
        raise ValueError(f"give one of the two, --corpus {args.corpus} or --src {args.src}, not both")
    args.corpus = "own"
    splits = hold_out(text, "val") if val is None else {"train": text, "val": val}
    return Corpus("own", *languages(args.pair), splits)


def own_pairs(src: Path | None, tgt: Path | None, flag: str, name: str) -> ParallelText | None:
    """The user's pair of files, or one .tsv file that holds both sides; None where none is given."""
    if src is None and tgt is None:
        return None
    for path in (src, tgt):
        if tgt is not None and path is not None and ".tsv" in path.suffixes:
            raise ValueError(f"{path} holds both sides: give it as --{flag}src, without --{flag}tgt")
    if src is not None and tgt is not None:
        if src.resolve() == tgt.resolve():
            raise ValueError(f"--{flag}src and --{flag}tgt are one file, {src}")
        return read_parallel(src, tgt, name)
    if src is not None and ".tsv" in src.suffixes:
        return read_tsv(src, name)
    raise ValueError(f"--{flag}src and --{flag}tgt belong together, unless the first is a .tsv file")


def fingerprint(corpus: Corpus) -> str:
    """The SHA-256 of the sentences to train and to validate on, wherever they were read from."""
    digest = hashlib.sha256()
    for split in ("train", "val"):
        for pair in corpus.splits.get(split, ()):
            digest.update("\n".join([split, *pair, ""]).encode())
    return digest.hexdigest()


def starting_point(args: argparse.Namespace, corpus: Corpus) -> tuple[EncoderDecoder, Tokenizer, Tokenizer]:
    """The model to go on with: of the run to resume, of --init-from, or a new one."""
    run = RunFolder(args.out)
    start = run.newest() if args.resume else None
    if start is not None:
        with run.reading(start):
            model, *tokenizers = load_model(start)
    elif args.init_from:
        start = find_model(args.init_from)
        model, *tokenizers = load_model(start)
    else:
        return new_model(args, corpus)
    for name, value in settings_from(TransformerConfig, args).items():
        if value != getattr(model.config, name):
            raise ValueError(
                f"{name} is {getattr(model.config, name)!r} in {start}, not {value!r}: "
                "a model keeps the settings it was made with; leave that one out"
            )
    return model, *tokenizers


def new_model(args: argparse.Namespace, corpus: Corpus) -> tuple[EncoderDecoder, Tokenizer, Tokenizer]:
    """A fresh model; where not all its embeddings are tied, each language has a vocabulary of its own."""
    settings = settings_from(TransformerConfig, args)
    if args.tokenizer == "words":
        settings = {"tied_embeddings": "target", **settings}  # two vocabularies
    joint = settings.get("tied_embeddings", TransformerConfig.tied_embeddings) == "all"
    if args.tokenizer == "words":
        tokenizers = new_words(corpus, joint, cut=args.variant != "tok")
    else:
        tokenizers = new_subwords(corpus["train"], joint, args.vocab)
    config = getattr(TransformerConfig, args.preset)(*map(len, tokenizers), **settings)
    try:
        return EncoderDecoder.from_config(config), *tokenizers
    except (RuntimeError, MemoryError) as error:  # larger than the memory
        why = str(error).partition("\n")[0]
        raise ValueError(f"no model of these sizes can be built here: {why}") from None


def new_words(corpus: Corpus, joint: bool, cut: bool) -> list[Tokenizer]:
    """Words for each language, learned from the training text alone; of text already cut, its own words."""
    if joint:
        raise ValueError("words make two vocabularies: use --tied-embeddings target or none with them")
    if cut and corpus.pair is None:
        raise ValueError("words are cut by the rules of a language: name the two with --pair, such as de-en")
    text = corpus["train"]
    sides = ((text.src, corpus.src_language), (text.tgt, corpus.tgt_language))
    return [WordTokenizer.train(side, language if cut else None) for side, language in sides]


def new_subwords(text: ParallelText, joint: bool, vocab: int) -> list[Tokenizer]:
    """Subwords learned from the training text, of both languages together or of each apart."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sides = [[*text.src, *text.tgt]] if joint else [text.src, text.tgt]
        learned = [SentencePieceTokenizer.train(side, vocab) for side in sides]
    for warning in caught:
        say(str(warning.message))
    return [learned[0], learned[-1]]


def train(args: argparse.Namespace) -> int:
    """Train a model; see `annotated train --help`. Returns the exit code, 130 after Ctrl-C."""
    device = choose_device(args)
    with processes(device):
        # A function of its own: a process that leaves the group while it still holds the model may hang.
        return run_training(from_first(args), device)


def run_training(args: argparse.Namespace, device: torch.device) -> int:
    """Train as one of the processes that `train` has joined."""
    config = getattr(TrainingConfig, args.preset)(**settings_from(TrainingConfig, args))
    with agreed():
        if is_first() and args.out.is_file():
            raise ValueError(f"--out {args.out} is a file; name a folder")
        if is_first() and not args.resume:
            RunFolder(args.out).check_empty()
    with agreed("; every node needs the text, in the same place"):
        corpus = training_corpus(args)
    with agreed():
        model, *tokenizers = starting_point(args, corpus) if is_first() else (None,)
    shape, tokenizers = from_first((model and model.config, tokenizers))
    model = model or EncoderDecoder.from_config(shape)
    say(f"{sum(p.numel() for p in model.parameters()):,} parameters, on {device}")
    # With the symbols around it, a source or a target as it is read, it must fit into a batch and the model.
    around = max(1, len(tokenizers[0].before + tokenizers[0].after))
    room = min(config.max_tokens, model.max_positions or config.max_tokens)
    limit = min(config.max_sentence, room - around)

    def batches(split: str, epoch: int = 0, dropout: float = 0.0) -> TokenBatches:
        pairs = encode_corpus(corpus[split], *tokenizers, limit, dropout, mixed_seed(config.seed, epoch))
        if epoch == 0:
            say(pairs.report())
        return TokenBatches(pairs, config.max_tokens, seed=config.seed, shuffle=split == "train")

    with agreed():
        fixed = None if config.subword_dropout else batches("train")
        validation = batches("val") if "val" in corpus.splits else None
    trainer = Trainer(
        model,
        tokenizers,
        lambda epoch: fixed or batches("train", epoch, config.subword_dropout),
        validation,
        config,
        args.out,
        device,
        remembered(args),
        fingerprint(corpus),
    )
    folder = trainer.train(args.resume)
    finished = trainer.finished()
    how = "finished" if finished else "stopped, to go on with --resume,"
    say(f"{how} at step {trainer.progress.step}: the model is in {folder}")
    return 0 if finished else 130


def load_translator(args: argparse.Namespace) -> Translator:
    """The translator that the flags name, with the limits that they set."""
    limits = {"max_source": args.max_source, "max_length": args.max_length, "too_long": args.too_long}
    return Translator.load(args.model, choose_device(args), **limits)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Tell the user what is warned of in one line, without the place in our code."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: say(f"annotated: {message}")
        yield


def standard(name: str) -> io.TextIOBase:
    """Standard input or output, by its name in `sys`. Raises ValueError where the shell has closed it."""
    stream = getattr(sys, name)
    if stream is None:
        raise ValueError(f"standard {name.removeprefix('std')}put is closed")
    return stream


@plain_warnings()
def translate(args: argparse.Namespace) -> None:
    """Translate standard input; see `annotated translate --help`."""
    source, target = standard("stdin"), standard("stdout")
    translator = load_translator(args)
    if args.tokenized:
        translator.pass_tokenized()
    options = {"beam": args.beam, "alpha": args.alpha, "penalty": args.penalty}
    if isinstance(target, io.TextIOWrapper):  # not where a notebook or a test collects it
        target.reconfigure(encoding="utf-8", newline="\n")
    typed = source.isatty()
    if typed:
        say("one sentence a line; Ctrl-D ends")
    silent = typed or target.isatty() or None  # where the lines themselves show how far it is
    with naming("standard output"), tqdm(unit="line", disable=silent) as bar:
        done = 0
        for lines in windows(source.buffer, 1 if typed else WINDOW * torch.get_num_threads()):
            for line in translator.translate(lines, **options, first_line=done + 1):
                print(line)
            target.flush()  # what is done is kept, whatever comes
            done += len(lines)
            bar.update(len(lines))


def windows(file: Iterable[bytes], size: int) -> Iterator[list[str]]:
    """Read `size` lines at a time. Raises ValueError naming the line that is not UTF-8."""
    read, file = 0, iter(file)
    while data := list(islice(file, size)):
        yield split_lines(b"".join(data), "standard input", after=read)
        read += len(data)


def scored_corpus(args: argparse.Namespace) -> tuple[Corpus, str]:
    """The user's own files, or a corpus by name; and which split of it to score.

    What no flag says is as the model was trained, where its folder tells.
    """
    trained = training_settings(find_model(args.model))
    pair, corpus = trained.get("pair"), args.corpus or trained.get("corpus") or "multi30k"
    if pair and args.pair not in (None, pair):
        raise ValueError(f"{args.model} was trained to translate {pair}, not {args.pair}")
    pair = args.pair or pair
    text = own_pairs(args.src, args.tgt, "", "own")
    if text is not None:
        return Corpus("own", *languages(pair), {"own": text}), "own"
    if corpus == "own":
        raise ValueError(f"{args.model} was trained on files of your own: give --src and --tgt, or --corpus")
    if corpus == trained.get("corpus", corpus):
        args.path, args.variant = (getattr(args, n) or trained.get(n) for n in ("path", "variant"))
    return load_corpus(corpus, pair or "en-de", args.path, args.variant), args.split


@plain_warnings()
def evaluate(args: argparse.Namespace) -> None:
    """Score a model; see `annotated evaluate --help`."""
    standard("stdout")
    read = [args.src, args.tgt, args.path, args.config]
    check_target("--save", args.save, read)
    check_target("--json", args.json, [*read, args.save])
    translator = load_translator(args)
    corpus, split = scored_corpus(args)
    options = {"beam": args.beam, "alpha": args.alpha, "penalty": args.penalty}
    cut = args.bleu_tokenize
    tokenized = args.variant == "tok"
    results, found = score_split(translator, corpus, split, tokenized, **options, tokenize=cut, progress=True)
    print(results, flush=True)
    try:
        if args.save is not None:
            write_as_shell(args.save, "".join(line + "\n" for line in found))
    finally:
        if args.json is not None:
            write_as_shell(args.json, json_text(dataclasses.asdict(results)))


def check_target(flag: str, path: Path | None, others: list[Path | None]) -> None:
    """Raise ValueError for a file that can be seen to be unwritable, or that is one of the others."""
    if path is None:
        return
    if path.is_dir():
        raise ValueError(f"{flag} {path} is a folder; name a file")
    if not path.parent.is_dir():
        raise ValueError(f"{flag} {path}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"{flag} {path} may not be written")
    if path.is_file() or not path.exists():  # two may share a device
        for other in others:
            if other is not None and other.resolve() == path.resolve():
                raise ValueError(f"{flag} {path} would replace {other}, another file of this command")


def average(args: argparse.Namespace) -> None:
    """Average checkpoints; see `annotated average --help`."""
    settings, *others = map(training_settings, args.checkpoints)
    for folder, other in zip(args.checkpoints[1:], others, strict=True):
        for name in ("pair", "variant"):  # two directions may share settings and tokenizer
            if settings.get(name) != other.get(name):
                here, there = other.get(name), settings.get(name)
                raise ValueError(
                    f"{folder} was trained with {name} {here!r}, but {args.checkpoints[0]} {there!r}"
                )
    with creating_folder(args.out) as folder:
        model, *tokenizers = load_model(args.checkpoints[0])
        load_weights(model, average_checkpoints(args.checkpoints), args.out)
        if settings:
            write_json(folder / SETTINGS, settings)  # they tell what text the model reads
        save_model(folder, model, *tokenizers)
    say(f"the mean of {len(args.checkpoints)} checkpoints is in {args.out}")


def check_recipe(path: Path, args: argparse.Namespace) -> None:
    """Raise ValueError naming what would fail after a training with `args`, which may take hours."""
    card = read_recipe(path).card
    if args.src or args.val_src:
        raise ValueError(
            f"{path}: a recipe takes a corpus by its name; for your own --src there are train and evaluate"
        )
    corpus = training_corpus(args)
    for split in card.splits:
        if split not in corpus.splits:
            raise ValueError(
                f"{path}: {corpus.name} has no split {split!r}; its splits are {', '.join(corpus.splits)}"
            )
    if card.published and card.published.score == "bleu" and args.variant == "tok":
        raise ValueError(f"{path}: published.score must be tokenized_bleu for text that is tokenised")


def publish(args: argparse.Namespace, run: Path, recipe: Path) -> int:
    """Score a finished run and write it as a model with a card; see `annotated reproduce --help`."""
    if not is_first():
        return 0
    for split, results in release(run, recipe, run / "release", choose_device(args)).items():
        print(f"{split}\n{results}")
    say(f"the model, its scores and its card are in {run / 'release'}")
    return 0
