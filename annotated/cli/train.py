"""`annotated train`."""

import argparse
import hashlib
import os
import warnings
from pathlib import Path

import torch

from annotated.cli.common import choose_device, is_first, own_pairs, say, settings_from
from annotated.data import Corpus, ParallelText, TokenBatches, encode_corpus, hold_out, load_corpus
from annotated.data.batching import mixed_seed
from annotated.data.corpora import languages
from annotated.tokenizers import SentencePieceTokenizer, Tokenizer, WordTokenizer
from annotated.training.config import TrainingConfig
from annotated.training.devices import SharedError, agreed, from_first, processes
from annotated.training.run_folder import RunFolder
from annotated.training.trainer import Trainer
from annotated.transformer.model import EncoderDecoder, TransformerConfig
from annotated.translation.model_folder import find_model, load_model

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


def train(args: argparse.Namespace) -> int:
    """Train a model; see `annotated train --help`. Returns the exit code, 130 after Ctrl-C."""
    device = choose_device(args)
    try:
        with processes(device):
            # A function of its own: a process that leaves the group while it still holds the model may hang.
            return run_training(from_first(args), device)
    except SharedError as error:
        if int(os.environ.get("LOCAL_RANK", 0)):  # the first process of this machine says it
            return 2
        raise ValueError(error) from None


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
