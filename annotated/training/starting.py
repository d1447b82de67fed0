"""The model that a run starts from, that of the run to resume, another one or a new one; and what it takes to
go on with a run: the same settings and text, and one state in all processes."""

import warnings
from pathlib import Path

import torch
from torch import distributed as dist

from annotated.data.parallel import Corpus, ParallelText
from annotated.tokenizers import SentencePieceTokenizer, Tokenizer, WordTokenizer
from annotated.training.config import TrainingConfig
from annotated.training.devices import agreed, from_first, say
from annotated.training.progress import Progress
from annotated.training.run_folder import PLACES, RunFolder, optimizer_tensors
from annotated.training.update import Updater
from annotated.transformer.config import TransformerConfig
from annotated.transformer.model import EncoderDecoder
from annotated.translation.model_folder import find_model, load_model, weights


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
    elif init_from:
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


def check_run(
    out: RunFolder, settings: dict[str, object], mine: Progress, found: Progress, world: int
) -> int:
    """Raise ValueError where a run cannot go on exactly with these settings, text and processes.

    `mine` tells the text and the batches of an update as this run would have them, `found` as the checkpoint
    has them. Returns how many of those batches a process takes.
    """
    text, size = mine.text, found.update_batches
    free = PLACES if text and text == found.text else ()
    if mine.update_batches == size:
        free = (*free, "accumulate")
    out.check_settings({name: value for name, value in settings.items() if name not in free})
    if found.text not in ("", text):
        raise ValueError(
            f"{out.path} was begun with other text to train or validate on; resume it with that, or "
            f"begin another run with --init-from {out.path}"
        )
    if size % world:
        counts = ", ".join(str(n) for n in range(1, size + 1) if size % n == 0)
        raise ValueError(
            f"{out.path}: an update is made of {size} batches, which {world} processes cannot "
            f"share evenly; resume it with as many processes as one of {counts}"
        )
    return size // world


def share_state(
    updater: Updater, config: TrainingConfig, progress: Progress
) -> tuple[TrainingConfig, Progress]:
    """Give the first process's state to all, so that only that one needs to see the run's folder.

    Returns its settings and progress; weights and optimizer are changed in place. Raises SharedError where a
    process has another text.
    """
    if updater.world == 1:
        return config, progress
    text = progress.text
    config, progress = from_first((config, progress))
    with agreed("; copy the text of the first node"):
        if progress.text != text:
            raise ValueError("the training or validation text is another than on the first node")
    model, optimizer = updater.model, updater.optimizer
    if progress.step and updater.rank:
        for parameter in model.parameters():
            moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            optimizer.state[parameter] = {"step": torch.zeros((), device=updater.device), **moments}
    state = weights(model) | optimizer_tensors(model, optimizer)
    for name in sorted(state):
        dist.broadcast(state[name].detach(), 0)
    return config, progress
