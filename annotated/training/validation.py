"""Validation, which the processes of a run share."""

from collections.abc import Mapping, Sequence

import torch
from torch import distributed as dist

from annotated.data.batches import Batch, TokenBatches
from annotated.data.pairs import languages
from annotated.metrics import METRICS, Metric, Score, bleu_metric, bleu_tokenizer
from annotated.tokenizers import Tokenizer
from annotated.training.distributed import all_gather, all_reduce
from annotated.transformer.model import EncoderDecoder
from annotated.translation.evaluate import TokenScores, greedy_bleu, score_tokens


class Validation:
    """Score a model on `batches`: each process its share, and the sums are those of all.

    `metric` scores greedy translations: "loss" for none of them, or a name of `METRICS`. `notes` name the
    languages ("pair") and tokenized text ("variant"), by which BLEU counts words.
    """

    def __init__(
        self,
        batches: TokenBatches,
        tokenizer: Tokenizer,
        notes: Mapping[str, object],
        metric: str = "loss",
    ):
        rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        self.batches, self.plan, self.tokenizer = batches, batches.batches(0)[rank::world], tokenizer
        pair = notes.get("pair")
        language = languages(None if pair is None else str(pair))[1]
        self.metric: Metric | None = None if metric == "loss" else METRICS[metric]()
        if metric == "bleu":
            self.metric = bleu_metric("none" if notes.get("variant") == "tok" else bleu_tokenizer(language))

    def share(self) -> list[Batch]:
        """Return the batches of this process."""
        return [self.batches.collate(indices) for indices in self.plan]

    def score(self, model: EncoderDecoder) -> TokenScores:
        """Compute the cross-entropy and the accuracy of the model's predictions."""
        batches, device = self.share(), next(model.parameters()).device
        scores = score_tokens(model, batches) if batches else TokenScores(0.0, 0.0, 0)
        if not dist.is_initialized():
            return scores
        n = scores.ntokens
        loss, correct, ntokens = all_reduce([scores.loss * n, scores.accuracy * n, n], device)
        return TokenScores(loss / ntokens, correct / ntokens, int(ntokens))

    def measure(self, model: EncoderDecoder) -> Score:
        """Score greedy translations by the metric."""
        return greedy_bleu(model, self.share(), self.tokenizer, self.measure_text)

    def measure_text(self, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
        """Score the sentences of all processes by the metric."""
        assert self.metric is not None
        parts = all_gather((list(hypotheses), list(references)))
        both = [[sentence for part in parts for sentence in part[side]] for side in (0, 1)]
        return self.metric(both[0], both[1])

    def rank(self, model: EncoderDecoder) -> float:
        """Return the loss, or a number that is lower for a better score by the metric."""
        return self.score(model).loss if self.metric is None else self.rank_of(self.measure(model))

    def rank_of(self, score: Score) -> float:
        """Return a number that is lower for a better score by the metric."""
        assert self.metric is not None
        return score.value if self.metric.lower_is_better else -score.value

    def rehearse(self, model: EncoderDecoder) -> None:
        """Raise now whatever would be raised after the first epoch; processes do not communicate."""
        with torch.random.fork_rng([]):
            first = self.batches.batches(0)[0]
            score_tokens(model, [self.batches.collate(first)])
            if self.metric is not None:
                greedy_bleu(model, [self.batches.collate(first[:1])], self.tokenizer, self.metric)
