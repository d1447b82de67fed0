"""How good a model is: BLEU and chrF of its translations, perplexity and accuracy of its predictions."""

import math
import re
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F

from annotated.data.batches import Batch
from annotated.search.greedy import greedy_decode
from annotated.search.inference import evaluating
from annotated.search.limits import EXTRA
from annotated.tokenizers import Tokenizer
from annotated.transformer.model import EncoderDecoder

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU, CHRF


@dataclass(frozen=True)
class TokenScores:
    """How well a model predicts reference tokens, each given those before it; padding is not counted."""

    loss: float  # mean cross-entropy in nats a token, without label smoothing
    accuracy: float  # share of tokens that were the model's first choice
    ntokens: int  # tokens scored

    @property
    def perplexity(self) -> float:
        """exp(loss): as unsure as a choice among so many equally likely tokens. Per token, as in Table 3."""
        return math.exp(self.loss)


def score_tokens(model: EncoderDecoder, batches: Iterable[Batch], pad: int = 2) -> TokenScores:
    """Score every target token of the batches, in evaluation mode and without gradients.

    Raises ValueError where there is no token to score.
    """
    device = next(model.parameters()).device
    loss, correct, ntokens = 0.0, 0, 0
    with evaluating(model):
        for batch in batches:
            batch.to(device)
            states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
            real = batch.tgt_y != pad
            log_probs = model.generator(states[real])  # (ntokens, vocab)
            loss += F.nll_loss(log_probs, batch.tgt_y[real], reduction="sum").item()
            correct += int((log_probs.argmax(dim=-1) == batch.tgt_y[real]).sum())
            ntokens += batch.ntokens
    if not ntokens:
        raise ValueError("there are no target tokens to score")
    return TokenScores(loss / ntokens, correct / ntokens, ntokens)


@dataclass(frozen=True)
class Score:
    """A corpus score from 0 to 100, with the signature by which others can compute the same."""

    name: str
    value: float
    signature: str
    low: float | None = None  # bounds of its 95% interval, where that was asked for (see `bootstrap`)
    high: float | None = None

    def __str__(self) -> str:
        bounds = "" if self.low is None else f", 95% interval {self.low:.2f} to {self.high:.2f}"
        return f"{self.name} = {self.value:.2f}{bounds} ({self.signature})"


@dataclass(frozen=True)
class Interval:
    """A score on the whole test set, and the bounds of the middle 95% of what resampled test sets give."""

    value: float
    low: float
    high: float


def check_lengths(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Raise ValueError unless there is one reference for each of one or more hypotheses."""
    if len(hypotheses) != len(references) or not references:
        raise ValueError(
            f"scores need one reference for each hypothesis, not {len(references)} for {len(hypotheses)}"
        )


# Languages whose words 13a, which goes by spaces, would not find: it counts a Thai sentence as one word. For
# Thai, Lao, Khmer and Burmese sacreBLEU cuts no words without a download.
TOKENIZERS = {"zh": "zh", "yue": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
TOKENIZERS |= dict.fromkeys(("th", "lo", "km", "my"), "char")


def bleu_tokenizer(language: str | None) -> str:
    """sacreBLEU's tokenizer for a target language such as "de" or "zh-Hant"; 13a for one not known."""
    return TOKENIZERS.get(re.split("[-_]", (language or "").lower())[0], "13a")


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> Score:
    """sacreBLEU's BLEU of raw, detokenised text, cased: what papers should report today.

    `tokenize` is one of sacreBLEU's, as `bleu_tokenizer` finds it. Raises as `bleu_scorer` does.
    """
    return score_by(bleu_scorer(tokenize), hypotheses, references)


def greedy_bleu(
    model: EncoderDecoder,
    batches: Iterable[Batch],
    tokenizer: Tokenizer,
    measure: Callable[[Sequence[str], Sequence[str]], Score] = bleu,
) -> Score:
    """BLEU of greedy translations of the batches' sources; references are the targets, decoded again."""
    device = next(model.parameters()).device
    never = (tokenizer.start, tokenizer.pad, *tokenizer.forbidden_ids)
    found: list[str] = []
    references: list[str] = []
    for batch in batches:
        batch.to(device)
        longest = batch.src.size(1) + EXTRA
        rows = greedy_decode(model, batch.src, batch.src_mask, longest, tokenizer.start, tokenizer.end, never)
        found += map(tokenizer.decode, rows.tolist())
        references += map(tokenizer.decode, batch.tgt_y.tolist())
    return measure(found, references)


def tokenized_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """BLEU of text that is already tokenised, as multi-bleu.perl has it, for comparison with older tables."""
    return bleu(hypotheses, references, "none")


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """sacreBLEU's chrF2: agreement in characters, which half-right word endings earn a share of."""
    from sacrebleu.metrics import CHRF

    return score_by(CHRF(), hypotheses, references)


def bleu_scorer(tokenize: str, **options: Any) -> "BLEU":
    """sacreBLEU's BLEU with one of its tokenizers.

    Raises ValueError that lists them, ImportError where a package is missing that one needs, OSError where
    its file cannot be downloaded.
    """
    from sacrebleu.metrics import BLEU

    if tokenize not in BLEU.TOKENIZERS:
        raise ValueError(f"sacreBLEU has no tokenizer {tokenize!r}; it has {', '.join(BLEU.TOKENIZERS)}")
    try:
        # `force` says that tokenised text is so on purpose, which sacreBLEU would otherwise warn of.
        return BLEU(tokenize=tokenize, force=True, **options)
    except RuntimeError:
        extra = f'pip install "sacrebleu[{tokenize.partition("-")[0]}]"'
        raise ImportError(f"BLEU by {tokenize} needs more packages: {extra}, or take char") from None
    except OSError as error:
        raise OSError(f"BLEU by {tokenize} needs a file that cannot be downloaded: {error}") from None


def score_by(scorer: "BLEU | CHRF", hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Score with one of sacreBLEU's metrics. Raises as `check_lengths` does."""
    check_lengths(hypotheses, references)
    result = scorer.corpus_score(list(hypotheses), [list(references)])
    return Score(result.name, result.score, str(scorer.get_signature()))


def moses_knows(language: str | None) -> bool:
    """Whether Moses has rules for a language, and spaces separate its words."""
    from sacremoses.corpus import NonbreakingPrefixes

    return bleu_tokenizer(language) == "13a" and language in NonbreakingPrefixes().available_langs.values()


def moses_tokenized(sentences: Iterable[str], language: str) -> list[str]:
    """Lower-case, normalise and tokenise text of a language such as "de", as Multi30k's `lc.norm.tok` was."""
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer, tokenizer = MosesPunctNormalizer(lang=language), MosesTokenizer(lang=language)
    return [tokenizer.tokenize(normalizer.normalize(s.lower()), return_str=True) for s in sentences]


@dataclass(frozen=True)
class Comparison:
    """Two systems on one test set, by `paired_bootstrap`."""

    a: Interval
    b: Interval
    difference: Interval  # a's score less b's
    wins: float  # share of the samples in which a scores higher than b


def paired_bootstrap(
    a: Sequence[str],
    b: Sequence[str],
    references: Sequence[str],
    samples: int = 1000,
    seed: int = 0,
    tokenize: str = "13a",
) -> Comparison:
    """Compare two systems' BLEU on test sets drawn from this one, with replacement (Koehn 2004).

    Both are scored on the same draws, so that a hard sentence is hard for both. `tokenize` is sacreBLEU's:
    "none" for tokenised text. Raises ValueError unless each hypothesis has a reference, and for no sample.
    """
    (on_all_a, on_draws_a), (on_all_b, on_draws_b) = (
        resampled_bleu(hypotheses, references, samples, seed, tokenize) for hypotheses in (a, b)
    )
    return Comparison(
        interval(on_all_a, on_draws_a),
        interval(on_all_b, on_draws_b),
        difference=interval(on_all_a - on_all_b, on_draws_a - on_draws_b),
        wins=(on_draws_a > on_draws_b).double().mean().item(),
    )


def bootstrap(
    hypotheses: Sequence[str],
    references: Sequence[str],
    samples: int = 1000,
    seed: int = 0,
    tokenize: str = "13a",
) -> Interval:
    """One system's BLEU, and how far another test set might have moved it; else as `paired_bootstrap`."""
    return interval(*resampled_bleu(hypotheses, references, samples, seed, tokenize))


def resampled_bleu(
    hypotheses: Sequence[str], references: Sequence[str], samples: int, seed: int, tokenize: str
) -> tuple[float, torch.Tensor]:
    """A system's BLEU, and that on test sets drawn with replacement (samples,), the same for each `seed`."""
    if samples < 1:
        raise ValueError(f"the bootstrap needs at least 1 sample, not {samples}")
    counts, size = ngram_counts(hypotheses, references, tokenize), len(references)
    generator = torch.Generator().manual_seed(seed)
    draws = (torch.randint(size, (size,), generator=generator) for _ in range(samples))
    return bleu_of(counts), torch.tensor([bleu_of(counts[draw]) for draw in draws])


def ngram_counts(hypotheses: Sequence[str], references: Sequence[str], tokenize: str) -> torch.Tensor:
    """All that BLEU needs to know of each sentence, int64 (sentences, 10).

    Columns: n-grams of lengths 1 to 4 that the reference has too; all those n-grams; the two lengths.
    """
    check_lengths(hypotheses, references)
    scorer = bleu_scorer(tokenize, effective_order=True)  # changes no count, only hushes a warning
    scores = (scorer.sentence_score(h, [r]) for h, r in zip(hypotheses, references, strict=True))
    return torch.tensor([[*s.counts, *s.totals, s.sys_len, s.ref_len] for s in scores])


def bleu_of(counts: torch.Tensor) -> float:
    """The corpus BLEU of sentences whose `ngram_counts` (sentences, 10) these are."""
    from sacrebleu.metrics import BLEU

    total = counts.sum(dim=0).tolist()
    return BLEU.compute_bleu(total[:4], total[4:8], total[8], total[9], smooth_method="exp").score


def interval(value: float, scores: torch.Tensor) -> Interval:
    """The middle 95% of the scores (samples,)."""
    low, high = scores.double().quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return Interval(value, low, high)


def alignment_error_rate(predicted: Set[Any], sure: Set[Any], possible: Set[Any] | None = None) -> float:
    """The share of wrong links (Och and Ney 2003): 1 - (|A & S| + |A & P|) / (|A| + |S|), from 0 to 1.

    A link is a pair (source position, target position); over a corpus, put the sentence's number before it.
    A is `predicted`; S, the links that must be found, is `sure`; P are these and those `possible`, which may
    be found besides. With nothing found and nothing to find, nothing is wrong: 0.
    """
    allowed = sure if possible is None else sure | possible
    links = len(predicted) + len(sure)
    return 1 - (len(predicted & sure) + len(predicted & allowed)) / links if links else 0.0
