"""Text in, text out: a trained model with its tokenizers and its search."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from annotated.attention_maps import TranslationAttention, capture_attention
from annotated.batches import padding_mask
from annotated.evaluation_mode import evaluating
from annotated.search.beam import Hypothesis, beam_search
from annotated.search.config import Penalty, SearchConfig
from annotated.transformer.attention import subsequent_mask
from annotated.transformer.model import EncoderDecoder
from annotated.translation.data.token_batches import batch_by_length, pad_rows
from annotated.translation.limits import ENGINES, Limits
from annotated.translation.messages import warn
from annotated.translation.storage import model_folder
from annotated.translation.threads import map_in_threads
from annotated.translation.tokenizers import Tokenizer, normalize

if TYPE_CHECKING:
    import altair as alt

    from annotated.translation.interop.ctranslate2 import CTranslate2Engine

Sources = dict[int, list[int]]  # the tokens of sentences, by their index
Results = dict[int, list[Hypothesis]]  # the hypotheses of sentences, by their index, best first

ENGINE_TOKENS = 2**16  # source tokens in a call of CTranslate2, which makes batches of them


class Translator:
    """Translate sentences: `Translator.load("runs/first")("A dog runs.")`.

    The defaults are the paper's search: beam 4, length penalty alpha 0.6 (section 6.1). Text is normalized
    by `tokenizers.normalize` before the model reads it.

    Args:
        model, src_tokenizer, tgt_tokenizer: as `load_model` returns them.
        tokenized: the model was trained on lower-cased, tokenized text alone, so capitals are refused.
        pair: the languages, such as "en-de", if known.
        engine: "pytorch" searches with `beam_search`; "ctranslate2" finds the same on a CPU, about twice as
            fast. It has a copy of the model as it is now, without hooks, and does not see later changes.
            A call with a prefix is searched by PyTorch even so.
        quantization: type of the matrices in CTranslate2.
        longest_source: tokens of the longest source in training, if known; a longer one gives a warning.
        limits: fields of `Limits`, the greatest lengths of sources and translations.

    Raises ImportError where CTranslate2 is asked for and missing, ValueError for parts that do not fit.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        src_tokenizer: Tokenizer,
        tgt_tokenizer: Tokenizer,
        tokenized: bool = False,
        pair: str | None = None,
        engine: str = "pytorch",
        quantization: str = "float32",
        longest_source: int | None = None,
        **limits: Any,
    ):
        if engine not in ENGINES:
            raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {engine!r}")
        if engine != "ctranslate2" and quantization != "float32":
            raise ValueError(f"{quantization} needs --engine ctranslate2, in Python engine='ctranslate2'")
        if hasattr(model, "config"):  # a model that was put together by hand has none
            model_folder.check_vocabularies(model.config, src_tokenizer, tgt_tokenizer, source="the model")
        self.model, self.src_tokenizer, self.tgt_tokenizer = model, src_tokenizer, tgt_tokenizer
        self.pair, self.tokenized = pair, tokenized
        self.engine, self.quantization = engine, quantization
        self.longest_source = longest_source
        self.limits = Limits(**limits).within(model.max_positions)
        self.ctranslate2  # noqa: B018  raises now where the library or the model does not fit

    @classmethod
    def load(
        cls, name_or_folder: str | Path, device: str | torch.device = "cpu", **options: Any
    ) -> "Translator":
        """Load a model folder, or a shipped model by its name; device "auto" is the best there is."""
        folder = model_folder.find_model(name_or_folder)
        trained = asdict(model_folder.TrainedText.of(model_folder.training_settings(folder)))
        return cls(*model_folder.load_model(folder, device), **{**trained, **options})

    def __getstate__(self) -> dict[str, Any]:
        # The engine stays behind: a copy of the translator makes its own when it needs one.
        return {name: value for name, value in vars(self).items() if name != "ctranslate2"}

    def __repr__(self) -> str:
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        pair = f"{self.pair}, " if self.pair else ""
        engine = f" by {self.ctranslate2}" if self.ctranslate2 else ""
        return f"Translator({pair}{parameters:,} parameters, on {self.device}{engine}, {self.limits})"

    # ---- translations

    def __call__(
        self, sentence: str, beam: int = SearchConfig.beam, alpha: float = SearchConfig.alpha, **options: Any
    ) -> str:
        """Translate one sentence; further `options` are those of `translate`."""
        return self.translate([sentence], beam, alpha, **options)[0]

    def translate(
        self,
        sentences: Iterable[str],
        beam: int = SearchConfig.beam,
        alpha: float = SearchConfig.alpha,
        **options: Any,
    ) -> list[str]:
        """Translate sentences, one for one and in order; one without a visible character gives "".

        Further `options` are those of `search` without `n_best`. It raises as `search` does.
        """
        if "n_best" in options:
            raise ValueError("n_best has no effect on one translation a sentence: ask `n_best` or `search`")
        results = self.search(sentences, beam, alpha, **options)
        return [self.tgt_tokenizer.decode(best[0].tokens) if best else "" for best in results]

    def n_best(
        self, sentence: str, n: int = SearchConfig.beam, alpha: float = SearchConfig.alpha, **options: Any
    ) -> list[tuple[str, float]]:
        """Return the best `n` translations of a beam, by default of `n`, each with its score, best first."""
        [best] = self.search([sentence], alpha=alpha, n_best=n, **{"beam": n, **options})
        return [(self.tgt_tokenizer.decode(hypothesis.tokens), hypothesis.score) for hypothesis in best]

    def search(
        self,
        sentences: Iterable[str],
        beam: int = SearchConfig.beam,
        alpha: float = SearchConfig.alpha,
        penalty: Penalty = SearchConfig.penalty,
        n_best: int = SearchConfig.n_best,
        no_repeat_ngram: int = SearchConfig.no_repeat_ngram,
        prefix: str = "",
        max_tokens: int = 4096,
        progress: bool = False,
        numbers: Sequence[int] | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence, best first; none for one without a visible character.

        Sentences of like length share a batch; on a CPU, each of PyTorch's threads searches one at a time.

        Args:
            beam, alpha, penalty, n_best, no_repeat_ngram: the fields of `SearchConfig`.
            prefix: words with which every translation begins.
            max_tokens: about the most source tokens in a batch, each counted `beam` times.
            progress: show a bar, on a terminal.
            numbers: those of the sentences in messages, by default from 1.

        Raises ValueError for one string or a table, scores that are not finite, and as `beam_search` does.
        """
        settings = SearchConfig(beam, alpha, penalty, n_best, no_repeat_ngram)
        listed = isinstance(sentences, Iterable) and not isinstance(sentences, str | bytes | Mapping | Set)
        if not listed or getattr(sentences, "ndim", 1) != 1:
            raise ValueError(f"give a list of sentences or one column, not {type(sentences).__name__}")
        if not isinstance(prefix, str):
            raise TypeError(f"prefix is one text for every translation, not {type(prefix).__name__}")
        texts = list(sentences)
        numbers = range(1, len(texts) + 1) if numbers is None else numbers
        if len(numbers) != len(texts):
            raise ValueError(f"{len(numbers)} numbers for {len(texts)} sentences; give one for each")
        for number, text in zip(numbers, texts, strict=True):
            if not isinstance(text, str):
                raise ValueError(f"line {number} is a {type(text).__name__}, not text; give a list of texts")
        sources = {i: self.encode(x, f"line {numbers[i]}") for i, x in enumerate(texts) if normalize(x)}
        limits = {i: self.limits.longest(len(source)) for i, source in sources.items()}
        prefix_tokens = self.tgt_tokenizer.encode(normalize(prefix))
        engine = None if prefix_tokens else self.ctranslate2
        results: Results = {}
        bar = tqdm(None, f"by {engine or 'PyTorch'}", len(sources), unit="line", disable=not progress or None)
        with evaluating(self.model), bar:  # around all batches: the first to end must not restore dropout
            if engine is not None:
                for batch in batch_by_length(sources, ENGINE_TOKENS):
                    results |= engine.search({i: sources[i] for i in batch}, limits, settings)
                    bar.update(len(results) - bar.n)
            rest = {i: source for i, source in sources.items() if i not in results}
            results |= self.search_with_pytorch(rest, settings, prefix_tokens, max_tokens, bar)
        cut = [i for i in sources if len(results[i][0].tokens) + 1 >= limits[i] > len(prefix_tokens)]
        for message in self.remarks(texts, numbers, sources, cut):
            warn(message)
        return [results.get(i, []) for i in range(len(texts))]

    def search_with_pytorch(
        self, sources: Sources, settings: SearchConfig, prefix_tokens: list[int], max_tokens: int, bar: tqdm
    ) -> Results:
        """Search with `beam_search`; on a CPU, several batches are searched at a time."""

        def search_batch(batch: list[int]) -> list[list[Hypothesis]]:
            src = self.batch([sources[i] for i in batch])
            mask = padding_mask(src, self.src_tokenizer.pad)
            max_len = [self.limits.longest(len(sources[i])) + 1 for i in batch]  # the start symbol counted
            options = {**asdict(settings), "prefixes": [prefix_tokens] * len(batch)}
            return beam_search(self.model, src, mask, max_len, forbidden=self.forbidden, **options)

        results: Results = {}
        batches = batch_by_length(sources, max(1, max_tokens // settings.beam))
        run = map_in_threads if self.device.type == "cpu" and len(batches) > 1 else map
        for batch, best in zip(batches, run(search_batch, batches), strict=True):
            results |= zip(batch, best, strict=True)
            bar.update(len(batch))
        return results

    def remarks(
        self, texts: list[str], numbers: Sequence[int], sources: Sources, cut: list[int]
    ) -> Iterator[str]:
        """Say how many lines are unlike those of the training, and how many translations were `cut`."""
        broken = [i for i in sources if "\n" in texts[i].strip()]
        unknown = [i for i, source in sources.items() if self.src_tokenizer.unk in source]
        examples = (token for i in unknown[:10] for token in self.src_tokenizer.unknown(normalize(texts[i])))
        symbols = " ".join([*dict.fromkeys(examples)][:5])
        most = self.longest_source
        long = [i for i, source in sources.items() if most is not None and len(source) > most]
        positions = self.model.max_positions
        end = "" if positions is None else f"; the model has {positions} positions"
        for lines, remark in (
            (broken, "line breaks inside, read as spaces; give each of its lines by itself"),
            (unknown, f"symbols that the model never saw, such as {symbols!r}"),
            (long, f"more than the {most} tokens of the longest source in training; cut them into sentences"),
            (cut, f"translations that were cut at their limit; raise max_extra or max_target{end}"),
        ):
            if lines:
                first = f"the first line {numbers[lines[0]]:,}"
                yield f"{len(lines):,} of {len(texts):,} lines, {first}: {remark}"

    @cached_property
    def ctranslate2(self) -> "CTranslate2Engine | None":
        """Get the copy of the model that CTranslate2 searches with; None where PyTorch searches."""
        if self.engine == "pytorch":
            return None
        from annotated.translation.interop.ctranslate2 import CTranslate2Engine  # belongs to an extra

        return CTranslate2Engine(self.model, self.src_tokenizer, self.tgt_tokenizer, self.quantization)

    # ---- tokens

    def encode(self, sentence: str, name: str = "the sentence") -> list[int]:
        """Return a source sentence's tokens and `</s>`; messages call it `name`.

        A sentence that is too long is cut, with a warning. Raises ValueError for one that is too long where
        the limits refuse it, and for capitals where the model reads only lower-cased text.
        """
        sentence = normalize(sentence)
        if self.tokenized and sentence != sentence.lower():
            raise ValueError(f"{sentence[:40]!r} has capitals, but this model reads lower-cased text only")
        tokens = [*self.src_tokenizer.encode(sentence), self.src_tokenizer.end]
        max_source = self.limits.max_source
        if len(tokens) <= max_source:
            return tokens
        message = f"{name} has {len(tokens):,} tokens, but max_source is {max_source:,}"
        if self.limits.too_long == "refuse":
            raise ValueError(message)
        warn(f"{message}: the rest of it is not translated")
        return [*tokens[: max_source - 1], self.src_tokenizer.end]

    def batch(self, encoded: list[list[int]]) -> Tensor:
        """Pad token lists to one int64 tensor (batch, len), on the model's device."""
        return pad_rows(encoded, self.src_tokenizer.pad).to(self.device)

    @property
    def device(self) -> torch.device:
        """Get the device of the model."""
        return next(self.model.parameters()).device

    @property
    def forbidden(self) -> tuple[int, ...]:
        """List the tokens that no translation contains."""
        return self.tgt_tokenizer.never_generated

    # ---- attention

    def attention(self, sentence: str, translation: str | None = None) -> TranslationAttention:
        """Record where each head looks while `translation`, by default ours, is written."""
        translation = self(sentence) if translation is None else translation
        src = self.batch([self.encode(sentence)])
        tgt = [self.tgt_tokenizer.start, *self.tgt_tokenizer.encode(normalize(translation))]
        tokens = torch.tensor([tgt], device=src.device)
        masks = padding_mask(src, self.src_tokenizer.pad), subsequent_mask(tokens.size(1), tokens.device)
        with evaluating(self.model), capture_attention(self.model) as maps:
            self.model(src, tokens, *masks)
        pieces = self.src_tokenizer.pieces(src[0].tolist()), self.tgt_tokenizer.pieces(tgt)
        return TranslationAttention(*pieces, {name: weights[0] for name, weights in maps.items()})

    def show_attention(self, sentence: str, translation: str | None = None) -> "alt.LayerChart":
        """Draw `attention(sentence, translation)`: every layer, head and kind, to choose from by menus."""
        from annotated.plots import explore_attention  # altair is heavy, and belongs to an extra

        attention = self.attention(sentence, translation)
        return explore_attention(attention.maps, attention.src_tokens, attention.tgt_tokens)


def load_pretrained(name: str, device: str | torch.device = "cpu", **options: Any) -> Translator:
    """Load a model that comes with the package, by its name. Raises ValueError that lists the names."""
    return Translator.load(model_folder.shipped_model(name), device, **options)
