"""From sentence pairs to a translator in one call."""

import difflib
import hashlib
import math
import shutil
import warnings
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import cast

import torch

from annotated.data.batches import TokenBatches
from annotated.data.encoding import SubwordDropout, encode_corpus
from annotated.data.own import Text, own_corpus
from annotated.data.parallel import Corpus, shortened
from annotated.tokenizers import KINDS, Tokenizer, train_tokenizer
from annotated.training.checkpoint import LOG, RunFolder
from annotated.training.config import HINTS, PRESETS, TrainingConfig
from annotated.training.distributed import agreed, find_device, from_first, is_first, processes, say
from annotated.training.progress import Stopped
from annotated.training.trainer import Trainer
from annotated.transformer.config import TransformerConfig
from annotated.transformer.model import EncoderDecoder
from annotated.translation.model_folder import find_model, load_model
from annotated.translation.translator import Translator

FEW = 20  # updates in an epoch, below which the user is told


def train(
    corpus: Corpus | Text,
    out: str | Path,
    preset: str = "tiny",
    *,
    validation: Text | None = None,
    pair: str | None = None,
    tokenizer: str = "subwords",
    src_tokenizer: str | None = None,
    tgt_tokenizer: str | None = None,
    vocab: int | None = None,
    keep_equal: bool | None = None,
    init_from: str | Path | None = None,
    resume: bool = False,
    device: str | torch.device = "auto",
    notes: dict[str, object] | None = None,
    cache: str | Path | None = None,
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
        tokenizer: units that text is cut into: subwords, words, chars (grapheme clusters), or spaces for text
            that is cut already, with spaces between tokens.
        src_tokenizer, tgt_tokenizer: the same for one side alone.
        vocab: number of tokens at most; without it 8,000 subwords, all words that occur twice, or all others.
            Both sides share a vocabulary if all embeddings are tied, as they are for subwords.
        keep_equal: whether to keep pairs with equal sides; without it, if a side has chars or spaces.
        init_from: model to start from, with its settings and tokenizers: its folder, or a shipped one's name.
        resume: go on with the run in `out`, with the same arguments; start it if there is none.
        device: where to compute: auto, cpu, cuda or mps.
        notes: further settings to remember in training.json.
        cache: folder for the encoded text, which processes and later runs on the same text share; without it
            each process keeps it in memory.
        settings: fields of `TrainingConfig` and `TransformerConfig`.

    Messages and a progress bar go to standard error. Raises ValueError, in one line, for what cannot be and
    for text that was not read as it was meant (see `own_corpus`); Stopped, a KeyboardInterrupt, after Ctrl-C,
    with the run saved; else as `Trainer.train` does.
    """
    kinds = (src_tokenizer or tokenizer, tgt_tokenizer or tokenizer)
    for name, value, choices in (
        ("preset", preset, PRESETS),
        *(("tokenizer", kind, KINDS) for kind in kinds),
    ):
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    if vocab is None and "subwords" in kinds:
        vocab = 8000
    if keep_equal is None:
        keep_equal = not {"chars", "spaces"}.isdisjoint(kinds)
    shape, training = split_settings(settings)
    config = getattr(TrainingConfig, preset)(**training)
    run, notes = RunFolder(out), notes or {}
    start_at = None if init_from is None else str(init_from)
    given = {"tokenizer": tokenizer, "vocab": vocab, "preset": preset, "init_from": start_at}
    given |= {"src_tokenizer": src_tokenizer, "tgt_tokenizer": tgt_tokenizer, "keep_equal": keep_equal}

    def start(text: Corpus) -> tuple[EncoderDecoder, Tokenizer, Tokenizer]:
        cut = notes.get("variant") != "tok"
        torch.manual_seed(config.seed)
        return model_to_go_on_with(run, resume, start_at, shape) or new_model(
            text, preset, shape, kinds, vocab, cut
        )

    place = device if isinstance(device, torch.device) else find_device(device)
    with processes(place):
        # A function of its own: a process that leaves the group while it still holds the trainer may hang.
        read = partial(own_corpus, corpus, validation, pair, keep_equal)
        return train_on(read, start, run, config, place, {**given, **shape, **notes}, resume, cache)


def train_on(
    read: Callable[[], Corpus],
    start: Callable[[Corpus], tuple[EncoderDecoder, Tokenizer, Tokenizer]],
    run: RunFolder,
    config: TrainingConfig,
    device: torch.device,
    notes: dict[str, object],
    resume: bool,
    cache: str | Path | None = None,
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

    def batches(split: str) -> TokenBatches:
        pairs, rate = encode_corpus(corpus[split], src, tgt, limit, cache), config.subword_dropout
        say(pairs.report())
        if split != "train":
            return TokenBatches(pairs, config.max_tokens, shuffle=False)
        say(first_pair(corpus))
        dropout = SubwordDropout(src, tgt, rate, limit) if rate else None
        return TokenBatches(pairs, config.max_tokens, seed=config.seed, dropout=dropout)

    with agreed():  # what is wrong with the text is told before the run begins
        training = batches("train")
        validation = batches("val") if "val" in corpus.splits else None
    notes = {"corpus": corpus.name, "pair": corpus.pair, **notes}
    text = fingerprint(corpus)
    trainer = Trainer(model, (src, tgt), training.at, validation, config, run.path, device, notes, text)
    updates = math.ceil(len(training) / trainer.progress.update_batches)
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
    corpus: Corpus,
    preset: str,
    settings: dict[str, object],
    kinds: tuple[str, str],
    vocab: int | None,
    cut: bool,
) -> tuple[EncoderDecoder, Tokenizer, Tokenizer]:
    """Build a new model; unless all its embeddings are tied, each side has a vocabulary of its own."""
    if kinds != ("subwords", "subwords"):
        settings = {"tied_embeddings": "target", **settings}  # two vocabularies
    joint = settings.get("tied_embeddings", TransformerConfig.tied_embeddings) == "all"
    src, tgt = new_tokenizers(corpus, kinds, joint, vocab, cut)
    config = getattr(TransformerConfig, preset)(len(src), len(tgt), **settings)
    try:
        return EncoderDecoder.from_config(config), src, tgt
    except (RuntimeError, MemoryError) as error:  # larger than the memory
        why = str(error).partition("\n")[0]
        raise ValueError(f"no model of these sizes can be built here: {why}") from None


def new_tokenizers(
    corpus: Corpus, kinds: tuple[str, str], joint: bool, vocab: int | None, cut: bool
) -> list[Tokenizer]:
    """Learn a tokenizer from both sides of the training text together, or one from each."""
    text = corpus["train"]
    languages = (corpus.src_language, corpus.tgt_language) if cut else (None, None)
    if joint and (kinds[0] != kinds[1] or (kinds[0] == "words" and languages[0] != languages[1])):
        raise ValueError(
            "two tokenizers make two vocabularies: use --tied-embeddings target or none with them"
        )
    sides = [[*text.src, *text.tgt]] if joint else [text.src, text.tgt]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learned = [
            train_tokenizer(kind, side, vocab, language)
            for kind, side, language in zip(kinds, sides, languages, strict=False)
        ]
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
