"""Validation, which the processes of a run share."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain

import torch
from torch import distributed as dist

from annotated.data.batches import Batch, TokenBatches
from annotated.data.pairs import languages
from annotated.metrics import METRICS, Metric, Score, bleu_metric, bleu_tokenizer
from annotated.tokenizers import Tokenizer
from annotated.training.distributed import all_gather, all_reduce
from annotated.transformer.model import EncoderDecoder
from annotated.translation.evaluate import TokenScores, score_tokens, translate_greedily
from annotated.translation.model_folder import reads_tokenized


class Validation:
    """Score a model on `batches`: each process its share, and the scores are those of all.

    `metric` scores greedy translations: "loss" for none of them, or a name of `METRICS`. `notes` name the
    languages ("pair") and tokenized text ("form"), by which BLEU counts words.
    """

    def __init__(
        self,
        batches: TokenBatches,
        tokenizer: Tokenizer,
        notes: Mapping[str, object],
        metric: str = "loss",
    ):
        rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        self.batches, self.plan, self.tokenizer = batches, batches.plan(0)[rank::world], tokenizer
        language = languages(str(notes["pair"]) if notes.get("pair") else None)[1]
        bleu = partial(bleu_metric, "none" if reads_tokenized(notes) else bleu_tokenizer(language))
        makers: dict[str, Callable[[], Metric | None]] = {**METRICS, "bleu": bleu, "loss": lambda: None}
        self.metric = makers[metric]()

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
        assert self.metric is not None
        shares = all_gather(translate_greedily(model, self.share(), self.tokenizer))
        hypotheses, references = (list(chain(*sides)) for sides in zip(*shares, strict=True))
        return self.metric(hypotheses, references)

    def badness(self, model: EncoderDecoder) -> float:
        """Return the loss, or a number that is lower for a better score by the metric."""
        if self.metric is None:
            return self.score(model).loss
        return self.metric.badness(self.measure(model).value)

    def rehearse(self, model: EncoderDecoder) -> None:
        """Raise now whatever would be raised after the first epoch; processes do not communicate."""
        with torch.random.fork_rng([]):
            first = self.batches.plan(0)[0]
            score_tokens(model, [self.batches.collate(first)])
            if self.metric is not None:
                self.metric(*translate_greedily(model, [self.batches.collate(first[:1])], self.tokenizer))
