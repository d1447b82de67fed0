"""The model that a run starts from: a new one with its tokenizers, or one that is gone on with."""

import math
from functools import partial
from itertools import chain
from pathlib import Path

from annotated.transformer.config import TransformerConfig
from annotated.transformer.model import EncoderDecoder
from annotated.translation.data.pairs import FORMAT, Corpus
from annotated.translation.files import cached_folder
from annotated.translation.storage.model_folder import load_model, training_settings
from annotated.translation.tokenizers import Tokenizer, load_tokenizer, save_tokenizer, train_tokenizer
from annotated.translation.tokenizers.subwords import MOST_LINES

TOKENIZER_SETTINGS = ("tokenizer", "src_tokenizer", "tgt_tokenizer", "vocab")
Settings = dict[str, object]
ModelAndTokenizers = tuple[EncoderDecoder, Tokenizer, Tokenizer]


def load_to_start_from(folder: Path, record: Settings, settings: Settings) -> ModelAndTokenizers:
    """Load the model that a new run starts from. Raises ValueError for tokenizers that it does not have."""
    trained = training_settings(folder)
    for name in TOKENIZER_SETTINGS:
        if record[name] not in (None, trained.get(name)):
            raise ValueError(f"{folder} keeps its tokenizers: {name} = {record[name]!r} has no effect")
    return load_to_go_on(folder, settings)


def load_to_go_on(folder: Path, settings: Settings) -> ModelAndTokenizers:
    """Load the model to go on from. Raises ValueError where its settings are others."""
    model, src, tgt = load_model(folder)
    for name, value in settings.items():
        if value != (own := getattr(model.config, name)):
            raise ValueError(
                f"{name} is {own!r} in {folder}, not {value!r}: leave it out, for a model keeps its settings"
            )
    return model, src, tgt


def new_model(
    corpus: Corpus,
    preset: str,
    kinds: tuple[str, str],
    vocab: int | None,
    settings: Settings,
    cache: str | Path | None,
) -> ModelAndTokenizers:
    """Build a new model and train its tokenizers, of these kinds, on the training text.

    Unless all embeddings are tied, each side has a vocabulary of its own. Words are cut by the rules of their
    language, or in tokenized text at spaces.
    """
    if kinds != ("subwords", "subwords"):
        settings = {"tied_embeddings": "target", **settings}
    languages = (None, None) if corpus.tokenized else (corpus.src_language, corpus.tgt_language)
    learn, make_config = partial(new_tokenizer, corpus, vocab, cache), getattr(TransformerConfig, preset)
    if make_config(1, 1, **settings).tied_embeddings != "all":
        src = learn(kinds[0], languages[0], "src")
        tgt = learn(kinds[1], languages[1], "tgt")
    elif kinds[0] != kinds[1] or (kinds[0] == "words" and languages[0] != languages[1]):
        raise ValueError("two tokenizers make two vocabularies: use --tied-embeddings target or none")
    else:
        src = tgt = learn(kinds[0], languages[0], "src", "tgt")
    return EncoderDecoder.from_config(make_config(len(src), len(tgt), **settings)), src, tgt


def new_tokenizer(
    corpus: Corpus,
    vocab: int | None,
    cache: str | Path | None,
    kind: str,
    language: str | None,
    *sides: str,
) -> Tokenizer:
    """Train a tokenizer on sides of the training text, or load the one in the cache."""
    texts = [getattr(corpus["train"], side) for side in sides]
    every = math.ceil(sum(map(len, texts)) / MOST_LINES) if kind == "subwords" else 1
    lines = chain.from_iterable(text[::every] for text in texts)
    learn = partial(train_tokenizer, kind, lines, vocab, language)
    if cache is None:
        return learn()
    key = f"{FORMAT} {corpus.fingerprint} {kind} {language} {sides} {vocab}"
    folder = cached_folder(cache, "tokenizer", key, lambda new: save_tokenizer(learn(), new, "tokenizer"))
    return load_tokenizer(folder, "tokenizer")
