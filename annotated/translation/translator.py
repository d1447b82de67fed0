"""Text in, text out: a trained model with its tokenizers and its search."""

import warnings
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
from annotated.translation.storage import model_folder
from annotated.translation.threads import map_in_threads
from annotated.translation.tokenizers import Tokenizer, normalize

if TYPE_CHECKING:
    import altair as alt

    from annotated.translation.interop.ctranslate2 import CTranslate2Engine

ENGINE_TOKENS = 2**16  # source tokens that CTranslate2 is given at a time, and batches by itself


class Translator:
    """Translate sentences: `Translator.load("runs/first")("A dog runs.")`.

    The defaults are the paper's search: beam 4, length penalty alpha 0.6 (section 6.1). Text is normalized
    by `tokenizers.normalize` before the model reads it.

    Args:
        model, src_tokenizer, tgt_tokenizer: as `load_model` returns them.
        tokenized: the model was trained on lower-cased, tokenized text alone, so capitals are refused.
        pair: the languages, such as "en-de", if known.
        engine: "pytorch" searches with `beam_search`; "ctranslate2" finds the same on a CPU, about twice as
            fast, with a copy of the model as it is now: what changes it later, and hooks, do not count there.
            Of that engine, too, calls with a prefix are ours.
        quantization: type of the matrices in CTranslate2.
        longest_source: tokens of the longest source in training, if known; longer ones are warned of.
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
            model_folder.check_vocabularies(model.config, src_tokenizer, tgt_tokenizer, "the model")
        self.model, self.tokenized = model, tokenized
        self.src_tokenizer, self.tgt_tokenizer = src_tokenizer, tgt_tokenizer
        self.pair, self.engine, self.quantization = pair, engine, quantization
        self.longest_source, self.limits = longest_source, Limits(**limits).within(model.max_positions)
        self.ctranslate2  # noqa: B018  what it lacks is said at once

    @classmethod
    def load(
        cls, name_or_folder: str | Path, device: str | torch.device = "cpu", **options: Any
    ) -> "Translator":
        """Load a model folder, or a shipped model by its name; device "auto" is the best there is."""
        folder = model_folder.find_model(name_or_folder)
        trained = asdict(model_folder.TrainedText.of(model_folder.training_settings(folder)))
        return cls(*model_folder.load_model(folder, device), **{**trained, **options})

    def __getstate__(self) -> dict[str, Any]:
        attributes = vars(self).items()  # a copy converts again when it is used
        return {name: value for name, value in attributes if name != "ctranslate2"}

    def __repr__(self) -> str:
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        pair, by = self.pair and f"{self.pair}, ", self.ctranslate2 and f" by {self.ctranslate2}"
        return f"Translator({pair or ''}{parameters:,} parameters, on {self.device}{by or ''}, {self.limits})"

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

        Sentences of like length are searched together; on a CPU, as many batches side by side as PyTorch has
        threads.

        Args:
            beam, alpha, penalty, n_best, no_repeat_ngram: the fields of `SearchConfig`.
            prefix: words with which every translation begins.
            max_tokens: about the most source tokens in a batch, each counted `beam` times.
            progress: show a bar, on a terminal.
            numbers: those of the sentences in messages, by default from 1.

        Raises ValueError for a single string or a table, for scores that are not finite, and as `beam_search`
        does.
        """
        settings = SearchConfig(beam, alpha, penalty, n_best, no_repeat_ngram)
        if isinstance(sentences, str | bytes | Mapping | Set) or getattr(sentences, "ndim", 1) != 1:
            raise ValueError(f"give a list of sentences or one column, not {type(sentences).__name__}")
        texts = list(sentences)
        numbers = numbers or range(1, len(texts) + 1)
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                kind = f"is of type {type(text).__name__}, not text; `translate` takes a list of sentences"
                raise ValueError(f"line {numbers[i]} {kind}")
        full = (i for i, text in enumerate(texts) if normalize(text))
        sources = {i: self.encode(texts[i], f"line {numbers[i]}") for i in full}
        limits = {i: self.limits.longest(len(source)) for i, source in sources.items()}
        forced = self.tgt_tokenizer.encode(normalize(prefix))
        results: dict[int, list[Hypothesis]] = {}

        def search_batch(batch: list[int]) -> list[list[Hypothesis]]:
            src, tokenizer = self.batch([sources[i] for i in batch]), self.tgt_tokenizer
            mask, longest = padding_mask(src, self.src_tokenizer.pad), [limits[i] + 1 for i in batch]
            options = {**asdict(settings), "prefixes": [forced] * len(batch), "forbidden": self.forbidden}
            return beam_search(self.model, src, mask, longest, tokenizer.start, tokenizer.end, **options)

        # Around all batches: the first to end must not switch dropout on again.
        bar = tqdm(total=len(sources), unit="line", disable=None if progress else True)
        with evaluating(self.model), bar:
            engine = None if forced else self.ctranslate2
            bar.set_description(f"by {engine or 'PyTorch'}")
            if engine is not None:
                for batch in batch_by_length(sources, ENGINE_TOKENS):
                    answers = engine.search([sources[i] for i in batch], [limits[i] for i in batch], settings)
                    results |= {i: best for i, best in zip(batch, answers, strict=True) if best is not None}
                    bar.update(len(results) - bar.n)
            rest = {i: source for i, source in sources.items() if i not in results}
            batches = batch_by_length(rest, max(1, max_tokens // beam))
            run = map_in_threads if self.device.type == "cpu" and len(batches) > 1 else map
            for batch, searched in zip(batches, run(search_batch, batches), strict=True):
                results |= zip(batch, searched, strict=True)
                bar.update(len(batch))
        cut = [i for i in sources if len(results[i][0].tokens) + 1 >= limits[i] > len(forced)]
        for message in self.remarks(texts, sources, cut, numbers):
            warnings.warn(message, stacklevel=3)
        return [results.get(i, []) for i in range(len(texts))]

    def remarks(
        self, texts: list[str], sources: dict[int, list[int]], cut: list[int], numbers: Sequence[int]
    ) -> Iterator[str]:
        """Say how many lines are unlike those of the training, and how many translations were `cut`."""
        broken = [i for i in sources if "\n" in texts[i].strip()]
        unknown = [i for i, source in sources.items() if self.src_tokenizer.unk in source]
        symbols = dict.fromkeys(
            s for i in unknown[:10] for s in self.src_tokenizer.unknown(normalize(texts[i]))
        )
        most, room = self.longest_source, self.model.max_positions
        end = "" if room is None else f"; the model has {room} positions"
        long = [i for i, source in sources.items() if most is not None and len(source) > most]
        for lines, what in (
            (broken, "line breaks inside, read as spaces; give each of its lines by itself"),
            (unknown, f"symbols that the model never saw, such as {' '.join([*symbols][:5])!r}"),
            (long, f"more than the {most} tokens of the longest source in training; cut them into sentences"),
            (cut, f"translations that were cut at their limit; raise max_extra or max_target{end}"),
        ):
            if lines:
                told = f"{len(lines):,} of {len(texts):,} lines, the first line {numbers[lines[0]]:,}"
                yield f"{told}: {what}"

    @cached_property
    def ctranslate2(self) -> "CTranslate2Engine | None":
        """Get the copy of the model that CTranslate2 searches with; None where the search is ours."""
        if self.engine == "pytorch":
            return None
        from annotated.translation.interop.ctranslate2 import CTranslate2Engine  # belongs to an extra

        return CTranslate2Engine(self.model, self.src_tokenizer, self.tgt_tokenizer, self.quantization)

    # ---- tokens

    def encode(self, sentence: str, name: str = "the sentence") -> list[int]:
        """Return a source sentence's tokens and `</s>`; messages call it `name`.

        Raises ValueError for capitals where the model reads only lower-cased text.
        """
        sentence = normalize(sentence)
        if self.tokenized and sentence != sentence.lower():
            raise ValueError(f"{sentence[:40]!r} has capitals, but this model reads lower-cased text only")
        tokens = self.limits.cut(self.src_tokenizer.encode(sentence), name)
        return [*tokens, self.src_tokenizer.end]

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

        seen = self.attention(sentence, translation)
        return explore_attention(seen.maps, seen.src_tokens, seen.tgt_tokens)


def load_pretrained(name: str, device: str | torch.device = "cpu", **options: Any) -> Translator:
    """Load a model that comes with the package, by its name. Raises ValueError that lists the names."""
    return Translator.load(model_folder.shipped_model(name), device, **options)
