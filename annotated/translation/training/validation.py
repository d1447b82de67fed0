"""Validation, which the processes of a run share."""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain

from annotated.batches import Batch
from annotated.metrics import METRICS, Metric, Score, bleu_metric
from annotated.perplexity import TokenScores, score_tokens
from annotated.search.config import EXTRA_TOKENS
from annotated.search.greedy import greedy_decode
from annotated.transformer.model import EncoderDecoder
from annotated.translation.data.pairs import shortened
from annotated.translation.data.token_batches import TokenBatches
from annotated.translation.languages import bleu_tokenizer, lacks_spaces
from annotated.translation.processes import all_gather, all_reduce, rank_and_world
from annotated.translation.storage.model_folder import TrainedText
from annotated.translation.tokenizers import Tokenizer


class Validation:
    """Score a model on `batches`: each process its share, and the scores are those of all.

    `metric` scores greedy translations: "loss" for none of them, or a name of `METRICS`. By the languages of
    the `text`, and where it is tokenized, BLEU counts words.
    """

    def __init__(self, batches: TokenBatches, tokenizer: Tokenizer, text: TrainedText, metric: str = "loss"):
        rank, world = rank_and_world()
        self.batches = batches
        self.plan = batches.plan(0)[rank::world]
        self.tokenizer = tokenizer
        language = str(text.pair or "").partition("-")[2]
        bleu = partial(bleu_metric, "none" if text.tokenized else bleu_tokenizer(language))
        makers: dict[str, Callable[[], Metric | None]] = {**METRICS, "bleu": bleu, "loss": lambda: None}
        self.metric = makers[metric]()
        references = [tokenizer.decode(row) for row in batches.pairs.tgt[:1000]]
        advice = "take another metric, such as chrf"
        if metric == "bleu" and bleu_tokenizer(language) == "13a" and lacks_spaces(references):
            advice = f"name its language by --pair, in Python pair, or {advice}"
            raise ValueError(f"BLEU counts words between spaces, which the targets lack; {advice}")
        if metric == "bleu" and self.metric and not self.metric(references, references).value:
            raise ValueError(f"BLEU counts runs of four words, and no target has four; {advice}")
        self.max_extra = text.max_extra

    def share(self) -> list[Batch]:
        """Return the batches of this process."""
        return [self.batches.collate(indices) for indices in self.plan]

    def score(self, model: EncoderDecoder) -> TokenScores:
        """Compute the cross-entropy and the accuracy of the model's predictions."""
        batches = self.share()
        device = next(model.parameters()).device
        scores = score_tokens(model, batches, self.tokenizer.unk) if batches else TokenScores(0.0, 0.0, 0)
        n = scores.ntokens
        loss, correct, ntokens = all_reduce([scores.loss * n, scores.accuracy * n, n], device)
        return TokenScores(loss / ntokens, correct / ntokens, int(ntokens))

    def measure(self, model: EncoderDecoder) -> Score:
        """Score greedy translations by the metric."""
        assert self.metric is not None
        shares = all_gather(translate_greedily(model, self.share(), self.tokenizer, self.max_extra))
        hypotheses, references = (list(chain(*sides)) for sides in zip(*shares, strict=True))
        return self.metric(hypotheses, references)

    def example(self, model: EncoderDecoder, number: int, src_tokenizer: Tokenizer) -> str:
        """Translate one of the pairs; returns source, translation and target."""
        batch = self.batches.collate([number % len(self.batches.pairs)])
        source = src_tokenizer.decode(batch.src[0].tolist())
        [translation], [target] = translate_greedily(model, [batch], self.tokenizer, self.max_extra)
        source, translation, target = (shortened(repr(text)) for text in (source, translation, target))
        return f"{source} → {translation}, where the text has {target}"

    def metric_value(self, model: EncoderDecoder) -> float:
        """Return the score by the metric, or the loss."""
        return self.score(model).loss if self.metric is None else self.measure(model).value


def translate_greedily(
    model: EncoderDecoder, batches: Iterable[Batch], tokenizer: Tokenizer, max_extra: int = EXTRA_TOKENS
) -> tuple[list[str], list[str]]:
    """Translate the batches' sources; returns that and the references, which are the targets decoded again.

    Like any translation, one ends at its source's length + `max_extra`, whatever else is in the batch.
    """
    device = next(model.parameters()).device
    # `<unk>` would be right wherever the reference has a word that is not in the vocabulary.
    options = tokenizer.start, tokenizer.end, (*tokenizer.never_generated, tokenizer.unk)
    hypotheses, references = list[str](), list[str]()
    for batch in batches:
        batch.to(device)
        limits = (batch.src_mask.sum(dim=(1, 2)) + max_extra).tolist()
        rows = greedy_decode(model, batch.src, batch.src_mask, max(limits), *options).tolist()
        hypotheses += [tokenizer.decode(row[:limit]) for row, limit in zip(rows, limits, strict=True)]
        references += map(tokenizer.decode, batch.tgt_y.tolist())
    return hypotheses, references
