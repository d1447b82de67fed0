"""From sentence pairs to a translator in one call."""

import math
from collections.abc import Callable, Sequence
from dataclasses import MISSING, asdict, fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import cast

import torch

from annotated.search.config import EXTRA_TOKENS
from annotated.transformer.config import TransformerConfig
from annotated.transformer.model import EncoderDecoder
from annotated.translation.data.corpora import Text, own_corpus
from annotated.translation.data.pairs import Corpus
from annotated.translation.data.token_batches import (
    SubwordDropout,
    TokenBatches,
    encode_corpus,
)
from annotated.translation.devices import (
    broadcast,
    default_torch_state,
    find_device,
    is_first,
    print_message,
    process_group,
    raise_on_all_ranks,
)
from annotated.translation.storage.model_folder import (
    TrainedText,
    find_model,
    training_settings,
)
from annotated.translation.tokenizers import (
    KINDS,
    SUBWORDS,
    Tokenizer,
)
from annotated.translation.training.choose import choose
from annotated.translation.training.config import PRESETS, TrainingConfig
from annotated.translation.training.initial_model import (
    ModelAndTokenizers,
    Settings,
    load_to_go_on,
    load_to_start_from,
    new_model,
)
from annotated.translation.training.run_folder import LOG, RunFolder
from annotated.translation.training.trainer import Trainer
from annotated.translation.translator import Translator

FEW_UPDATES = 20  # in an epoch, below which the settings do not fit the text


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
        keep_equal: whether to keep pairs with equal sides; by default, if a side has chars or spaces.
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
    if preset is None:
        own = init_from is None and not (isinstance(corpus, Corpus) or callable(corpus))
        preset = "auto" if own else "tiny"
    kinds = (src_tokenizer or tokenizer or "subwords", tgt_tokenizer or tokenizer or "subwords")
    check_arguments(preset, minutes, init_from, kinds)
    if tokenizer and src_tokenizer and tgt_tokenizer:
        raise ValueError(f"tokenizer = {tokenizer!r} has no effect: each side has its own")
    if keep_equal is None and not callable(corpus):
        keep_equal = keeps_equal(init_from, *kinds)
    if init_from is not None and Path(init_from).expanduser().is_dir():
        init_from = Path(init_from).expanduser().absolute()
    base = "tiny" if preset == "auto" else preset  # until the text is known
    model_settings, config = split_settings(base, settings)
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
    run, device = RunFolder(out), find_device(device)
    with process_group(device), default_torch_state(device), run.open(resume):
        config, record = broadcast((config, record))
        with raise_on_all_ranks("; every node needs the text, in the same place"):
            text = corpus() if callable(corpus) else corpus
            text = own_corpus(text, validation, pair, bool(keep_equal), columns, cache)
        if record["preset"] == "auto":  # as the first process was asked
            given = {name: value for name, value in {**settings, "vocab": vocab}.items() if value is not None}
            chosen = choose_together(text, run, resume, kinds, minutes or 10, given, device)
            vocab = cast("int | None", chosen.pop("vocab", vocab))
            model_settings, config = split_settings("tiny", chosen)
            record |= {**model_settings, "vocab": vocab}
        record |= {"corpus": text.name, "pair": text.pair, "tokenized": text.tokenized, **text.origin}
        with raise_on_all_ranks():
            torch.manual_seed(config.seed)
            found = None
            if is_first() and resume and (newest := run.newest()):
                found = load_to_go_on(newest, model_settings)
            elif is_first() and init_from is not None:
                found = load_to_start_from(find_model(init_from), record, model_settings)
            elif is_first():
                found = new_model(text, base, kinds, vocab, model_settings, cache)
        return train_in_group(found, text, config, run, device, record, resume, cache)


# For completion and help in a notebook, the settings stand in the place of `**settings`; the preset, or the
# text, says what None becomes.
SETTINGS_TAKEN = [
    Parameter(field.name, Parameter.KEYWORD_ONLY, default=None, annotation=field.type)
    for cls in (TrainingConfig, TransformerConfig)
    for field in fields(cls)
    if field.default is not MISSING
]
own = [p for p in signature(train).parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
train.__signature__ = Signature([*own, *SETTINGS_TAKEN])  # type: ignore[attr-defined]


def train_in_group(
    found: ModelAndTokenizers | None,
    corpus: Corpus,
    config: TrainingConfig,
    run: RunFolder,
    device: torch.device,
    record: Settings,
    resume: bool,
    cache: str | Path | None,
) -> Translator:
    """Train as one of the processes that have joined; only the first has `found` the model to begin with.

    A function of its own: a process that leaves the group while it still holds the trainer may hang.
    """
    model_config, src, tgt = cast(
        tuple[TransformerConfig, Tokenizer, Tokenizer], broadcast(found and (found[0].config, *found[1:]))
    )
    model = found[0] if found else EncoderDecoder.from_config(model_config)
    print_message(
        f"{sum(p.numel() for p in model.parameters()):,} parameters, on {device}; the log is {run.path / LOG}"
    )
    # A sentence must fit into a batch and the model, with its end symbol.
    room = min(config.max_tokens, model.max_positions or config.max_tokens)
    limit = min(config.max_sentence, room - 1)
    with raise_on_all_ranks():
        pairs = encode_corpus(corpus["train"], src, tgt, limit, cache)
        print_message(f"{pairs.report()}\n{corpus.example()}")
        dropout = SubwordDropout(src, tgt, config.subword_dropout, limit) if config.subword_dropout else None
        batches = TokenBatches(pairs, config.max_tokens, seed=config.seed, dropout=dropout)
        if (updates := math.ceil(len(batches) / config.accumulate)) < FEW_UPDATES:
            print_message(
                f"  an epoch has only {updates} update{'s' * (updates > 1)}: a smaller max_tokens gives more"
            )
        validation = None
        if "val" in corpus:
            held_out = encode_corpus(corpus["val"], src, tgt, limit, cache)
            print_message(held_out.report())
            validation = TokenBatches(held_out, config.max_tokens, shuffle=False)
    longest = int(pairs.src.lengths.max())
    extra = max(EXTRA_TOKENS, int((pairs.tgt.lengths - 1 - pairs.src.lengths).max()))
    record["lengths"] = {"source": longest, "max_extra": extra}
    trainer = Trainer(model, (src, tgt), batches, validation, config, run, device, record, corpus.fingerprint)
    translator = Translator(model, src, tgt, **asdict(TrainedText.of(record)))
    trainer.run(resume)
    end = f"at step {trainer.progress.step}: the model is in {run.path}"
    if not trainer.progress.finished(config):
        raise Stopped(f"stopped {end}; --resume, in Python resume=True, goes on")
    early = trainer.progress.step < trainer.progress.last_step(config)
    print_message(f"finished{f', as {config.patience} scored epochs were no better,' * early} {end}")
    model.eval()
    return translator


def choose_together(
    text: Corpus,
    run: RunFolder,
    resume: bool,
    kinds: tuple[str, str],
    minutes: float,
    given: Settings,
    device: torch.device,
) -> Settings:
    """Choose in the first process, for all, the settings that are not given; a resumed run keeps its own."""
    with raise_on_all_ranks():
        if is_first() and resume and run.newest():
            names = {"vocab", *(f.name for kind in (TransformerConfig, TrainingConfig) for f in fields(kind))}
            before = training_settings(run.path).items()
            given = {name: value for name, value in before if name in names} | given
        elif is_first():
            given, why = choose(text["train"], kinds, minutes, given, device)
            print_message(why)
    return dict(broadcast(given))


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
        raise ValueError(f"minutes choose the settings of a new model, by the preset auto, not {preset}")
    if minutes is not None and not 0 < minutes < 2**31:
        raise ValueError(f"minutes must be above 0, not {minutes}")
    if preset == "auto" and init_from is not None:
        raise ValueError("the preset auto builds a new model; with init_from, give another")
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"the tokenizer must be one of {', '.join(KINDS)}, not {kind!r}")


def keeps_equal(init_from: str | Path | None, *kinds: str | None) -> bool:
    """Decide whether pairs with equal sides are kept: faults in translation, they are none in spelling."""
    if init_from is not None:
        return bool(training_settings(find_model(init_from)).get("keep_equal"))
    return not {"chars", "spaces"}.isdisjoint(kinds)


def split_settings(preset: str, settings: Settings) -> tuple[Settings, TrainingConfig]:
    """Split what is given of the settings into model and training; NumPy's numbers become Python's."""
    given = {name: value for name, value in settings.items() if value is not None}
    plain = {name: value.item() if hasattr(value, "item") else value for name, value in given.items()}
    names = {field.name for field in fields(TransformerConfig)} - {"src_vocab", "tgt_vocab"}
    model_settings = {name: plain.pop(name) for name in [*plain] if name in names}
    if unknown := plain.keys() - {field.name for field in fields(TrainingConfig)}:
        raise TypeError(f"train() got an unexpected keyword argument {min(unknown)!r}")
    return model_settings, getattr(TrainingConfig, preset)(**plain)
