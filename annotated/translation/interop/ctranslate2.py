"""CTranslate2, a fast engine without PyTorch: models for it, and our beam search done by it.

Its own converter refuses the Marian models that we write, and begins translations with zeros, our models with
the embedding of `<s>`; and Marian has no pre-norm, no learned positions and no words.
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from annotated.optional import require
from annotated.search.beam import Hypothesis
from annotated.search.config import SearchConfig
from annotated.transformer.model import EncoderDecoder
from annotated.transformer.positions import sinusoids
from annotated.translation.files import creating_folder
from annotated.translation.interop.common import POSITIONS, check_exportable, vocabulary, write_readme
from annotated.translation.messages import warn
from annotated.translation.tokenizers import END, SPECIALS, Tokenizer

# What the shipped models lost, as benchmarks/quantization.py recorded it.
INT8 = "int8 wants an x86 processor with VNNI: it cost the shipped models up to 1.1 BLEU without, 0.1 with it"
# A length penalty that divides by 1 in float32, so that scores are log-probabilities. With 0 in its place, a
# search ends when its likeliest hypothesis does, however few have ended.
NEARLY_NONE = 1e-12


def to_ctranslate2(
    folder: str | Path,
    model: EncoderDecoder,
    src_tokenizer: Tokenizer,
    tgt_tokenizer: Tokenizer,
    quantization: str = "float32",
) -> None:
    """Write a new folder that `ctranslate2.Translator` loads, with our tokenizers and a README.md.

    Matrices are stored as `quantization`, one of `QUANTIZATIONS`; a table of sinusoids has 1,024 positions.
    Raises ValueError for a variant, or tokenizers that do not fit the model.
    """
    check_exportable(model, src_tokenizer, tgt_tokenizer)
    spec = specification(model)
    spec.config.add_source_bos = False
    spec.config.add_source_eos = True
    spec.register_source_vocabulary(vocabulary(src_tokenizer))
    spec.register_target_vocabulary(vocabulary(tgt_tokenizer))
    spec.validate()
    spec.optimize(quantization)
    with creating_folder(Path(folder)) as new:
        spec.save(str(new))
        src_tokenizer.save(new, "src_tokenizer")
        tgt_tokenizer.save(new, "tgt_tokenizer")
        write_readme(new)


def specification(model: EncoderDecoder) -> Any:
    """Return CTranslate2's specification of a model with its weights, without vocabularies."""
    specs = require("ctranslate2", extra="interop").specs
    c = model.config
    # Copies, because CTranslate2 quantises arrays in place.
    weights = {name: t.detach().to("cpu", torch.float32, copy=True) for name, t in model.state_dict().items()}

    def set_norm(spec: Any, name: str) -> None:
        spec.gamma, spec.beta = weights[f"{name}.weight"].numpy(), weights[f"{name}.bias"].numpy()

    def set_linear(spec: Any, *names: str) -> None:
        """Linear maps of the same input are concatenated: query, key and value, or key and value."""
        spec.weight = torch.cat([weights[f"{name}.weight"] for name in names]).numpy()
        spec.bias = torch.cat([weights[f"{name}.bias"] for name in names]).numpy()

    activation = specs.common_spec.Activation[c.activation.upper()]
    spec = specs.TransformerSpec.from_config(c.N, c.h, pre_norm=c.norm_first, activation=activation)
    start, end, _, unk = SPECIALS
    spec.config.decoder_start_token, spec.config.bos_token = start, start
    spec.config.eos_token, spec.config.unk_token = end, unk
    spec.config.layer_norm_epsilon = c.layer_norm_eps
    for stack, side, part in (("encoder", "src", spec.encoder), ("decoder", "tgt", spec.decoder)):
        for i, layer in enumerate(part.layer):
            name = f"{stack}.layers.{i}"
            attentions = [("self_attn", layer.self_attention, [(0, 1, 2), (3,)])]
            if stack == "decoder":
                attentions.append(("src_attn", layer.attention, [(0,), (1, 2), (3,)]))
            for j, (attn, theirs, groups) in enumerate(attentions):
                for linear, group in zip(theirs.linear, groups, strict=True):
                    set_linear(linear, *(f"{name}.{attn}.linears.{k}" for k in group))
                set_norm(theirs.layer_norm, f"{name}.sublayer.{j}.norm")
            set_linear(layer.ffn.linear_0, f"{name}.feed_forward.w_1")
            set_linear(layer.ffn.linear_1, f"{name}.feed_forward.w_2")
            set_norm(layer.ffn.layer_norm, f"{name}.sublayer.{len(attentions)}.norm")
        if c.norm_first:
            set_norm(part.layer_norm, f"{stack}.norm")
        table = weights.get(f"{side}_embed.1.lut.weight", sinusoids(POSITIONS, c.d_model))
        part.position_encodings.encodings = table.numpy()
    spec.encoder.embeddings[0].weight = weights["src_embed.0.lut.weight"].numpy()
    spec.decoder.embeddings.weight = weights["tgt_embed.0.lut.weight"].numpy()
    set_linear(spec.decoder.projection, "generator.proj")
    return spec


class CTranslate2Engine:
    """Search with a copy of a model in CTranslate2, on the CPU, as `Translator(engine=...)` asks for.

    Both searches keep the same hypotheses at each step and stop when `beam` have ended. They differ where a
    sentence reaches its limit, at which ours makes it end; where a token turns up that ours never generates;
    and where more hypotheses have ended than CTranslate2 returns. What it returns shows all this, and such
    sentences are left to `beam_search`.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        src_tokenizer: Tokenizer,
        tgt_tokenizer: Tokenizer,
        quantization: str = "float32",
    ):
        device = next(model.parameters()).device
        if device.type != "cpu":
            raise ValueError(f"engine='ctranslate2' computes on the CPU, but the model is on {device}")
        self.src_pieces, self.tgt_pieces = vocabulary(src_tokenizer), vocabulary(tgt_tokenizer)
        self.tgt_ids = {piece: i for i, piece in enumerate(self.tgt_pieces)}
        self.never = {self.tgt_pieces[i] for i in tgt_tokenizer.never_generated}
        self.positions = model.max_positions or POSITIONS
        with TemporaryDirectory() as folder:
            copy = Path(folder) / "model"
            to_ctranslate2(copy, model, src_tokenizer, tgt_tokenizer, quantization)
            # As many batches are computed side by side as PyTorch has threads.
            threads = {"inter_threads": torch.get_num_threads(), "intra_threads": 1}
            self.translator = require("ctranslate2", extra="interop").Translator(str(copy), **threads)
        computed = self.translator.compute_type
        if not computed.startswith(quantization):
            warn(f"{quantization} is computed as {computed} on this processor")

    def __repr__(self) -> str:
        library = require("ctranslate2", extra="interop")
        return f"CTranslate2 {library.__version__}, {self.translator.compute_type}"

    def search(
        self, sources: Mapping[int, list[int]], limits: Mapping[int, int], settings: SearchConfig
    ) -> dict[int, list[Hypothesis]]:
        """Return the hypotheses that `beam_search` finds; none of a source for which they might differ.

        Sources end with `</s>`, which CTranslate2 adds itself; limits count the end symbol.
        """
        results: dict[int, list[Hypothesis]] = {}
        beam = settings.beam
        exact = settings.alpha == 0 and beam > 1  # ours goes on until no other hypothesis can be better
        if exact and settings.n_best > 1:
            return results
        # With alpha 0 a result does not show when its search stopped, so a call has one limit to stop it.
        groups: dict[int, list[int]] = {}
        for i, source in sources.items():
            if len(source) > 1 and limits[i] > 1 and max(len(source), limits[i]) <= self.positions:
                groups.setdefault(limits[i] if exact else 0, []).append(i)
        for group in groups.values():
            answers = self.translator.translate_batch(
                [[self.src_pieces[token] for token in sources[i][:-1]] for i in group],
                beam_size=beam,
                length_penalty=0 if exact else NEARLY_NONE,
                num_hypotheses=1 if exact else beam,
                max_decoding_length=max(limits[i] for i in group) - exact,
                min_decoding_length=0,
                max_input_length=0,
                no_repeat_ngram_size=settings.no_repeat_ngram,
                max_batch_size=1024,
                batch_type="tokens",
                return_scores=True,
                return_end_token=True,
            )
            for i, answer in zip(group, answers, strict=True):
                if best := self.rank(answer, limits[i], settings):
                    results[i] = best
        return results

    def rank(self, answer: Any, limit: int, settings: SearchConfig) -> list[Hypothesis] | None:
        """Return the best hypotheses of a sentence; None where `beam_search` might find others."""
        ended = []
        for (*pieces, last), log_prob in zip(answer.hypotheses, answer.scores, strict=True):
            if last != SPECIALS[END] or not self.never.isdisjoint(pieces):
                return None
            score = settings.score(log_prob, len(pieces) + 1)
            ended.append(Hypothesis(tuple(self.tgt_ids[piece] for piece in pieces), log_prob, score))
        longest = 1 + max(len(hypothesis.tokens) for hypothesis in ended)  # the step that ended the search
        # What ended but was not returned is no likelier than all that was, and no longer than the longest.
        least = settings.score(min(hypothesis.log_prob for hypothesis in ended), longest)
        best = sorted(ended, key=lambda hypothesis: -hypothesis.score)[: settings.n_best]
        certain = longest < limit and len(best) == settings.n_best and best[-1].score >= least
        return best if certain else None
