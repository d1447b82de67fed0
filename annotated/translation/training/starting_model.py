"""The model that a run starts from, new or loaded, and what is tried out before its first update."""

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from annotated.evaluation_mode import evaluating
from annotated.transformer.attention import subsequent_mask
from annotated.transformer.cache import DecoderCache
from annotated.transformer.config import TransformerConfig
from annotated.transformer.model import EncoderDecoder
from annotated.translation.data.pairs import CACHE_FORMAT, Corpus
from annotated.translation.files import cached_folder
from annotated.translation.messages import print_message
from annotated.translation.processes import rank_and_world
from annotated.translation.storage import model_folder
from annotated.translation.tokenizers import Tokenizer, load_tokenizer, train_tokenizer
from annotated.translation.tokenizers.subwords import MOST_LINES
from annotated.translation.training.checkpoint import check_settings
from annotated.translation.training.progress import Progress
from annotated.translation.training.run_settings import RunSettings

ModelAndTokenizers = tuple[EncoderDecoder, Tokenizer, Tokenizer]


def load_model_for(run: RunSettings, checkpoint: Path | None, pair: str | None) -> ModelAndTokenizers | None:
    """Load the model of the run to resume, or that of `init_from`; None if a new one is to be built.

    Raises ValueError if its settings or tokenizers differ from those that are given.
    """
    if checkpoint is not None:
        model = load_matching_model(checkpoint, run.model)
        saved, training = Progress.load(checkpoint), run.training()
        progress = replace(saved, update_batches=training.accumulate * rank_and_world()[1])
        requested = {**run.record(), **asdict(training), **({"pair": pair} if pair else {})}
        check_settings(checkpoint, saved, requested, progress)
        return model
    if run.init_from is None:
        return None
    folder = model_folder.find_model(run.init_from)
    trained = model_folder.training_settings(folder)
    record = run.record()
    for name in ("tokenizer", "src_tokenizer", "tgt_tokenizer", "vocab"):
        if record[name] not in (None, trained.get(name)):
            raise ValueError(f"{folder} keeps its tokenizers: {name} = {record[name]!r} has no effect")
    if pair and trained.get("pair") not in (None, pair):
        print_message(f"the model in {folder} was trained for {trained['pair']}, and now learns {pair}")
    return load_matching_model(folder, run.model)


def load_matching_model(folder: Path, settings: Mapping[str, object]) -> ModelAndTokenizers:
    """Load a model to train further. Raises ValueError if its settings differ from those that are given."""
    model, src, tgt = model_folder.load_model(folder)
    for name, value in settings.items():
        if value != (saved := getattr(model.config, name)):
            advice = "leave it out, for a model keeps its settings"
            raise ValueError(f"{name} is {saved!r} in {folder}, not {value!r}: {advice}")
    return model, src, tgt


def new_model(run: RunSettings, corpus: Corpus, cache: str | Path | None) -> ModelAndTokenizers:
    """Build a new model and train its tokenizers on the training text.

    Unless all embeddings are tied, each side has a vocabulary of its own. Words are cut by the rules of their
    language, or in tokenized text at spaces.
    """
    kinds, settings = run.kinds, run.model
    if kinds != ("subwords", "subwords"):
        settings = {"tied_embeddings": "target", **settings}
    languages = (None, None) if corpus.tokenized else (corpus.src_language, corpus.tgt_language)
    learn = partial(new_tokenizer, corpus, run.settings.get("vocab"), cache)
    make_config = getattr(TransformerConfig, run.base)
    if make_config(1, 1, **settings).tied_embeddings != "all":
        src = learn(kinds[0], languages[0], "src")
        tgt = learn(kinds[1], languages[1], "tgt")
    elif kinds[0] != kinds[1] or (kinds[0] == "words" and languages[0] != languages[1]):
        raise ValueError("two tokenizers make two vocabularies: tied_embeddings must be target or none")
    else:
        src = tgt = learn(kinds[0], languages[0], "src", "tgt")
    return EncoderDecoder.from_config(make_config(len(src), len(tgt), **settings)), src, tgt


def new_tokenizer(
    corpus: Corpus, vocab: int | None, cache: str | Path | None, kind: str, language: str | None, *sides: str
) -> Tokenizer:
    """Train a tokenizer on sides of the training text, or load the one in the cache."""
    texts = [getattr(corpus["train"], side) for side in sides]
    every = math.ceil(sum(map(len, texts)) / MOST_LINES) if kind == "subwords" else 1
    lines = chain.from_iterable(text[::every] for text in texts)
    learn = partial(train_tokenizer, kind, lines, vocab, language)
    if cache is None:
        return learn()
    key = f"{CACHE_FORMAT} {corpus.fingerprint} {kind} {language} {sides} {vocab}"
    folder = cached_folder(cache, "tokenizer", key, lambda new: learn().save(new, "tokenizer"))
    return load_tokenizer(folder, "tokenizer")


# ---- before the first update


def rehearse(folder: Path, model: EncoderDecoder, *tokenizers: Tokenizer) -> None:
    """Save, load and run a model that is to be trained, in a temporary folder inside of `folder`.

    Raises ValueError if it would not come back as it is, and as `check_variant` does.
    """
    with TemporaryDirectory(prefix=".rehearsal.", suffix=".partial", dir=folder) as rehearsal:
        model_folder.save_model(Path(rehearsal), model, *tokenizers)
        loaded, *_ = model_folder.load_model(rehearsal)
    with torch.no_grad():
        model_folder.random_output(loaded.train())  # what training changes must be saved and loaded, too
    model_folder.check_can_be_saved(loaded)
    if loaded.config.variant != "paper":
        check_variant(loaded)


def check_variant(model: EncoderDecoder) -> None:
    """Raise ValueError for a variant that sees what masks hide, or whose search differs from its training.

    Noise is added to the weights, since a learned bias or a gate that begins as zero would hide a fault.
    """
    draw = torch.Generator().manual_seed(0)
    length = min(6, model.max_positions or 6)
    sizes = model.config.src_vocab, model.config.tgt_vocab
    src, tgt = (torch.randint(size, (2, length), generator=draw) for size in sizes)
    src_mask = torch.arange(length).expand(2, 1, -1) < length - 1
    tgt_mask = subsequent_mask(length)
    # Other last tokens: the mask hides that of the source everywhere, that of the target from earlier ones.
    other_src, other_tgt = (
        torch.cat([tokens[:, :-1], (tokens[:, -1:] + 1) % size], dim=1)
        for tokens, size in zip((src, tgt), sizes, strict=True)
    )
    with evaluating(model):
        for weights in model.parameters():
            weights.add_(torch.randn(weights.shape, generator=draw), alpha=0.05)
        expected, with_other_padding, with_other_end = (
            model.generator(model(src, tgt, src_mask, tgt_mask))
            for src, tgt in ((src, tgt), (other_src, tgt), (src, other_tgt))
        )
        memory = model.encode(src, src_mask)
        cache = DecoderCache(len(model.decoder.layers))
        states = [model.decode(memory, src_mask, token, None, cache) for token in tgt.split(1, dim=1)]
        searched = model.generator(torch.cat(states, dim=1))
    hidden = "attend must hide what is False in its mask, and other parts treat each position by itself"
    for output, end, fault in (
        (with_other_padding, length, f"padding in the source changes its output: {hidden}"),
        (with_other_end, length - 1, f"a later target token changes an earlier output: {hidden}"),
        (
            searched,
            length,
            "a search gives it other probabilities than training: in a search, attend gets one query and all "
            "keys so far (the first query's position is S - T, but in cross-attention, which cross_attention "
            "builds, it has none), and positions get that position as start",
        ),
    ):
        if not torch.allclose(output[:, :end], expected[:, :end], 1e-3, 1e-3, equal_nan=True):
            name = model.config.variant
            raise ValueError(f"the variant {name!r} would not translate as it is trained: {fault}")
