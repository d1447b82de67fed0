"""CTranslate2, a fast engine for Transformers without PyTorch, through its specification API.

Its converter of Marian models would give other translations: it begins each with zeros, our models with the
embedding of `<s>`; and Marian has no pre-norm, no learned positions and no words. CTranslate2 excludes tokens
before the softmax, which raises the probabilities of the others; our search excludes them after it.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from annotated.files import creating_folder, read_json
from annotated.interop.export import POSITIONS, check_parts, import_library, vocabulary, write_tokenizers
from annotated.search.limits import Limits, check_search, several_sentences
from annotated.tokenizers import END, PAD, SPECIALS, START, Tokenizer, load_tokenizer
from annotated.transformer.layers import sinusoids
from annotated.transformer.model import EncoderDecoder
from annotated.translation.model_folder import CONFIG, check_whole

QUANTIZATIONS = ("float32", "float16", "bfloat16", "int16", "int8")
# What the shipped models lost, as benchmarks/quantization.py recorded it (a test compares them).
INT8 = "int8 wants an x86 processor with VNNI: it cost the shipped models up to 1.1 BLEU without, 0.1 with it"


def to_ctranslate2(
    folder: str | Path,
    model: EncoderDecoder,
    src_tokenizer: Tokenizer,
    tgt_tokenizer: Tokenizer,
    quantization: str = "float32",
) -> None:
    """Write a new folder that `ctranslate2.Translator` loads, with our tokenizers and a README.md.

    Matrices are stored as `quantization`: "float32", "float16", "bfloat16", "int16" or "int8". On x86
    processors without VNNI, int8 cost the shipped models up to 1.1 BLEU, with VNNI 0.1 at most
    (benchmarks/quantization.py). A table of sinusoids ends at 1,024 positions there.

    Raises:
        FileExistsError: if the folder exists.
        ImportError: without CTranslate2.
        ValueError: for another quantization, a variant, or tokenizers that do not fit the model.
    """
    if quantization not in QUANTIZATIONS:
        raise ValueError(f"quantization must be one of {', '.join(QUANTIZATIONS)}, not {quantization!r}")
    check_whole(model, src_tokenizer, tgt_tokenizer)
    check_parts(model.config)
    spec = specification(model)
    spec.config.add_source_bos = START in src_tokenizer.before
    spec.config.add_source_eos = END in src_tokenizer.after
    spec.register_source_vocabulary(vocabulary(src_tokenizer))
    spec.register_target_vocabulary(vocabulary(tgt_tokenizer))
    spec.validate()
    spec.optimize(quantization)
    with creating_folder(Path(folder)) as new:
        spec.save(str(new))
        write_tokenizers(new, "CTranslate2", src_tokenizer, tgt_tokenizer)


def specification(model: EncoderDecoder) -> Any:
    """Return CTranslate2's specification of a model with its weights, still without vocabularies."""
    specs, c, own = import_library("ctranslate2").specs, model.config, model.state_dict()
    activation = specs.common_spec.Activation[c.activation.upper()]
    spec = specs.TransformerSpec.from_config(c.N, c.h, pre_norm=c.norm_first, activation=activation)
    start, end, _, unk = SPECIALS
    spec.config.decoder_start_token, spec.config.bos_token = start, start
    spec.config.eos_token, spec.config.unk_token = end, unk
    spec.config.layer_norm_epsilon = c.layer_norm_eps
    for stack, side, part in (("encoder", "src", spec.encoder), ("decoder", "tgt", spec.decoder)):
        for i, layer in enumerate(part.layer):
            set_layer(layer, own, f"{stack}.layers.{i}")
        if c.norm_first:
            set_norm(part.layer_norm, own, f"{stack}.norm")
        table = own.get(f"{side}_embed.1.lut.weight", sinusoids(POSITIONS, c.d_model))
        part.position_encodings.encodings = to_numpy(table)
        spec.config.add_attribute("positions", len(table))  # for `CTranslate2Translator`
    spec.encoder.embeddings[0].weight = to_numpy(own["src_embed.0.lut.weight"])
    spec.decoder.embeddings.weight = to_numpy(own["tgt_embed.0.lut.weight"])
    set_linear(spec.decoder.projection, own, "generator.proj")
    return spec


def set_layer(spec: Any, own: Mapping[str, Tensor], layer: str) -> None:
    """Set a layer's weights; linear maps of the same input are concatenated: query, key and value or less."""
    attentions = [("self_attn", spec.self_attention, [(0, 1, 2), (3,)])]
    if layer.startswith("decoder"):
        attentions.append(("src_attn", spec.attention, [(0,), (1, 2), (3,)]))
    for i, (name, attention, groups) in enumerate(attentions):
        for linear, group in zip(attention.linear, groups, strict=True):
            set_linear(linear, own, *(f"{layer}.{name}.linears.{k}" for k in group))
        set_norm(attention.layer_norm, own, f"{layer}.sublayer.{i}.norm")
    set_linear(spec.ffn.linear_0, own, f"{layer}.feed_forward.w_1")
    set_linear(spec.ffn.linear_1, own, f"{layer}.feed_forward.w_2")
    set_norm(spec.ffn.layer_norm, own, f"{layer}.sublayer.{len(attentions)}.norm")


def set_linear(spec: Any, own: Mapping[str, Tensor], *names: str) -> None:
    """Set one linear map to the concatenation of ours."""
    spec.weight = to_numpy(torch.cat([own[f"{name}.weight"] for name in names]))
    spec.bias = to_numpy(torch.cat([own[f"{name}.bias"] for name in names]))


def set_norm(spec: Any, own: Mapping[str, Tensor], name: str) -> None:
    """Set a layer norm."""
    spec.gamma, spec.beta = to_numpy(own[f"{name}.weight"]), to_numpy(own[f"{name}.bias"])


def to_numpy(tensor: Tensor) -> Any:
    """Copy a tensor to a float32 array; CTranslate2 quantises arrays in place."""
    return tensor.detach().to("cpu", torch.float32, copy=True).contiguous().numpy()


class CTranslate2Translator:
    """Translate text with a folder of `to_ctranslate2`, without PyTorch.

    `threads` batches are computed side by side, each in one thread. `limits` are those of `Translator`,
    within the engine's table of positions. Raises ImportError without CTranslate2, and FileNotFoundError or
    ValueError for a folder whose vocabularies are not those of its tokenizers.
    """

    def __init__(self, folder: str | Path, threads: int = 1, **limits: Any):
        engine, folder = import_library("ctranslate2"), Path(folder)
        self.src_tokenizer = load_tokenizer(folder, "src_tokenizer")
        self.tgt_tokenizer = load_tokenizer(folder, "tgt_tokenizer")
        self.src_pieces = check_vocabulary(folder, "source", self.src_tokenizer)
        pieces = check_vocabulary(folder, "target", self.tgt_tokenizer)
        self.tgt_ids = {piece: i for i, piece in enumerate(pieces)}
        self.never = [pieces[i] for i in (START, PAD, *self.tgt_tokenizer.forbidden_ids)]
        self.positions = read_json(folder / CONFIG).get("positions", POSITIONS)
        self.limits = Limits(**limits).within(self.positions)
        self.engine = engine.Translator(str(folder), inter_threads=threads, intra_threads=1)

    def translate(self, sentences: Iterable[str], beam: int = 4, alpha: float = 0.6) -> list[str]:
        """Translate sentences, one for one and in order; `alpha` is that of the penalty "power"."""
        return [self.tgt_tokenizer.decode(ids) for ids, _ in self.search(sentences, beam, alpha)]

    def search(
        self, sentences: Iterable[str], beam: int = 4, alpha: float = 0.6
    ) -> list[tuple[tuple[int, ...], float]]:
        """Return the best hypothesis of each sentence, tokens and score; no tokens for a blank sentence.

        A translation that reaches its limit, by default input length + 50, is cut off, without the end symbol
        in its score; our own search ends it there and counts that. Raises as `Translator.translate` does.
        """
        sentences = several_sentences(sentences)
        check_search(beam, 1, alpha)
        symbols = len(self.src_tokenizer.before + self.src_tokenizer.after)  # the engine adds them itself
        # A call has one limit for all of its sentences, ours depends on the length: a call for each length.
        groups: dict[int, dict[int, list[str]]] = {}
        for i, text in enumerate(sentences):
            if text.strip():
                tokens = self.limits.fit(self.src_tokenizer.encode(text), symbols, f"line {i + 1}")
                pieces = [self.src_pieces[token] for token in tokens]
                groups.setdefault(len(tokens) + symbols, {})[i] = pieces
        hypotheses: list[tuple[tuple[int, ...], float]] = [((), 0.0)] * len(sentences)
        never = {"suppress_sequences": [[piece] for piece in self.never]}
        for length, group in groups.items():
            limit = self.limits.longest(length) - 1  # ours counts the end symbol
            sources = list(group.values())
            results = self.results(sources, beam, limit, length_penalty=alpha)
            # No trained model needs it, and it changes scores.
            if not {piece for result in results for piece in result.hypotheses[0]}.isdisjoint(self.never):
                results = self.results(sources, beam, limit, length_penalty=alpha, **never)
            for i, result in zip(group, results, strict=True):
                hypotheses[i] = tuple(self.tgt_ids[piece] for piece in result.hypotheses[0]), result.scores[0]
        return hypotheses

    def results(self, pieces: list[list[str]], beam: int, limit: int, **options: Any) -> list[Any]:
        """Return CTranslate2's results for sources of any length, of 0 to `limit` pieces."""
        lengths = {"max_input_length": 0, "max_decoding_length": limit, "min_decoding_length": 0}
        options |= {"max_batch_size": 1024, "batch_type": "tokens", "return_scores": True, **lengths}
        return self.engine.translate_batch(pieces, beam_size=beam, **options)


def check_vocabulary(folder: Path, side: str, tokenizer: Tokenizer) -> list[str]:
    """Return a tokenizer's vocabulary. Raises ValueError unless the engine has the same for this side."""
    path, shared = folder / f"{side}_vocabulary.json", folder / "shared_vocabulary.json"
    path = path if path.exists() else shared
    if json.loads(path.read_text(encoding="utf-8")) != (pieces := vocabulary(tokenizer)):
        raise ValueError(f"{path} does not hold the tokens of the {side} tokenizer")
    return pieces
