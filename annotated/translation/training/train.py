"""From sentence pairs to a translator in one call."""

import math
from collections.abc import Callable, Sequence
from dataclasses import MISSING, asdict, fields
from inspect import Parameter, Signature, signature
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from annotated.search.config import EXTRA_TOKENS
from annotated.transformer.config import TransformerConfig
from annotated.transformer.model import EncoderDecoder
from annotated.transformer.variants import VARIANTS, replaced
from annotated.translation.data.corpora import Text, own_corpus
from annotated.translation.data.pairs import Corpus
from annotated.translation.data.token_batches import TokenBatches, encode_corpus
from annotated.translation.devices import default_torch_state, find_device
from annotated.translation.messages import print_message
from annotated.translation.processes import broadcast, is_first, process_group, raise_on_all_ranks
from annotated.translation.storage.model_folder import TrainedText
from annotated.translation.tokenizers import Tokenizer
from annotated.translation.training.config import TrainingConfig
from annotated.translation.training.run_folder import LOG, RunFolder
from annotated.translation.training.run_settings import RunSettings, default_preset, keeps_equal
from annotated.translation.training.starting_model import ModelAndTokenizers, load_model_for, new_model
from annotated.translation.training.trainer import Trainer
from annotated.translation.translator import Translator

FEW_UPDATES = 20  # settings that give an epoch fewer updates do not fit the text
FEW_PAIRS = 20  # scores on fewer validation pairs are mostly luck


class Stopped(KeyboardInterrupt):
    """Ctrl-C or SIGTERM ended a run after it was saved; the message says where, and how to resume it."""


def train(
    corpus: Corpus | Text | Callable[[], Corpus],
    out: str | Path,
    preset: str | None = None,
    *,
    minutes: float | None = None,
    validation: Text | None = None,
    pair: str | None = None,
    columns: Sequence[str | int] | None = None,
    tokenizer: str | None = None,
    src_tokenizer: str | None = None,
    tgt_tokenizer: str | None = None,
    vocab: int | None = None,
    keep_equal: bool | None = None,
    init_from: str | Path | None = None,
    resume: bool = False,
    device: str | torch.device = "auto",
    cache: str | Path | None = None,
    **settings: object,
) -> Translator:
    """Train a translation model in the folder `out`, and return its translator.

        translate = annotated.train([("A dog.", "Ein Hund."), ...], "runs/mine", epochs=20)
        translate = annotated.train(zip(frame["en"], frame["de"]), "runs/mine")       # a frame of pandas
        translate = annotated.train("mine.tsv", "runs/mine", pair="en-de", validation=("val.en", "val.de"))
        translate("A cat.")

    `annotated train` does the same from the shell.

    Args:
        corpus: sentence pairs, in any form that `data.own_text` takes: an iterable of pairs, the
            path of a TSV file or those of two files; or a `Corpus`, such as `load_corpus` returns, or a
            function that returns one.
        out: a new or an empty folder, or with `resume` that of the run (see `RunFolder`).
        preset: the settings to start from: tiny, base, big, or auto, which chooses them (`choose_settings`);
            by default auto for text of one's own, else tiny. Since auto measures how fast this machine is,
            another call may choose another `max_steps`, even another size. To repeat a run, give the settings
            in its training.json: `annotated train --config` takes that file.
        minutes: time for which auto chooses settings, about; by default 10, or what `epochs` takes.
        validation: pairs to validate on, in the same forms; by default 5% of the corpus are held out.
        pair: the languages, such as "en-de", where they are known.
        columns: names or numbers, from 1, of the columns of source and target, for the path of a table.
        tokenizer: units of the text: subwords (the default), words, chars (grapheme clusters), or spaces
            for text that is cut already, with spaces between tokens.
        src_tokenizer, tgt_tokenizer: the same for one side alone.
        vocab: number of tokens at most; by default 8,000 subwords, all words that occur twice, or all others.
            Both sides share a vocabulary if all embeddings are tied, as they are for subwords.
        keep_equal: whether to keep pairs with equal sides; by default, if a side has chars or spaces;
            False leaves them out even where most pairs are such.
        init_from: model to start from, with its settings and tokenizers: a folder, or a shipped model's name.
        resume: go on with the run in `out`, with the same arguments; start it if there is none.
        device: auto, cpu, cuda, cuda:1, ... or mps.
        cache: folder for the encoded text, which processes and later runs on the same text share; by default
            each process keeps it in memory.
        settings: fields of `TrainingConfig` and `TransformerConfig`; None leaves one to the preset.

    Messages and a progress bar go to standard error. PyTorch's global state (random numbers, threads, default
    dtype, gradient mode) is restored afterwards; it is the process's, so train in one thread at a time. A
    variant that draws random numbers must draw PyTorch's, or a resumed run is not the one that was stopped.

    Raises:
        ValueError: for settings that contradict each other, and for text that was not read as it was meant.
        Stopped: a KeyboardInterrupt, after Ctrl-C, with the run saved.
        TrainingError: where the loss or its gradient is not finite.
    """
    for name, path in {"out": out, "init_from": init_from or "", "cache": cache or ""}.items():
        if not isinstance(path, str | PathLike):
            raise ValueError(f"{name} must be a path or a name, not {path!r}")
    own_text = not (isinstance(corpus, Corpus) or callable(corpus))
    preset = preset or default_preset(own_text, init_from)
    if keep_equal is None and not callable(corpus):
        keep_equal = keeps_equal(init_from, src_tokenizer or tokenizer, tgt_tokenizer or tokenizer)
    if init_from is None and not (src_tokenizer and tgt_tokenizer):
        tokenizer = tokenizer or "subwords"
    if init_from is not None and (folder := Path(init_from).expanduser()).is_dir():
        init_from = folder.absolute()
    settings |= {"vocab": vocab, "minutes": minutes}
    given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    # NumPy's numbers become Python's, which JSON can hold.
    given = {name: value.item() if hasattr(value, "item") else value for name, value in given.items()}
    run_settings = RunSettings(
        preset=preset,
        minutes=given.pop("minutes", None),
        init_from=None if init_from is None else str(init_from),
        tokenizer=tokenizer,
        src_tokenizer=src_tokenizer,
        tgt_tokenizer=tgt_tokenizer,
        keep_equal=keep_equal,
        settings=given,
        complete=preset != "auto",
    )
    run_folder = RunFolder(out)
    device = find_device(device)
    if resume and run_folder.newest() and not run_settings.complete:
        run_settings = run_settings.completed_from(run_folder.path)
    with process_group(device), default_torch_state(device), run_folder.open(resume):
        starting_point: ModelAndTokenizers | None = None
        with raise_on_all_ranks():  # before the text is read, which may take long
            if is_first():
                checkpoint = run_folder.newest() if resume else None
                starting_point = load_model_for(run_settings, checkpoint, pair)
        run_settings = broadcast(run_settings)  # the first process's arguments hold for all
        with raise_on_all_ranks("; every node needs the text, in the same place"):
            text = corpus() if callable(corpus) else corpus
            text = own_corpus(text, validation, pair, run_settings.keep_equal, columns, cache)
        if not run_settings.complete:
            run_settings = run_settings.completed_for(text, device)
        with raise_on_all_ranks():
            torch.manual_seed(run_settings.training().seed)
            if is_first() and starting_point is None:
                starting_point = new_model(run_settings, text, cache)
        return train_in_group(starting_point, text, run_settings, run_folder, device, resume, cache)


# Completion and help show the settings in place of `**settings`. None leaves one to the preset or the text.
train.__signature__ = Signature(  # type: ignore[attr-defined]
    [parameter for parameter in signature(train).parameters.values() if parameter.name != "settings"]
    + [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=None, annotation=field.type)
        for cls in (TrainingConfig, TransformerConfig)
        for field in fields(cls)
        if field.default is not MISSING
    ]
)


def train_in_group(
    starting_point: ModelAndTokenizers | None,
    corpus: Corpus,
    settings: RunSettings,
    run_folder: RunFolder,
    device: torch.device,
    resume: bool,
    cache: str | Path | None,
) -> Translator:
    """Train as one of the processes that have joined; only the first has the model to start from.

    A function of its own: a process that leaves the group while it still holds the trainer may hang.
    """
    shared = broadcast(starting_point and (starting_point[0].config, *starting_point[1:]))
    assert shared is not None
    model_config, src, tgt = shared
    # The trainer copies the weights of the first process to the others.
    model = starting_point[0] if starting_point else EncoderDecoder.from_config(model_config)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    name = model_config.variant
    changed = "" if name == "paper" else f"variant {name}: {', '.join(replaced(VARIANTS[name]))}; "
    print_message(f"{changed}{parameters:,} parameters, on {device}; the log is {run_folder.path / LOG}")
    config = settings.training()
    # A sentence must fit into a batch and the model, with its end symbol.
    limit = min(config.max_sentence, min(config.max_tokens, model.max_positions or config.max_tokens) - 1)
    with raise_on_all_ranks():
        batches, validation = make_batches(corpus, src, tgt, config, limit, cache)
    sources, targets = batches.pairs.src.lengths, batches.pairs.tgt.lengths
    extra = max(EXTRA_TOKENS, int((targets - 1 - sources).max()))
    record = settings.record() | {"corpus": corpus.name, "pair": corpus.pair, "tokenized": corpus.tokenized}
    record |= {**corpus.origin, "lengths": {"source": int(sources.max()), "max_extra": extra}}
    trainer = Trainer(
        model=model,
        tokenizers=(src, tgt),
        batches=batches,
        validation=validation,
        config=config,
        out=run_folder,
        device=device,
        record=record,
        fingerprint=corpus.fingerprint,
    )
    translator = Translator(model, src, tgt, **asdict(TrainedText.of(record)))
    trainer.run(resume)
    end = f"at step {trainer.progress.step}: the model is in {run_folder.path}"
    if not trainer.progress.finished(config):
        raise Stopped(f"stopped {end}; --resume, in Python resume=True, goes on")
    reason = ""
    if trainer.progress.step == trainer.first_step:
        reason = ", as nothing was left to do,"
    elif trainer.progress.step < trainer.progress.last_step(config):
        reason = f", as {config.patience} scored epochs were no better,"
    elif trainer.progress.step < config.max_steps:
        reason = f", after epoch {config.epochs},"
    print_message(f"finished{reason} {end}")
    model.eval()
    return translator


def make_batches(
    corpus: Corpus,
    src: Tokenizer,
    tgt: Tokenizer,
    config: TrainingConfig,
    limit: int,
    cache: str | Path | None,
) -> tuple[TokenBatches, TokenBatches | None]:
    """Encode sentences of at most `limit` tokens: batches to train on, and those to validate on, if any."""
    pairs = encode_corpus(corpus["train"], src, tgt, limit, cache)
    print_message(f"{pairs.report()}\n{corpus.example()}")
    batches = TokenBatches(pairs, config.max_tokens, seed=config.seed)
    if (updates := math.ceil(len(batches) / config.accumulate)) < FEW_UPDATES:
        number = "1 update" if updates == 1 else f"{updates} updates"
        advice = "a smaller --max-tokens, in Python max_tokens, gives more"
        print_message(f"  an epoch has only {number}: {advice}")
    if "val" not in corpus:
        return batches, None
    held_out = encode_corpus(corpus["val"], src, tgt, limit, cache)
    print_message(held_out.report())
    if len(held_out) < FEW_PAIRS:
        print_message("  so few say little; give more to validate on, by --val-src, in Python validation")
    return batches, TokenBatches(held_out, config.max_tokens, shuffle=False)
