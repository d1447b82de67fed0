"""Scores of a model on batches of a corpus: perplexity and accuracy of predictions, BLEU of greedy search."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from torch.nn import functional as F

from annotated.data.batches import Batch
from annotated.metrics import Score, bleu
from annotated.search.greedy import greedy_decode
from annotated.search.inference import evaluating
from annotated.search.limits import EXTRA
from annotated.tokenizers import Tokenizer
from annotated.transformer.model import EncoderDecoder

CHUNK = 1024  # tokens whose predictions are in memory at a time


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
            for rows, tgt_y in zip(states[real].split(CHUNK), batch.tgt_y[real].split(CHUNK), strict=True):
                log_probs = model.generator(rows)  # (CHUNK, vocab)
                loss += F.nll_loss(log_probs, tgt_y, reduction="sum").item()
                correct += int((log_probs.argmax(dim=-1) == tgt_y).sum())
            ntokens += batch.ntokens
    if not ntokens:
        raise ValueError("there are no target tokens to score")
    return TokenScores(loss / ntokens, correct / ntokens, ntokens)


def greedy_bleu(
    model: EncoderDecoder,
    batches: Iterable[Batch],
    tokenizer: Tokenizer,
    measure: Callable[[Sequence[str], Sequence[str]], Score] = bleu,
) -> Score:
    """Score greedy translations of the batches' sources; references are the targets, decoded again.

    `measure` is BLEU, or any other of `METRICS`. Like any translation, one ends at its source's length + 50,
    whatever else is in the batch.
    """
    device = next(model.parameters()).device
    never = (tokenizer.start, tokenizer.pad, *tokenizer.forbidden_ids)
    hypotheses: list[str] = []
    references: list[str] = []
    for batch in batches:
        batch.to(device)
        limits = (batch.src_mask.sum(dim=(1, 2)) + EXTRA).tolist()
        rows = greedy_decode(
            model, batch.src, batch.src_mask, max(limits), tokenizer.start, tokenizer.end, never
        )
        hypotheses += [
            tokenizer.decode(row[:limit]) for row, limit in zip(rows.tolist(), limits, strict=True)
        ]
        references += map(tokenizer.decode, batch.tgt_y.tolist())
    return measure(hypotheses, references)
