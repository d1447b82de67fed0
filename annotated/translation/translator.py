"""Text in, text out: a trained model with its tokenizers and its search."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm

from annotated.fast import map_in_threads
from annotated.search.beam import Hypothesis, beam_search
from annotated.search.inference import evaluating
from annotated.search.limits import (
    Limits,
    Penalty,
    by_length,
    check_count,
    check_search,
    one_sentence,
    several_sentences,
)
from annotated.tokenizers import Tokenizer
from annotated.transformer.attention import padding_mask, subsequent_mask
from annotated.transformer.model import EncoderDecoder
from annotated.translation.attention_maps import TranslationAttention, capture_attention, is_watched
from annotated.translation.model_folder import (
    find_model,
    load_model,
    shipped_model,
    shipped_models,
    training_settings,
)

if TYPE_CHECKING:
    import altair as alt

    from annotated.interop.ctranslate2_engine import CTranslate2Engine


class Translator:
    """Translates sentences: `Translator.load("runs/first")("A dog runs.")`.

    The defaults are the paper's search: beam 4, length penalty alpha 0.6 (section 6.1). With
    `lower_cased`, for a model that has seen only lower-cased, tokenised text, cased text is refused. `pair`,
    such as "en-de", is what it translates, where that is known. `limits` are the fields of `Limits`: no
    sentence is read beyond `max_source` tokens or translated into more than `max_length`, each 1,024 unless
    the model has fewer positions; `too_long` says whether a longer one is cut, with a warning, or refused.

    With `engine="ctranslate2"` that library searches, with the weights as they are now and the matrices in
    `quantization`, and finds what our own search would (see `interop.ctranslate2_engine`); `model` stays here
    beside it, and shows attention and scores text. Raises ImportError where CTranslate2 is missing, and
    ValueError for a model on another device than the CPU, or one that `to_ctranslate2` refuses.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        src_tokenizer: Tokenizer,
        tgt_tokenizer: Tokenizer,
        lower_cased: bool = False,
        pair: str | None = None,
        engine: Literal["pytorch", "ctranslate2"] = "pytorch",
        quantization: str = "float32",
        **limits: Any,
    ):
        self.model = model
        self.src_tokenizer = src_tokenizer
        self.tgt_tokenizer = tgt_tokenizer
        self.lower_cased = lower_cased
        self.pair = pair
        self.limits = Limits(**limits).within(model.max_positions)
        self.engine: CTranslate2Engine | None = None
        if engine == "ctranslate2":
            from annotated.interop import ctranslate2_engine  # belongs to an extra

            self.engine = ctranslate2_engine.CTranslate2Engine(
                model, src_tokenizer, tgt_tokenizer, quantization
            )
        elif engine != "pytorch":
            raise ValueError(f"engine must be pytorch or ctranslate2, not {engine!r}")
        elif quantization != "float32":
            raise ValueError(f"quantization={quantization!r} takes engine='ctranslate2'")

    @classmethod
    def load(
        cls, name_or_folder: str | Path, device: str | torch.device = "cpu", **options: Any
    ) -> "Translator":
        """From a model folder, or by the name of a shipped model; `options` are those of the class.

        Raises as `load_model` and the class do.
        """
        folder = find_model(name_or_folder)
        settings = training_settings(folder)
        lower_cased = settings.get("variant") == "tok"
        return cls(*load_model(folder, device), lower_cased, settings.get("pair"), **options)

    def __repr__(self) -> str:
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        pair = f"{self.pair}, " if self.pair else ""
        by = f" by {self.engine}" if self.engine else ""
        return f"Translator({pair}{parameters:,} parameters, on {self.device}{by}, {self.limits})"

    def __call__(self, sentence: str, beam: int = 4, alpha: float = 0.6) -> str:
        """Translate one sentence. Raises ValueError for anything but one string."""
        return self.translate([one_sentence(sentence)], beam, alpha)[0]

    def translate(
        self,
        sentences: Iterable[str],
        beam: int = 4,
        alpha: float = 0.6,
        penalty: Penalty = "gnmt",
        prefix: str = "",
        max_tokens: int = 4096,
        progress: bool = False,
        first_line: int = 1,
    ) -> list[str]:
        """Translate sentences, one for one and in order; one of white space alone gives an empty one.

        Every translation begins with the words of `prefix`. Sentences of like length are searched together,
        at most about `max_tokens` source tokens in a batch, each counted `beam` times; on a CPU, as many
        batches side by side as PyTorch has threads, each with memory of its own. Messages count the lines
        from `first_line` on; with `progress`, a bar shows how far it is. Raises ValueError for what is no
        list of strings, a prefix that could not be written, scores that are not finite, and as `beam_search`.
        """
        found = self.search(sentences, beam, alpha, penalty, 1, prefix, max_tokens, progress, first_line)
        return [self.tgt_tokenizer.decode(ends[0].tokens) if ends else "" for ends in found]

    def n_best(self, sentence: str, n: int = 4, alpha: float = 0.6) -> list[tuple[str, float]]:
        """The best `n` translations that a beam of `n` finds, each with its score, the best first."""
        [found] = self.search([one_sentence(sentence)], beam=n, alpha=alpha, n_best=n)
        return [(self.tgt_tokenizer.decode(end.tokens), end.score) for end in found]

    def search(
        self,
        sentences: Iterable[str],
        beam: int = 4,
        alpha: float = 0.6,
        penalty: Penalty = "gnmt",
        n_best: int = 1,
        prefix: str = "",
        max_tokens: int = 4096,
        progress: bool = False,
        first_line: int = 1,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each sentence, in order and best first; none for one of white space alone."""
        sentences = several_sentences(sentences)
        check_search(beam, n_best, alpha)
        check_count("max_tokens", max_tokens)
        encoded = {
            i: self.encode(text, f"line {first_line + i}") for i, text in enumerate(sentences) if text.strip()
        }
        limits = {i: self.limits.longest(len(tokens)) for i, tokens in encoded.items()}
        begun = self.begin(prefix)
        settings: Any = {"beam": beam, "alpha": alpha, "penalty": penalty, "n_best": n_best}
        engine = None if begun or is_watched(self.model) else self.engine

        def search_batch(indices: list[int]) -> dict[int, list[Hypothesis]]:
            asked = [encoded[i] for i in indices], [limits[i] for i in indices]
            known = engine.search(*asked, **settings) if engine else [None] * len(indices)
            found = {i: ends for i, ends in zip(indices, known, strict=True) if ends is not None}
            left = [i for i in indices if i not in found]
            if left:
                src = self.batch([encoded[i] for i in left])
                ours = beam_search(
                    self.model,
                    src,
                    padding_mask(src, self.src_tokenizer.pad),
                    [limits[i] for i in left],
                    self.tgt_tokenizer.start,
                    self.tgt_tokenizer.end,
                    prefixes=[begun] * len(left),
                    forbidden=self.forbidden,
                    **settings,
                )
                found |= zip(left, ours, strict=True)
            return found

        batches = list(by_length(encoded, max(1, max_tokens // beam)))
        if len(batches) > 1 and is_watched(self.model):
            raise ValueError(
                f"this takes {len(batches)} batches, and capture_attention keeps the maps of one pass: "
                "translate them one by one, or ask for the `attention` of each"
            )
        each = map_in_threads if self.device.type == "cpu" else map
        results: dict[int, list[Hypothesis]] = {}
        with (
            evaluating(self.model),  # around all batches: the first to end must not switch dropout on again
            tqdm(total=len(sentences), unit="line", disable=None if progress else True) as bar,
        ):
            bar.update(len(sentences) - len(encoded))
            for found in each(search_batch, batches):
                results |= found
                bar.update(len(found))
        for i in encoded:
            if not results[i]:  # each comparison with NaN was false
                raise ValueError(
                    f"line {first_line + i} has no translation: the model's scores are not finite; its "
                    f"weights are damaged, or too large for {next(self.model.parameters()).dtype}"
                )
        return [results.get(i, []) for i in range(len(sentences))]

    def encode(self, sentence: str, name: str = "the sentence") -> list[int]:
        """A source sentence as the model reads it: its tokens, and as a rule the end symbol after them.

        One over `max_source` is cut or refused; messages call it `name`. Raises ValueError for cased text
        where the model reads only lower-cased text.
        """
        if self.lower_cased and sentence != sentence.lower():
            raise ValueError(
                f"{sentence[:40]!r} has capitals, but this model reads lower-cased, tokenised text "
                f"(translate --tokenized); for normal text there is {shipped_for(self.pair, 'raw')}"
            )
        tokenizer = self.src_tokenizer
        around = len(tokenizer.before + tokenizer.after)
        tokens = self.limits.fit(tokenizer.encode(sentence), around, name)
        return [*tokenizer.before, *tokens, *tokenizer.after]

    def begin(self, translation: str) -> list[int]:
        """The tokens of a translation's beginning, or of all of it but its end symbol.

        Raises ValueError for what is no string, or no translation could be: too long, or of several lines.
        """
        if not isinstance(translation, str):
            raise ValueError(
                f"a translation or its prefix must be a string, not {type(translation).__name__}"
            )
        tokens = self.tgt_tokenizer.encode(translation)
        if len(tokens) >= self.limits.max_length:
            size = f"{len(tokens):,} tokens, but with its end max_length is {self.limits.max_length:,}"
            raise ValueError(f"{translation[:40]!r}... has {size}")
        if not set(self.tgt_tokenizer.forbidden_ids).isdisjoint(tokens):
            raise ValueError(f"{translation[:40]!r} has a line break, which no translation may have")
        return tokens

    def batch(self, encoded: list[list[int]]) -> Tensor:
        """Pad token lists to one int64 tensor (batch, len), on the model's device."""
        rows = [torch.tensor(tokens) for tokens in encoded]
        return pad_sequence(rows, batch_first=True, padding_value=self.src_tokenizer.pad).to(self.device)

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return next(self.model.parameters()).device

    def pass_tokenized(self) -> None:
        """Take text for lower-cased and tokenised. Raises ValueError for a model that reads normal text."""
        if not self.lower_cased:
            raise ValueError(
                "this model reads normal text, and does not want it tokenised: leave that out; for tokenised "
                f"text there is {shipped_for(self.pair, 'tok')}"
            )
        self.lower_cased = False

    @property
    def forbidden(self) -> tuple[int, ...]:
        """Tokens that a translation never contains: start, padding, and whatever would break the line."""
        tokenizer = self.tgt_tokenizer
        return (tokenizer.start, tokenizer.pad, *tokenizer.forbidden_ids)

    def attention(self, sentence: str, translation: str | None = None) -> "TranslationAttention":
        """Where each head looked while `translation`, by default our own, was written; raises as `begin`."""
        translation = self(sentence) if translation is None else translation
        src = self.batch([self.encode(one_sentence(sentence))])
        tgt = [self.tgt_tokenizer.start, *self.begin(translation)]
        tokens = torch.tensor([tgt], device=src.device)
        masks = padding_mask(src, self.src_tokenizer.pad), subsequent_mask(tokens.size(1), tokens.device)
        with evaluating(self.model), capture_attention(self.model) as maps:
            self.model(src, tokens, *masks)
        return TranslationAttention(
            self.src_tokenizer.pieces(src[0].tolist()),
            self.tgt_tokenizer.pieces(tgt),
            {name: weights[0] for name, weights in maps.items()},
        )

    def show_attention(self, sentence: str, translation: str | None = None) -> "alt.LayerChart":
        """Draw `attention(sentence, translation)`: every layer, head and kind, to choose from by menus."""
        seen = self.attention(sentence, translation)
        from annotated.plots import explore_attention  # altair is heavy, and belongs to an extra

        return explore_attention(seen.maps, seen.src_tokens, seen.tgt_tokens)


def load_pretrained(name: str, device: str | torch.device = "cpu", **options: Any) -> Translator:
    """Load a model that comes with the package, by its name. Raises ValueError that lists the names."""
    return Translator.load(shipped_model(name), device, **options)


def shipped_for(pair: str | None, variant: str) -> str:
    """The shipped models of a pair, or of any, and a variant, in words."""
    settings = {name: training_settings(shipped_model(name)) for name in shipped_models()}
    names = [name for name, of in settings.items() if of["variant"] == variant and pair in (None, of["pair"])]
    return ", ".join(names) or "no shipped model"
