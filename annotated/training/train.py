"""From sentence pairs to a translator in one call."""

import difflib
import hashlib
import math
import shutil
import warnings
from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache, partial
from pathlib import Path
from typing import cast

import torch

from annotated.data.batches import TokenBatches, encode_corpus, mixed_seed
from annotated.data.own import Text, own_corpus
from annotated.data.parallel import Corpus, ParallelText, shortened
from annotated.tokenizers import SentencePieceTokenizer, Tokenizer, WordTokenizer
from annotated.training.checkpoint import LOG, RunFolder
from annotated.training.config import HINTS, PRESETS, TrainingConfig
from annotated.training.distributed import agreed, find_device, from_first, is_first, processes, say
from annotated.training.progress import Stopped
from annotated.training.trainer import Trainer
from annotated.transformer.config import TransformerConfig
from annotated.transformer.model import EncoderDecoder
from annotated.translation.model_folder import find_model, load_model
from annotated.translation.translator import Translator

VOCAB = (260, 10**6)  # subwords at least and at most
FEW = 20  # updates in an epoch, below which the user is told


def train(
    corpus: Corpus | Text,
    out: str | Path,
    preset: str = "tiny",
    *,
    validation: Text | None = None,
    pair: str | None = None,
    tokenizer: str = "subwords",
    vocab: int = 8000,
    init_from: str | Path | None = None,
    resume: bool = False,
    device: str | torch.device = "auto",
    notes: dict[str, object] | None = None,
    **settings: object,
) -> Translator:
    """Train a model that translates, into the folder `out`; returns its translator.

        translate = annotated.train([("A dog.", "Ein Hund."), ...], "runs/mine", epochs=20)
        translate = annotated.train(zip(frame["en"], frame["de"]), "runs/mine")       # a frame of pandas
        translate = annotated.train("mine.tsv", "runs/mine", pair="en-de", validation=("val.en", "val.de"))
        translate("A cat.")

    `annotated train` does the same from the shell.

    Args:
        corpus: sentence pairs, in any form that `annotated.data.own_text` takes: an iterable of pairs, the
            path of a TSV file or those of two files; or a `Corpus`, such as `load_corpus` gives.
        out: a new or an empty folder, or with `resume` that of the run (see `RunFolder`).
        preset: the settings to start from, tiny, base or big.
        validation: pairs to validate on, in the same forms; without them, 5% of the corpus are held out.
        pair: the languages, such as "en-de", where they are known.
        tokenizer: what text is cut into, subwords or words.
        vocab: how many subwords, shared by both languages if all embeddings are tied.
        init_from: model to start from, with its settings and tokenizers: its folder, or a shipped one's name.
        resume: go on with the run in `out`, with the same arguments; start it if there is none.
        device: where to compute: auto, cpu, cuda or mps.
        notes: further settings to remember in training.json.
        settings: fields of `TrainingConfig` and `TransformerConfig`.

    Messages and a progress bar go to standard error. Raises ValueError, in one line, for what cannot be and
    for text that was not read as it was meant (see `own_corpus`); Stopped, a KeyboardInterrupt, after Ctrl-C,
    with the run saved; else as `Trainer.train` does.
    """
    for name, value, choices in (
        ("preset", preset, PRESETS),
        ("tokenizer", tokenizer, ("subwords", "words")),
    ):
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    if type(vocab) is not int or not VOCAB[0] <= vocab <= VOCAB[1]:
        raise ValueError(f"vocab must be a whole number from {VOCAB[0]} to {VOCAB[1]}, not {vocab!r}")
    shape, training = split_settings(settings)
    config = getattr(TrainingConfig, preset)(**training)
    run, notes = RunFolder(out), notes or {}
    start_at = None if init_from is None else str(init_from)
    given = {"tokenizer": tokenizer, "vocab": vocab, "preset": preset, "init_from": start_at}

    def start(text: Corpus) -> tuple[EncoderDecoder, Tokenizer, Tokenizer]:
        cut = notes.get("variant") != "tok"
        torch.manual_seed(config.seed)
        return model_to_go_on_with(run, resume, start_at, shape) or new_model(
            text, preset, shape, tokenizer == "words", vocab, cut
        )

    place = device if isinstance(device, torch.device) else find_device(device)
    with processes(place):
        # A function of its own: a process that leaves the group while it still holds the trainer may hang.
        read = partial(own_corpus, corpus, validation, pair)
        return train_on(read, start, run, config, place, {**given, **shape, **notes}, resume)


def train_on(
    read: Callable[[], Corpus],
    start: Callable[[Corpus], tuple[EncoderDecoder, Tokenizer, Tokenizer]],
    run: RunFolder,
    config: TrainingConfig,
    device: torch.device,
    notes: dict[str, object],
    resume: bool,
) -> Translator:
    """Train as one of the processes that have been joined; only the first needs the folder, each the text."""
    with agreed():
        if is_first() and run.path.is_file():
            raise ValueError(f"{run.path} is a file; name a folder")
        if is_first() and not resume:
            run.check_empty()
    with agreed("; every node needs the text, in the same place"):
        corpus = read()
    with agreed():
        model, *sides = start(corpus) if is_first() else (None,)
    shape, (src, tgt) = from_first((model and model.config, sides))
    model = model or EncoderDecoder.from_config(cast(TransformerConfig, shape))
    count = sum(p.numel() for p in model.parameters())
    say(f"{count:,} parameters, on {device}; each {config.log_every} updates a line in {run.path / LOG}")
    # With the symbols around it, a source or a target as it is read, it must fit into a batch and the model.
    around = max(1, len(src.before + src.after))
    room = min(config.max_tokens, model.max_positions or config.max_tokens)
    limit = min(config.max_sentence, room - around)

    def batches(split: str, epoch: int = 0) -> TokenBatches:
        dropout = config.subword_dropout if split == "train" else 0.0
        pairs = encode_corpus(corpus[split], src, tgt, limit, dropout, mixed_seed(config.seed, epoch))
        if epoch == 0:
            say(pairs.report())
            if split == "train":
                say(first_pair(corpus))
        return TokenBatches(pairs, config.max_tokens, seed=config.seed, shuffle=split == "train")

    training = lru_cache(maxsize=1)(partial(batches, "train"))
    with agreed():
        training(0)  # what is wrong with it is told before the run begins
        validation = batches("val") if "val" in corpus.splits else None
    each = training if config.subword_dropout else lambda _: training(0)
    notes = {"corpus": corpus.name, "pair": corpus.pair, **notes}
    text = fingerprint(corpus)
    trainer = Trainer(model, (src, tgt), each, validation, config, run.path, device, notes, text)
    updates = math.ceil(len(training(0)) / trainer.progress.update_batches)
    if updates < FEW:
        say(f"few updates in an epoch, {updates}: smaller batches (max_tokens) make more of them")
    trainer.train(resume)
    where = f"at step {trainer.progress.step}: the model is in {run.path}"
    if not trainer.finished():
        raise Stopped(f"stopped {where}; --resume, in Python resume=True, goes on")
    say(f"finished {where}")
    if trainer.updater.world > 1:  # the mean of the checkpoints is the first process's
        trainer.updater.share_state(begun=False)
    return Translator(model.eval(), src, tgt, notes.get("variant") == "tok", corpus.pair)


def model_to_go_on_with(
    run: RunFolder, resume: bool, init_from: str | Path | None, settings: dict[str, object]
) -> tuple[EncoderDecoder, Tokenizer, Tokenizer] | None:
    """Load the model of the run to resume, or else `init_from`; None where there is neither.

    Raises ValueError for one of the `settings` that the model has not.
    """
    start = run.newest() if resume else None
    if start is not None:
        with run.reading(start):
            found = load_model(start)
    elif init_from is not None:
        start = find_model(init_from)
        found = load_model(start)
    else:
        return None
    for name, value in settings.items():
        if value != (own := getattr(found[0].config, name)):
            raise ValueError(
                f"{name} is {own!r} in {start}, not {value!r}: "
                "a model keeps the settings it was made with; leave that one out"
            )
    return found


def new_model(
    corpus: Corpus, preset: str, settings: dict[str, object], words: bool, vocab: int, cut: bool
) -> tuple[EncoderDecoder, Tokenizer, Tokenizer]:
    """Build a new model; unless all its embeddings are tied, each language has a vocabulary of its own."""
    if words:
        settings = {"tied_embeddings": "target", **settings}  # two vocabularies
    joint = settings.get("tied_embeddings", TransformerConfig.tied_embeddings) == "all"
    src, tgt = new_words(corpus, joint, cut) if words else new_subwords(corpus["train"], joint, vocab)
    config = getattr(TransformerConfig, preset)(len(src), len(tgt), **settings)
    try:
        return EncoderDecoder.from_config(config), src, tgt
    except (RuntimeError, MemoryError) as error:  # larger than the memory
        why = str(error).partition("\n")[0]
        raise ValueError(f"no model of these sizes can be built here: {why}") from None


def new_words(corpus: Corpus, joint: bool, cut: bool) -> list[Tokenizer]:
    """Learn the words of each language from the training text; text already cut is taken as it is."""
    if joint:
        raise ValueError("words make two vocabularies: use --tied-embeddings target or none with them")
    if cut and corpus.pair is None:
        raise ValueError("words are cut by the rules of a language: name the two with --pair, such as de-en")
    text = corpus["train"]
    sides = ((text.src, corpus.src_language), (text.tgt, corpus.tgt_language))
    return [WordTokenizer.train(side, language if cut else None) for side, language in sides]


def new_subwords(text: ParallelText, joint: bool, vocab: int) -> list[Tokenizer]:
    """Learn subwords from the training text, of both languages together or of each apart."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sides = [[*text.src, *text.tgt]] if joint else [text.src, text.tgt]
        learned = [SentencePieceTokenizer.train(side, vocab) for side in sides]
    for warning in caught:
        say(str(warning.message))
    return [learned[0], learned[-1]]


def first_pair(corpus: Corpus) -> str:
    """Show the first pair to be trained on, source → target, in a line of the terminal."""
    src, tgt = next(iter(corpus["train"]))
    one, other = (f"{name}: " if name else "" for name in (corpus.src_language, corpus.tgt_language))
    frame = f"  such as {one}'' → {other}''"
    room = max(20, (shutil.get_terminal_size().columns - len(frame)) // 2)
    return f"  such as {one}{shortened(src, room)!r} → {other}{shortened(tgt, room)!r}"


def split_settings(settings: dict[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """Tell settings of the model from those of training. Raises ValueError for one that is neither."""
    known = [
        {field.name for field in fields(kind)} - {"src_vocab", "tgt_vocab"}
        for kind in (TransformerConfig, TrainingConfig)
    ]
    for name in settings:
        if name not in set.union(*known):
            names = sorted({*(train.__kwdefaults__ or ())}.union(*known))
            near = HINTS.get(name) or next(iter(difflib.get_close_matches(name, names, 1)), None)
            hint = f"did you mean {near}?" if near else "`annotated train --help` lists all"
            raise ValueError(f"unknown setting {name!r}; {hint}")
    shape, training = ({name: settings[name] for name in settings if name in each} for each in known)
    return shape, training


def fingerprint(corpus: Corpus) -> str:
    """Compute the SHA-256 of the sentences to train and to validate on, wherever they were read from."""
    digest = hashlib.sha256()
    for split in ("train", "val"):
        for pair in corpus.splits.get(split, ()):
            digest.update("\n".join([split, *pair, ""]).encode())
    return digest.hexdigest()
