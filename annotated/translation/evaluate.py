"""Scores of a model: perplexity and accuracy of its predictions, BLEU and chrF of its translations."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.nn import functional as F

from annotated.data import Corpus, TokenBatches, encode_corpus
from annotated.data.batches import Batch
from annotated.files import read_json
from annotated.metrics import (
    Score,
    bleu_metric,
    bleu_tokenizer,
    bootstrap,
    chrf,
    moses_supports,
    moses_tokenized,
)
from annotated.modes import evaluating
from annotated.search.config import EXTRA_TOKENS, Penalty
from annotated.search.greedy import greedy_decode
from annotated.tokenizers import Tokenizer, normalize
from annotated.transformer.model import EncoderDecoder
from annotated.translation.translator import Translator

TOKENS_AT_ONCE = 1024  # whose predictions are in memory
RECORDED = Path(__file__).parents[1] / "recorded"  # a JSON file each, shipped for the notebooks


def recorded(name: str) -> dict[str, Any]:
    """Read what a script of benchmarks/ measured, such as "variations", from `RECORDED`."""
    return read_json(RECORDED / f"{name}.json")


@dataclass(frozen=True)
class TokenScores:
    """How well a model predicts reference tokens, each given those before it; padding is not counted."""

    loss: float  # mean cross-entropy in nats a token, without label smoothing
    accuracy: float  # share of tokens that were the model's first choice
    ntokens: int  # tokens scored

    @property
    def perplexity(self) -> float:
        """Return exp(loss): the choice is as hard as among so many equally likely tokens (Table 3)."""
        return math.exp(self.loss)


def score_tokens(model: EncoderDecoder, batches: Iterable[Batch]) -> TokenScores:
    """Score every target token of the batches, in evaluation mode and without gradients.

    Raises ValueError where there is no token to score.
    """
    device = next(model.parameters()).device
    loss, correct, ntokens = 0.0, 0, 0
    with evaluating(model):
        for batch in batches:
            batch.to(device)
            states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
            real = batch.tgt_y != batch.pad
            parts = (x[real].split(TOKENS_AT_ONCE) for x in (states, batch.tgt_y))
            for rows, tgt_y in zip(*parts, strict=True):
                log_probs = model.generator(rows)  # (TOKENS_AT_ONCE, vocab)
                loss += F.nll_loss(log_probs, tgt_y, reduction="sum").item()
                correct += int((log_probs.argmax(dim=-1) == tgt_y).sum())
            ntokens += batch.ntokens
    if not ntokens:
        raise ValueError("there are no target tokens to score")
    return TokenScores(loss / ntokens, correct / ntokens, ntokens)


def translate_greedily(
    model: EncoderDecoder, batches: Iterable[Batch], tokenizer: Tokenizer
) -> tuple[list[str], list[str]]:
    """Translate the batches' sources; returns that and the references, which are the targets decoded again.

    Like any translation, one ends at its source's length + 50, whatever else is in the batch.
    """
    device = next(model.parameters()).device
    # `<unk>` would be right wherever the reference has a word that is not in the vocabulary.
    never = (tokenizer.start, tokenizer.pad, tokenizer.unk, *tokenizer.forbidden_ids)
    hypotheses: list[str] = []
    references: list[str] = []
    for batch in batches:
        batch.to(device)
        limits = (batch.src_mask.sum(dim=(1, 2)) + EXTRA_TOKENS).tolist()
        rows = greedy_decode(
            model, batch.src, batch.src_mask, max(limits), tokenizer.start, tokenizer.end, never
        )
        hypotheses += [
            tokenizer.decode(row[:limit]) for row, limit in zip(rows.tolist(), limits, strict=True)
        ]
        references += map(tokenizer.decode, batch.tgt_y.tolist())
    return hypotheses, references


# ---- a split of a corpus


@dataclass(frozen=True)
class Results:
    """Scores of one model on one split, and the search that they hold for."""

    corpus: str
    pair: str | None  # None where nobody named the languages
    split: str
    sentences: int
    beam: int
    alpha: float
    penalty: str
    bleu: Score | None  # cased and detokenized; None where the text itself is tokenized
    tokenized_bleu: Score | None  # lower-cased and tokenized, as older tables have it; see `moses_supports`
    chrf: Score
    perplexity: float  # per token, without label smoothing
    accuracy: float  # share of reference tokens that were the model's first choice

    def __str__(self) -> str:
        scores = {"as written": self.bleu, "tokenized, lower-cased beforehand": self.tokenized_bleu}
        lines = [f"{name}: {found}" for name, found in scores.items() if found is not None]
        perplexity = f"perplexity = {self.perplexity:.2f} per token, accuracy = {self.accuracy:.1%}"
        return "\n".join([*lines, str(self.chrf), f"{perplexity}, no smoothing"])

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Results":
        """Turn back what `dataclasses.asdict` gave."""
        names = [name for name in ("bleu", "tokenized_bleu", "chrf") if values[name] is not None]
        return cls(**{**values, **{name: Score(**values[name]) for name in names}})


def read_scores(folder: Path) -> dict[str, Results]:
    """Read the scores of a released model, by split. Raises as `read_json` does."""
    return {split: Results.from_json(found) for split, found in read_json(folder / "scores.json").items()}


def score_split(
    translator: Translator,
    corpus: Corpus,
    split: str,
    tokenized: bool,
    beam: int = 4,
    alpha: float = 0.6,
    penalty: Penalty = "gnmt",
    tokenize: str | None = None,
    progress: bool = False,
) -> tuple[Results, list[str]]:
    """Translate a split and score that; returns the scores and the translations.

    `tokenized` text is tokenized and lower-cased already; for other text, `tokenize` names sacreBLEU's
    tokenizer, if not the language's. Raises ValueError for an unknown split, and as `bleu_metric` does.
    """
    text = corpus[split]
    if tokenized and tokenize:
        raise ValueError(f"this text is tokenized already: its BLEU takes no tokenizer {tokenize!r}")
    tokenize = tokenize or bleu_tokenizer(corpus.tgt_language)
    measure = bleu_metric(tokenize)
    found = translator.translate(text.src, beam, alpha, penalty, progress=progress)
    references = [normalize(line) for line in text.tgt]
    language = corpus.tgt_language or ""
    older = (found, references) if tokenized else None
    if not tokenized and moses_supports(language):
        older = moses_tokenized(found, language), moses_tokenized(references, language)
    src_tokenizer, tgt_tokenizer = translator.src_tokenizer, translator.tgt_tokenizer
    room = translator.model.max_positions  # longer pairs have no perplexity
    limit = room and room - max(1, len(src_tokenizer.before + src_tokenizer.after))
    pairs = encode_corpus(text, src_tokenizer, tgt_tokenizer, limit)
    longest = int(max(pairs.src.lengths.max(), pairs.tgt.lengths.max()))
    batches = TokenBatches(pairs, max(4096, longest), shuffle=False)
    tokens = score_tokens(translator.model, batches.epoch(0))
    results = Results(
        corpus.name,
        corpus.pair,
        split,
        len(text),
        beam,
        alpha,
        penalty,
        None if tokenized else bootstrap(found, references, metric=measure),
        bootstrap(*older, tokenize="none") if older else None,
        chrf(found, references),
        tokens.perplexity,
        tokens.accuracy,
    )
    return results, found
