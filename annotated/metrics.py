"""Scores of text, and how far another test set might move them.

Each of `METRICS` adds up counts of sentences, so that `bootstrap` can draw other test sets from one.
"""

from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from rapidfuzz.distance import Levenshtein


@dataclass(frozen=True, repr=False)
class Score:
    """A corpus score with the signature by which others can compute the same."""

    name: str
    value: float
    signature: str
    low: float | None = None  # bounds of its 95% interval, where that was asked for (see `bootstrap`)
    high: float | None = None

    def __repr__(self) -> str:
        bounds = "" if self.low is None else f", 95% interval {self.low:.2f} to {self.high:.2f}"
        return f"{self.name} = {self.value:.2f}{bounds} ({self.signature})"


def check_sentences(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Raise ValueError for sentences without an order, or without a reference each."""
    if isinstance(hypotheses, str | Set) or isinstance(references, str | Set):
        raise ValueError("scores take sentences in an order: a list, even of a single one")
    if len(hypotheses) != len(references) or not len(references):
        raise ValueError(f"one reference for each hypothesis, not {len(references)} for {len(hypotheses)}")


@dataclass(frozen=True)
class Metric:
    """A score of text, computed from counts of each sentence that can be added up."""

    name: str
    count: Callable[[Sequence[str], Sequence[str]], Any]  # hypotheses, references -> (sentences, counts)
    value: Callable[[Any], float]  # counts, added up -> score
    signature: str
    lower_is_better: bool = False

    def counts(self, hypotheses: Sequence[str], references: Sequence[str]) -> Any:
        """Return the counts of each sentence, float64 (sentences, counts)."""
        check_sentences(hypotheses, references)
        if others := [x for x in (*hypotheses, *references) if not isinstance(x, str)]:
            raise ValueError(f"{self.name} takes one text for each sentence, not {others[0]!r:.40}")
        return np.array(self.count(list(hypotheses), list(references)), dtype=float)

    def __call__(self, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
        """Score a corpus."""
        return Score(self.name, self.value(self.counts(hypotheses, references).sum(axis=0)), self.signature)


ScoreFunction = Callable[[Sequence[str], Sequence[str]], Score | float]


def sacrebleu_metric(scorer: Any) -> Metric:
    """Make a metric of one of sacreBLEU's, from the statistics by which sacreBLEU resamples."""
    return Metric(
        scorer.corpus_score(["a"], [["a"]]).name,
        lambda hypotheses, references: scorer._extract_corpus_statistics(hypotheses, [references]),
        lambda total: scorer._compute_score_from_stats(total).score,
        str(scorer.get_signature()),
    )


def bleu_metric(tokenize: str = "13a") -> Metric:
    """BLEU with one of sacreBLEU's tokenizers; some need another package or download a file."""
    from sacrebleu.metrics import BLEU

    if tokenize not in BLEU.TOKENIZERS:
        raise ValueError(f"sacreBLEU has no tokenizer {tokenize!r}; it has {', '.join(BLEU.TOKENIZERS)}")
    try:
        # `force` says that tokenized text is so on purpose, which sacreBLEU would otherwise warn of.
        return sacrebleu_metric(BLEU(tokenize=tokenize, force=True))
    except RuntimeError as missing:
        raise ImportError(" ".join(str(missing).split())) from None


def chrf_metric() -> Metric:
    """chrF2: agreement in characters, which gives partial credit for inflection."""
    from sacrebleu.metrics import CHRF

    return sacrebleu_metric(CHRF())


def percentage(
    name: str, signature: str, count: Callable[[str, str], tuple[int, int]], lower_is_better: bool = False
) -> Metric:
    """A quotient in percent, whose two sides `count` takes from a hypothesis and its reference."""
    return Metric(
        name,
        lambda hypotheses, references: [*map(count, hypotheses, references)],
        lambda total: 100 * float(total[0]) / max(1.0, float(total[1])),
        signature,
        lower_is_better,
    )


def error_rate(name: str, unit: str, split: Callable[[str], Sequence[str]]) -> Metric:
    """Edits (substitutions, deletions, insertions) for 100 words or characters of the references."""

    def count(hypothesis: str, reference: str) -> tuple[int, int]:
        return Levenshtein.distance(split(hypothesis), split(reference)), len(split(reference))

    return percentage(name, f"edits per 100 {unit}", count, lower_is_better=True)


METRICS: dict[str, Callable[[], Metric]] = {
    "bleu": bleu_metric,
    "chrf": chrf_metric,
    "wer": lambda: error_rate("WER", "words", str.split),
    "cer": lambda: error_rate("CER", "characters", str.strip),
    "exact": lambda: percentage("exact", "percent of sentences", lambda h, r: (h.split() == r.split(), 1)),
}


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> Score:
    """Compute sacreBLEU's BLEU of raw, detokenized text, cased: what papers should report today.

    It counts runs of one to four words over all sentences: where no hypothesis has four words, it is 0.
    """
    return bleu_metric(tokenize)(hypotheses, references)


def tokenized_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Compute BLEU of text that is already tokenized, as multi-bleu.perl does, as older tables have it."""
    return bleu(hypotheses, references, "none")


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Compute sacreBLEU's chrF2: agreement in characters, which gives partial credit for inflection."""
    return chrf_metric()(hypotheses, references)


FUNCTIONS: Any = {bleu: bleu_metric, chrf: chrf_metric, tokenized_bleu: partial(bleu_metric, "none")}


# ---- other test sets


@dataclass(frozen=True, repr=False)
class Comparison:
    """Two systems on one test set, by `paired_bootstrap`."""

    a: Score
    b: Score
    difference: Score  # a's score less b's
    wins: float  # share of the samples in which a is better than b

    def __repr__(self) -> str:
        lines = f"a: {self.a}", f"b: {self.b}", f"a - b: {self.difference}"
        return "\n".join([*lines, f"a is better in {self.wins:.1%} of the samples"])


def paired_bootstrap(
    a: Sequence[str],
    b: Sequence[str],
    references: Sequence[str],
    samples: int = 1000,
    seed: int = 0,
    tokenize: str | None = None,
    metric: ScoreFunction | str | None = None,
) -> Comparison:
    """Compare two systems on test sets drawn from this one, with replacement (Koehn 2004).

    Both are scored on the same draws, so that a hard sentence is hard for both. `metric` is a name of
    `METRICS`, such as "chrf", or a `Metric`; by default BLEU with sacreBLEU's tokenizer `tokenize`, "13a" if
    not given, "none" for tokenized text. It may also be a function of hypotheses and references that returns
    a `Score` or a number, and is called on each draw; with it, the greater is the better.
    """
    metric = resampled_metric(metric, tokenize, samples)
    score_a, draws_a = resample(metric, a, references, samples=samples, seed=seed)
    score_b, draws_b = resample(metric, b, references, samples=samples, seed=seed)
    differences = draws_a - draws_b
    difference = with_interval(replace(score_a, value=score_a.value - score_b.value), differences)
    lower_is_better = isinstance(metric, Metric) and metric.lower_is_better
    wins = differences < 0 if lower_is_better else differences > 0
    return Comparison(score_a, score_b, difference, wins=float(wins.mean()))


def bootstrap(
    hypotheses: Sequence[str],
    references: Sequence[str],
    samples: int = 1000,
    seed: int = 0,
    tokenize: str | None = None,
    metric: ScoreFunction | str | None = None,
) -> Score:
    """Score a system, with the 95% interval over test sets drawn from this one, with replacement.

    `metric` and `tokenize` are those of `paired_bootstrap`; it raises the same errors.
    """
    metric = resampled_metric(metric, tokenize, samples)
    return resample(metric, hypotheses, references, samples=samples, seed=seed)[0]


def score(metric: ScoreFunction, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Score a corpus by a metric, or by a user's function."""
    value = metric(hypotheses, references)
    name = getattr(metric, "__name__", "score")
    return value if isinstance(value, Score) else Score(name, float(value), "a function of one's own")


def resampled_metric(metric: ScoreFunction | str | None, tokenize: str | None, samples: int) -> ScoreFunction:
    """Return the metric that is asked for, by default BLEU. Raises ValueError for wrong arguments."""
    if not (metric is None or callable(metric) or metric in METRICS):  # a Metric is called, too
        raise ValueError(f"metric must be a Metric, a function, or one of {', '.join(METRICS)}: {metric!r}")
    if metric is not None and tokenize is not None:
        raise ValueError(f"tokenize={tokenize!r} is BLEU's: give it to bleu_metric, or leave out the metric")
    if samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}")
    if metric is None:
        return bleu_metric(tokenize or "13a")
    if isinstance(metric, str):
        return METRICS[metric]()
    return FUNCTIONS[metric]() if isinstance(metric, Hashable) and metric in FUNCTIONS else metric


def with_interval(score: Score, draws: Any) -> Score:
    """Add the bounds of the middle 95% of the scores of resampled test sets."""
    low, high = np.quantile(draws, [0.025, 0.975]).tolist()
    return replace(score, low=low, high=high)


def resample(
    metric: ScoreFunction, hypotheses: Sequence[str], references: Sequence[str], samples: int, seed: int
) -> tuple[Score, Any]:
    """Return a system's score, and those of test sets drawn as sacreBLEU draws them, float64 (samples,)."""
    check_sentences(hypotheses, references)
    random = np.random.default_rng(seed)
    draws = (random.choice(len(references), len(references)) for _ in range(samples))
    if isinstance(metric, Metric):
        counts = metric.counts(hypotheses, references)
        values = [metric.value(counts[draw].sum(axis=0)) for draw in draws]
    else:
        sides = [*hypotheses], [*references]
        values = [score(metric, *([side[i] for i in draw] for side in sides)).value for draw in draws]
    return with_interval(score(metric, hypotheses, references), values), np.array(values)


# ---- alignments


def alignment_error_rate(predicted: Set[Any], sure: Set[Any], possible: Set[Any] | None = None) -> float:
    """Compute the share of wrong links, 1 - (|A & S| + |A & P|) / (|A| + |S|) (Och and Ney 2003).

    A link is a pair (source position, target position); over a corpus, put the sentence's number before it.
    A is `predicted`; S, the links that must be found, is `sure`; P are these and those `possible`, which may
    be found besides. With nothing found and nothing to find the rate is 0.
    """
    allowed = sure if possible is None else sure | possible
    links = len(predicted) + len(sure)
    return 1 - (len(predicted & sure) + len(predicted & allowed)) / links if links else 0.0
