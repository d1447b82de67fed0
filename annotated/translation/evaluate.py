"""What a model scores on a split of a corpus: all that `annotated evaluate` prints and writes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from annotated.data import Corpus, TokenBatches, encode_corpus
from annotated.files import read_json
from annotated.metrics import (
    Score,
    bleu_metric,
    bleu_tokenizer,
    bounded,
    chrf,
    moses_knows,
    moses_tokenized,
)
from annotated.search.limits import Penalty
from annotated.tokenizers import normalize
from annotated.translation.translator import Translator
from annotated.validation import score_tokens

RECORDED = Path(__file__).parents[1] / "recorded"  # a JSON file each, shipped for the notebooks


def recorded(name: str) -> dict[str, Any]:
    """What a script of benchmarks/ measured, as it stands in `RECORDED` under a name such as "variations".

    Raises FileNotFoundError that lists what there is.
    """
    path = RECORDED / f"{name}.json"
    if not path.exists():
        names = ", ".join(sorted(found.stem for found in RECORDED.glob("*.json"))) or "nothing yet"
        raise FileNotFoundError(f"{name!r} is not recorded; there is {names} (make bench records)")
    return read_json(path)


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
    bleu: Score | None  # cased and detokenised; None where the text itself is tokenised
    tokenized_bleu: Score | None  # lower-cased and tokenised, as older tables have it; see `moses_knows`
    chrf: Score
    perplexity: float  # per token, without label smoothing
    accuracy: float  # share of reference tokens that were the model's first choice

    def __str__(self) -> str:
        scores = {"as written": self.bleu, "tokenised, lower-cased beforehand": self.tokenized_bleu}
        lines = [f"{name}: {found}" for name, found in scores.items() if found is not None]
        perplexity = f"perplexity = {self.perplexity:.2f} per subword, accuracy = {self.accuracy:.1%}"
        return "\n".join([*lines, str(self.chrf), f"{perplexity}, no smoothing"])

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Results":
        """What `dataclasses.asdict` made of it."""
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

    `tokenized` text is tokenised and lower-cased already; for other text, `tokenize` names sacreBLEU's
    tokenizer, if not the language's. Raises ValueError for an unknown split, and as `bleu_metric` does.
    """
    text = corpus[split]
    if tokenized and tokenize:
        raise ValueError(f"this text is tokenised already: its BLEU takes no tokenizer {tokenize!r}")
    tokenize = tokenize or bleu_tokenizer(corpus.tgt_language)
    measure = bleu_metric(tokenize)
    found = translator.translate(text.src, beam, alpha, penalty, progress=progress)
    references = [normalize(line) for line in text.tgt]
    language = corpus.tgt_language or ""
    older = (found, references) if tokenized else None
    if not tokenized and moses_knows(language):
        older = moses_tokenized(found, language), moses_tokenized(references, language)
    pairs = encode_corpus(text, translator.src_tokenizer, translator.tgt_tokenizer)
    batches = TokenBatches(
        pairs, max(4096, int(np.maximum(pairs.src.lengths, pairs.tgt.lengths).max())), shuffle=False
    )
    tokens = score_tokens(translator.model, batches.epoch(0))
    results = Results(
        corpus.name,
        corpus.pair,
        split,
        len(text),
        beam,
        alpha,
        penalty,
        None if tokenized else bounded(measure, found, references),
        bounded(bleu_metric("none"), *older) if older else None,
        chrf(found, references),
        tokens.perplexity,
        tokens.accuracy,
    )
    return results, found
