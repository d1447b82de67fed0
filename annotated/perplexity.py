"""Perplexity and accuracy: how well a model predicts reference tokens."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from torch.nn import functional as F

from annotated.batches import Batch
from annotated.evaluation_mode import evaluating
from annotated.transformer.model import EncoderDecoder

TOKENS_AT_ONCE = 1024  # whose log-probabilities are in memory together


@dataclass(frozen=True)
class TokenScores:
    """How well a model predicts reference tokens, each given those before it; padding is not counted."""

    loss: float  # mean cross-entropy in nats a token, without label smoothing
    accuracy: float  # share of tokens that were the model's first choice
    ntokens: int  # tokens scored

    @property
    def perplexity(self) -> float:
        """Return exp(loss): the choice is as hard as among so many equally likely tokens (Table 3)."""
        return math.exp(self.loss) if self.loss < 700 else math.inf


def score_tokens(model: EncoderDecoder, batches: Iterable[Batch], unknown: int | None = None) -> TokenScores:
    """Score every target token of the batches, in evaluation mode and without gradients.

    The token `unknown`, which stands for any word outside the vocabulary, is never a right choice.
    Raises ValueError where there is no token to score.
    """
    device = next(model.parameters()).device
    loss, correct, ntokens = 0.0, 0, 0
    with evaluating(model):
        for batch in batches:
            batch.to(device)
            states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
            real = batch.tgt_y != batch.pad
            chunks = (x[real].split(TOKENS_AT_ONCE) for x in (states, batch.tgt_y))
            for rows, tgt_y in zip(*chunks, strict=True):
                log_probs = model.generator(rows)  # (TOKENS_AT_ONCE, vocab)
                loss += F.nll_loss(log_probs, tgt_y, reduction="sum").item()
                right = log_probs.argmax(dim=-1) == tgt_y
                correct += int((right if unknown is None else right & (tgt_y != unknown)).sum())
            ntokens += batch.ntokens
    if not ntokens:
        raise ValueError("there are no target tokens to score")
    return TokenScores(loss / ntokens, correct / ntokens, ntokens)
