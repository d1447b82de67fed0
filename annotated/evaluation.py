"""How good a model is: BLEU and chrF of its translations, perplexity and accuracy of its predictions."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from annotated.masks import Batch
from annotated.model import EncoderDecoder, evaluating


@dataclass(frozen=True)
class TokenScores:
    """How well a model predicts reference tokens, each given those before it; padding is not counted."""

    loss: float  # mean cross-entropy in nats a token, without label smoothing
    accuracy: float  # share of tokens that were the model's first choice
    ntokens: int  # tokens scored

    @property
    def perplexity(self) -> float:
        """exp(loss): as unsure as a choice among so many equally likely tokens. Per subword, as in Table 3."""
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

    def __str__(self) -> str:
        return f"{self.name} = {self.value:.2f} ({self.signature})"


def check_lengths(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Raise ValueError unless there is one reference for each of one or more hypotheses."""
    if len(hypotheses) != len(references) or not references:
        raise ValueError(
            f"scores need one reference for each hypothesis, not {len(references)} for {len(hypotheses)}"
        )


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """sacreBLEU's BLEU of raw, detokenised text, cased: what papers should report today."""
    return sacrebleu_score("BLEU", hypotheses, references)


def tokenized_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """BLEU of text that is already tokenised, as multi-bleu.perl computes it: comparable with older tables only."""
    # `force` says that the text is tokenised on purpose, which sacreBLEU would otherwise warn of.
    return sacrebleu_score("BLEU", hypotheses, references, tokenize="none", force=True)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """sacreBLEU's chrF2: agreement in characters, which half-right word endings earn a share of."""
    return sacrebleu_score("CHRF", hypotheses, references)


def sacrebleu_score(metric: str, hypotheses: Sequence[str], references: Sequence[str], **options) -> Score:
    """Score with one of sacreBLEU's metrics. Raises ValueError unless there are as many references."""
    from sacrebleu import metrics

    check_lengths(hypotheses, references)
    scorer = getattr(metrics, metric)(**options)
    result = scorer.corpus_score(list(hypotheses), [list(references)])
    return Score(result.name, result.score, str(scorer.get_signature()))


def moses_tokenized(sentences: Iterable[str], language: str) -> list[str]:
    """Lower-case, normalise and tokenise as Multi30k's `lc.norm.tok` files were, for comparison with published tables.

    `language` is a two-letter code such as "de".
    """
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer, tokenizer = MosesPunctNormalizer(lang=language), MosesTokenizer(lang=language)
    return [tokenizer.tokenize(normalizer.normalize(s.lower()), return_str=True) for s in sentences]


def sample_indices(count: int, size: int, seed: int = 0) -> torch.Tensor:
    """`count` bootstrap samples: int64 (count, size), each row drawn with replacement from range(size)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(size, (count, size), generator=generator)
