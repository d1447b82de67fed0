"""Settings for a text of one's own, from its size and from what this machine computes in the time there is.

The rules are few, and tuned by `benchmarks/own_data.py`. What decides is how many tokens can be read in the
time, and how often the text is read through by then: a small model learns more in few minutes than a large
one that sees less text, and what is read often needs dropout. Checkpoints are so close that the mean of the
last ones takes away the noise of a rate that is still high at the end.
"""

import math
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

import torch

from annotated.batches import Batch
from annotated.transformer.config import TransformerConfig
from annotated.transformer.model import EncoderDecoder
from annotated.translation.data.pairs import ParallelText
from annotated.translation.tokenizers import PAD
from annotated.translation.training.config import MODEL_FIELDS
from annotated.translation.training.summed_loss import SummedLoss, compute_context

# Layers and width of a model, and the tokens that it can read in the time from which on the next learns more.
SHAPES = (2, 64, 2**20), (2, 128, 2**25), (4, 256, math.inf)
SAMPLE = 2000  # pairs by which lengths are estimated
LETTERS = 3.5  # characters of a subword, about
UPDATE_SHARE = 0.85  # share of the time that goes into epochs; the rest reads and learns the subwords
EPOCH_END = 0.5  # seconds to validate and save at the end of an epoch, which count where epochs are short
MIN_OCCURRENCES = 5  # a word is learned that is read so often
CLOSED_SHARE = 0.98  # whole words serve where so much of the text is such words
MIN_UPDATES = 2000  # wanted at least, in batches of 256 to 4,096 tokens
FEW_PASSES, MANY_PASSES = 5, 40  # through the text, that need no dropout, or more of it
CHECKPOINTS = 30  # in a run, of which the last 5 are averaged
MINUTES = 10
NO_LIMIT = 10**8  # of epochs or updates, where the other one ends a run


def choose_settings(
    text: ParallelText,
    kinds: tuple[str, str],
    minutes: float | None,
    explicit: dict[str, Any],
    device: torch.device,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[dict[str, Any], str]:
    """Choose the settings that are not `explicit`; returns all of them, and the lines that say why.

    A run without `minutes` lasts as many epochs as are explicit, or ten minutes.
    """
    sample = text.take(range(0, len(text), math.ceil(len(text) / SAMPLE)))
    lengths = [mean_length(side, kind) for side, kind in zip((sample.src, sample.tgt), kinds, strict=True)]
    vocab = explicit.get("vocab") or vocabulary(text)
    epoch_tokens = len(text) * max(lengths)
    by_epochs = minutes is None and "epochs" in explicit
    step = {name: explicit[name] for name in ("rdrop_weight", "precision") if name in explicit}
    for layers, width, most in SHAPES:
        shape = {"N": layers, "d_model": width, "d_ff": 4 * width, "h": width // 32, "norm_first": True}
        chosen = shape | {name: value for name, value in explicit.items() if name in MODEL_FIELDS}
        config = TransformerConfig.base(vocab, vocab, **chosen)
        speed = tokens_per_second(config, lengths, device, clock, **step)
        token_seconds = 1 / speed + EPOCH_END / epoch_tokens
        read = (minutes or MINUTES) * 60 * UPDATE_SHARE / token_seconds  # tokens, of the longer side
        if by_epochs:
            read = explicit["epochs"] * epoch_tokens
        if read < most:
            break
    pre_norm = chosen["norm_first"]
    accumulate = explicit.get("accumulate", 1)
    power_of_2 = 2 ** round(math.log2(read / MIN_UPDATES / accumulate))
    batch_tokens = explicit.get("max_tokens") or min(4096, max(256, power_of_2))
    update_tokens = batch_tokens * accumulate
    chosen |= {
        "learning_rate": (0.003 if pre_norm else 0.002) * math.sqrt(128 / chosen["d_model"]),
        "max_tokens": batch_tokens,
        "max_steps": NO_LIMIT if by_epochs else max(100, int(read / update_tokens)),
        "epochs": NO_LIMIT,
    }
    subwords = ""
    if kinds == ("subwords", "subwords"):
        chosen["vocab"] = vocab
        subwords = f", {vocab:,} subwords"
    settings = chosen | explicit
    steps = min(settings["max_steps"], math.ceil(settings["epochs"] * epoch_tokens / update_tokens))
    passes = min(settings["epochs"], steps * update_tokens / epoch_tokens)
    settings.setdefault("dropout", 0.0 if passes < FEW_PASSES else 0.1 if passes < MANY_PASSES else 0.2)
    save_every = settings.setdefault("save_every", max(10, steps // CHECKPOINTS))
    rate = settings["learning_rate"]
    estimate = steps * update_tokens * token_seconds / 60 / UPDATE_SHARE  # minutes
    norm = "pre-norm, for a high rate" if pre_norm else "post-norm"
    reason = f"""chosen for {len(text):,} pairs of about {lengths[0]:.0f} and {lengths[1]:.0f} tokens:
  {steps:,} updates of {update_tokens:,} tokens: {estimate:.2g} min, of {speed:,.0f} tokens a second here
  {settings["N"]} layers of width {settings["d_model"]}{subwords}: what learns most in that time; {norm}
  dropout {settings["dropout"]}: read {passes:,.1f} times; rate {rate:.4f}; saved each {save_every} updates
  the speed is measured, so another call may choose otherwise: the run's training.json repeats this one"""
    return settings, reason


def vocabulary(text: ParallelText) -> int:
    """Return how many subwords fit a text: one for each word where hardly any is rare, else by its size."""
    words = Counter(chain.from_iterable(map(str.split, chain(text.src, text.tgt))))
    symbols = 400 + len(set(chain.from_iterable(words)))  # each character needs a place
    frequent = [n for n in words.values() if n >= MIN_OCCURRENCES]
    closed = sum(frequent) > CLOSED_SHARE * words.total()
    size = symbols + len(frequent) if closed else len(text) // 1000 * 140
    return max(symbols, min(8000, max(1000, size)))


def mean_length(sentences: Any, kind: str) -> float:
    """Estimate the tokens of a sentence, the end symbol counted."""
    letters = sum(map(len, sentences))
    words = sum(len(sentence.split()) for sentence in sentences)
    tokens = {"chars": letters, "subwords": max(words, letters / LETTERS)}.get(kind, words)
    return 1 + tokens / len(sentences)


def tokens_per_second(
    config: TransformerConfig,
    lengths: list[float],
    device: torch.device,
    clock: Callable[[], float],
    rdrop_weight: float = 0.0,
    precision: str = "float32",
) -> float:
    """Measure how many tokens of the longer side a second of training reads, before `torch.compile`."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        model = EncoderDecoder.from_config(config).to(device).train()
        loss = SummedLoss(model, smoothing=0.1, pad=PAD)
        adam = torch.optim.Adam(model.parameters(), fused=True)
        loss.rdrop_weight = rdrop_weight
        rows = max(1, int(1024 / max(lengths)))
        tokens = partial(torch.randint, 4, min(260, config.src_vocab), device=device)
        src, tgt = (tokens((rows, min(math.ceil(length), config.max_len))) for length in lengths)
        batch = Batch(src, torch.cat([tgt, tgt[:, :1]], 1), PAD)
        updates = -2  # two to warm up
        started = clock()
        while updates < 3 or clock() - started < 1:
            with compute_context(device, precision):
                loss(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask, batch.tgt_y).backward()
            adam.step()
            adam.zero_grad()
            updates += 1
            started = clock() if updates == 0 else started
    return updates * rows * max(src.size(1), tgt.size(1)) / (clock() - started)
