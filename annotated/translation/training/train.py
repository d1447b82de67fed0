"""From sentence pairs to a translator in one call."""

import math
from collections.abc import Callable, Sequence
from dataclasses import MISSING, asdict, fields, replace
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, TypeVar

import torch

from annotated.search.config import EXTRA_TOKENS
from annotated.transformer.config import TransformerConfig
from annotated.transformer.model import EncoderDecoder
from annotated.translation.data.corpora import Text, own_corpus
from annotated.translation.data.pairs import Corpus
from annotated.translation.data.token_batches import TokenBatches, encode_corpus
from annotated.translation.devices import default_torch_state, find_device
from annotated.translation.messages import print_message
from annotated.translation.processes import (
    broadcast,
    is_first,
    process_group,
    raise_on_all_ranks,
    rank_and_world,
)
from annotated.translation.storage.model_folder import TrainedText, find_model, training_settings
from annotated.translation.tokenizers import KINDS, SUBWORDS, Tokenizer
from annotated.translation.training.auto_settings import MODEL_FIELDS, choose_together
from annotated.translation.training.checkpoint import check_settings
from annotated.translation.training.config import PRESETS, Progress, TrainingConfig, split_settings
from annotated.translation.training.run_folder import LOG, RunFolder
from annotated.translation.training.starting_model import (
    ModelAndTokenizers,
    Settings,
    load_to_go_on,
    load_to_start_from,
    new_model,
)
from annotated.translation.training.trainer import Trainer
from annotated.translation.translator import Translator

Function = TypeVar("Function", bound=Callable[..., Any])

FEW_UPDATES = 20  # in an epoch, below which the settings do not fit the text


class Stopped(KeyboardInterrupt):
    """Ctrl-C or SIGTERM ended a run after it was saved; the message says where, and how to resume it."""


def with_settings(function: Function) -> Function:
    """Show the settings in place of `**settings`, for completion and for help in a notebook.

    The preset, or the text, says what None becomes.
    """
    settings = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=None, annotation=field.type)
        for cls in (TrainingConfig, TransformerConfig)
        for field in fields(cls)
        if field.default is not MISSING
    ]
    *named, _ = signature(function).parameters.values()
    function.__signature__ = Signature([*named, *settings])  # type: ignore[attr-defined]
    return function


@with_settings
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
        preset: the settings to start from: tiny, base or big, or auto, which chooses them (see `choose`). By
            default auto for text of one's own, else tiny. Since auto measures how fast this machine is now,
            another call may choose another `max_steps`, even another size. To repeat a run, give the settings
            in its training.json: `annotated train --config` takes that file.
        minutes: time for which auto chooses settings, about; 10 by default.
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
    preset = preset or default_preset(not (isinstance(corpus, Corpus) or callable(corpus)), init_from)
    kinds = (src_tokenizer or tokenizer or "subwords", tgt_tokenizer or tokenizer or "subwords")
    check_arguments(preset, minutes, init_from, kinds)
    if tokenizer and src_tokenizer and tgt_tokenizer:
        raise ValueError(f"tokenizer = {tokenizer!r} has no effect: each side has its own")
    if keep_equal is None and not callable(corpus):
        keep_equal = keeps_equal(init_from, *kinds)
    if init_from is not None and Path(init_from).expanduser().is_dir():
        init_from = Path(init_from).expanduser().absolute()
    run, device, choosing = RunFolder(out), find_device(device), preset == "auto"
    given: Settings = {**settings, "vocab": vocab}
    given = {name: value for name, value in given.items() if value is not None}
    if choosing and resume and run.newest():  # it goes on with what was chosen when it began
        choosing, names = False, {"vocab", *MODEL_FIELDS, *(field.name for field in fields(TrainingConfig))}
        given = {name: value for name, value in training_settings(run.path).items() if name in names} | given
    base = "tiny" if preset == "auto" else preset  # until the text is known
    vocab, model_settings, config = split_settings(base, given)
    record: Settings = {
        "tokenizer": tokenizer or (None if init_from or (src_tokenizer and tgt_tokenizer) else "subwords"),
        "src_tokenizer": src_tokenizer,
        "tgt_tokenizer": tgt_tokenizer,
        "vocab": SUBWORDS if vocab is None and {*kinds} == {"subwords"} and not init_from else vocab,
        "preset": preset,
        "minutes": minutes,
        "init_from": init_from and str(init_from),
        "keep_equal": keep_equal,
        **model_settings,
    }
    with process_group(device), default_torch_state(device), run.open(resume):
        begun = None
        with raise_on_all_ranks():  # before the text is read, which may take long
            if is_first() and resume and (newest := run.newest()):
                begun = load_to_go_on(newest, model_settings)
                saved, world = Progress.load(newest), rank_and_world()[1]
                progress = replace(saved, update_batches=config.accumulate * world)
                asked = {**record, **asdict(config), **({"pair": pair} if pair else {})}
                check_settings(newest, saved, asked, progress)
        config, record, choosing = broadcast((config, record, choosing))  # as the first process was asked
        with raise_on_all_ranks("; every node needs the text, in the same place"):
            text = corpus() if callable(corpus) else corpus
            text = own_corpus(text, validation, pair, keep_equal, columns, cache)
        if choosing:
            chosen = choose_together(text, kinds, minutes or 10, given, device)
            vocab, model_settings, config = split_settings("tiny", chosen)
            record |= {**model_settings, "vocab": vocab}
        record |= {"corpus": text.name, "pair": text.pair, "tokenized": text.tokenized, **text.origin}
        with raise_on_all_ranks():
            torch.manual_seed(config.seed)
            if is_first() and begun is None and init_from is not None:
                begun = load_to_start_from(find_model(init_from), record, model_settings)
            elif is_first() and begun is None:
                begun = new_model(text, base, kinds, vocab, model_settings, cache)
        return train_in_group(begun, text, config, run, device, record, resume, cache)


def train_in_group(
    begun: ModelAndTokenizers | None,
    corpus: Corpus,
    config: TrainingConfig,
    run: RunFolder,
    device: torch.device,
    record: Settings,
    resume: bool,
    cache: str | Path | None,
) -> Translator:
    """Train as one of the processes that have joined; only the first has the model that the run begins with.

    A function of its own: a process that leaves the group while it still holds the trainer may hang.
    """
    parts = broadcast(begun and (begun[0].config, begun[1], begun[2]))
    assert parts is not None
    model_config, src, tgt = parts
    model = begun[0] if begun else EncoderDecoder.from_config(model_config)  # the trainer copies the weights
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print_message(f"{parameters:,} parameters, on {device}; the log is {run.path / LOG}")
    # A sentence must fit into a batch and the model, with its end symbol.
    limit = min(config.max_sentence, min(config.max_tokens, model.max_positions or config.max_tokens) - 1)
    with raise_on_all_ranks():
        batches, validation = make_batches(corpus, src, tgt, config, limit, cache)
    pairs = batches.pairs
    extra = max(EXTRA_TOKENS, int((pairs.tgt.lengths - 1 - pairs.src.lengths).max()))
    record["lengths"] = {"source": int(pairs.src.lengths.max()), "max_extra": extra}
    trainer = Trainer(model, (src, tgt), batches, validation, config, run, device, record, corpus.fingerprint)
    translator = Translator(model, src, tgt, **asdict(TrainedText.of(record)))
    trainer.run(resume)
    end = f"at step {trainer.progress.step}: the model is in {run.path}"
    if not trainer.progress.finished(config):
        raise Stopped(f"stopped {end}; --resume, in Python resume=True, goes on")
    early = trainer.progress.step < trainer.progress.last_step(config)
    why = f", as {config.patience} scored epochs were no better," if early else ""
    if not early and trainer.progress.step < config.max_steps:
        why = f", after epoch {config.epochs},"
    print_message(f"finished{why} {end}")
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
        print_message(f"  an epoch has only {number}: a smaller max_tokens gives more")
    if "val" not in corpus:
        return batches, None
    held_out = encode_corpus(corpus["val"], src, tgt, limit, cache)
    print_message(held_out.report())
    return batches, TokenBatches(held_out, config.max_tokens, shuffle=False)


# ---- the arguments


def check_arguments(
    preset: str,
    minutes: float | None,
    init_from: str | Path | None,
    kinds: tuple[str, str],
) -> None:
    """Raise ValueError for arguments that contradict each other, or that there are not."""
    if preset not in PRESETS:
        raise ValueError(f"the preset must be one of {', '.join(PRESETS)}, not {preset!r}")
    if minutes is not None and preset != "auto":
        other = preset if init_from is None else "init_from"
        raise ValueError(f"minutes choose the settings of a new model; for {other}, give epochs or max_steps")
    if minutes is not None and not 0 < minutes < 2**31:
        raise ValueError(f"minutes must be above 0 and below 2^31, not {minutes}")
    if preset == "auto" and init_from is not None:
        raise ValueError("the preset auto builds a new model; with init_from, give another")
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"the tokenizer must be one of {', '.join(KINDS)}, not {kind!r}")


def default_preset(own: bool, init_from: str | Path | None) -> str:
    """Let settings be chosen for text of one's own, where no model has them already."""
    return "auto" if own and init_from is None else "tiny"


def keeps_equal(init_from: str | Path | None, *kinds: str | None) -> bool | None:
    """Decide whether pairs with equal sides are kept: faults in translation, they are none in spelling.

    None leaves them out where they are few.
    """
    if init_from is not None:
        return training_settings(find_model(init_from)).get("keep_equal") or None
    return None if {"chars", "spaces"}.isdisjoint(kinds) else True
