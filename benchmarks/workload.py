"""What is worked on: models of four sizes, made-up sentences, the built-in corpus, a notebook's code."""

import ast
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

from annotated.batches import Batch
from annotated.transformer.model import TransformerConfig
from annotated.translation.cli.flags import recipes
from annotated.translation.data import (
    Corpus,
    EncodedPairs,
    ParallelText,
    TokenBatches,
    encode_corpus,
    load_corpus,
)
from annotated.translation.files import read_toml
from annotated.translation.tokenizers import END, START, SentencePieceTokenizer

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"

SUBWORDS = 8_000  # in the vocabulary of a small corpus; the paper's has 37,000
PAPER = 37_000
# The same dropout in all sizes, section 5.4's: what it costs must not depend on which row one reads.
CONFIGS = {
    "tiny": TransformerConfig.tiny(SUBWORDS, SUBWORDS, dropout=0.1),
    "small": TransformerConfig.base(SUBWORDS, SUBWORDS, N=3, d_model=256, d_ff=1024, h=4, dropout=0.1),
    "base": TransformerConfig.base(PAPER, PAPER),
    "big": TransformerConfig.big(PAPER, PAPER, dropout=0.1),
    # Shows that a script runs.
    "toy": TransformerConfig.base(100, 100, N=1, d_model=16, d_ff=32, h=2, dropout=0.1),
}


def random_pairs(count: int, vocab: int, seed: int = 0) -> EncodedPairs:
    """Sentences of random tokens, about as long as captions are: a median of 16, half within 12 and 22.

    A target is about as long as its source. What tokens they are makes no difference to the time.
    """
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(2, count, generator=generator) * torch.tensor([[0.45], [0.15]])
    src = (16 * noise[0].exp()).round().clamp(3, 100).int()
    tgt = (src * noise[1].exp()).round().clamp(3, 100).int()

    def words(length: int) -> list[int]:
        return torch.randint(4, vocab, (length,), generator=generator).tolist()

    return EncodedPairs(
        [[*words(length), END] for length in src.tolist()],
        [[START, *words(length), END] for length in tgt.tolist()],
        list(range(1, count + 1)),
        "random",
    )


def random_batches(config: TransformerConfig, max_tokens: int, count: int) -> list[Batch]:
    """So many batches of at most `max_tokens` positions a side, drawn from a corpus of random pairs."""
    pairs = random_pairs(max(2_000, 2 * count * max_tokens // 16), config.tgt_vocab)
    return list(islice(TokenBatches(pairs, max_tokens).epoch(0), count))


class Task(NamedTuple):
    """The built-in German-English corpus in joint subwords, as small models are compared on it."""

    tokenizer: SentencePieceTokenizer
    train: TokenBatches
    val: TokenBatches
    test: TokenBatches


def grammar_task(max_tokens: int, short: bool = False, subwords: int | None = None) -> Task:
    """Cut the corpus into 2,000 subwords, or so many; a short one has 100 training pairs, 8 in others."""
    corpus = load_corpus("grammar", "de-en")
    count = {"train": 100, "val": 8, "test": 8}
    texts = [corpus[name].take(range(count[name])) if short else corpus[name] for name in count]
    joint = [*texts[0].src, *texts[0].tgt]
    tokenizer = SentencePieceTokenizer.train(joint, subwords or (400 if short else 2000))
    train, val, test = (encode_corpus(text, tokenizer, tokenizer) for text in texts)
    held_out = (TokenBatches(pairs, 4096, shuffle=False) for pairs in (val, test))
    return Task(tokenizer, TokenBatches(train, max_tokens), *held_out)


def text_of(trained: Mapping[str, Any], short: bool = False) -> Corpus:
    """The corpus that settings of a training name; or a few lower-cased pairs that come with us."""
    if not short:
        return load_corpus(trained["corpus"], trained["pair"], trained.get("tokenized"))
    grammar = load_corpus("grammar", "en-de")
    splits = {}
    for name, count in {"train": 100, "val": 6, "test_2016_flickr": 6, "test_2017_flickr": 6}.items():
        text = grammar[name.partition("_")[0]].take(range(count))
        src, tgt = ([line.lower() for line in side] for side in (text.src, text.tgt))
        splits[name] = ParallelText(src, tgt, text.lines, name)
    return Corpus("grammar", *trained["pair"].split("-"), splits, bool(trained.get("tokenized")))


def recipe(name: str) -> dict[str, Any]:
    """The recipe of a shipped model: its settings "train" and "evaluate"."""
    return read_toml(recipes()[name])


def notebook_names(name: str, until: str) -> dict[str, Any]:
    """Run a notebook's code up to a line, without what installs and checks; returns its names.

    So what a notebook shows is what is measured. Raises ValueError where it has no such line.
    """
    text = (NOTEBOOKS / f"{name}.py").read_text(encoding="utf-8")
    before, found, _ = text.partition(f"\n{until}")
    if not found:
        raise ValueError(f"{name} has no line that begins with {until!r}")
    cells = (cell.partition("\n") for cell in before.split("# %%"))
    code = [rest for head, _, rest in cells if "install" not in head and "check" not in head]
    names: dict[str, Any] = {"__name__": name}
    exec("\n".join(code), names)
    return names


def notebook_definitions(name: str) -> dict[str, Any]:
    """Return the imports, functions and classes of a notebook; nothing else of it runs."""
    tree = ast.parse((NOTEBOOKS / f"{name}.py").read_text(encoding="utf-8"))
    kinds = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef
    tree.body = [node for node in tree.body if isinstance(node, kinds)]
    names: dict[str, Any] = {"__name__": name}
    exec(compile(tree, name, "exec"), names)
    return names
