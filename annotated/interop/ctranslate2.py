"""CTranslate2, a fast engine for Transformers without PyTorch: written through its specification API.

Its model is ours, but that it joins the linear maps that take the same input. It strikes out forbidden tokens
before the softmax, which shares their probability out among the others; our search does so after it.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from annotated.files import creating_folder, read_json
from annotated.interop.common import LONGEST, check_parts, foreign, vocabulary, write_readme
from annotated.search.limits import Limits, check_search, several_sentences
from annotated.tokenizers import END, PAD, SPECIALS, START, Tokenizer, load_tokenizer, save_tokenizer
from annotated.transformer.layers import sinusoids
from annotated.transformer.model import EncoderDecoder
from annotated.translation.model_folder import CONFIG, check_whole

ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "swish": "SWISH"}  # its names of ours
QUANTIZATIONS = ("float32", "float16", "bfloat16", "int16", "int8")
# What the shipped models lost, as benchmarks/quantization.py recorded it (a test holds the two together).
INT8 = "int8 wants an x86 processor with VNNI: it cost the shipped models up to 1.1 BLEU without, 0.1 with it"


def to_ctranslate2(
    folder: str | Path,
    model: EncoderDecoder,
    src_tokenizer: Tokenizer,
    tgt_tokenizer: Tokenizer,
    quantization: str = "float32",
) -> None:
    """Write a new folder that `ctranslate2.Translator` loads, our tokenizers and a README.md beside it.

    `quantization` is how the matrices are stored: "float32", "float16", "bfloat16", "int16" or "int8". An x86
    processor without VNNI adds two products of int8 in 16 bits and cuts off what does not fit, which cost one
    shipped model up to 1.1 BLEU and the others 0.2 at most (benchmarks/quantization.py); with VNNI none lost
    more than 0.1. All settings of our models are known there, but sinusoids end at 1,024 positions. Raises
    FileExistsError, ImportError where CTranslate2 is missing, and ValueError for another quantization, a
    variant of the model, or tokenizers that do not fit it.
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
        save_tokenizer(src_tokenizer, new, "src_tokenizer")
        save_tokenizer(tgt_tokenizer, new, "tgt_tokenizer")
        write_readme(new, "CTranslate2", src_tokenizer, tgt_tokenizer)


def specification(model: EncoderDecoder) -> Any:
    """The model as CTranslate2 describes one, all weights in it but no vocabulary yet."""
    specs, c, own = foreign("ctranslate2").specs, model.config, model.state_dict()
    activation = getattr(specs.common_spec.Activation, ACTIVATIONS[c.activation])
    spec = specs.TransformerSpec.from_config(c.N, c.h, pre_norm=c.norm_first, activation=activation)
    start, end, _, unk = SPECIALS
    spec.config.decoder_start_token, spec.config.bos_token = start, start
    spec.config.eos_token, spec.config.unk_token = end, unk
    spec.config.layer_norm_epsilon = c.layer_norm_eps
    for name, side, part in (("encoder", "src", spec.encoder), ("decoder", "tgt", spec.decoder)):
        set_layers(part.layer, own, name)
        if c.norm_first:
            set_norm(part.layer_norm, own, f"{name}.norm")
        # Learned vectors, or sinusoids, of which ours could make any number.
        table = own.get(f"{side}_embed.1.lut.weight", sinusoids(LONGEST, c.d_model))
        part.position_encodings.encodings = array(table)
        spec.config.add_attribute("positions", len(table))  # for ourselves: no engine asks
    spec.encoder.embeddings[0].weight = array(own["src_embed.0.lut.weight"])
    spec.decoder.embeddings.weight = array(own["tgt_embed.0.lut.weight"])
    set_linear(spec.decoder.projection, own, "generator.proj")
    return spec


def set_layers(specs: Iterable[Any], own: Mapping[str, Tensor], stack: str) -> None:
    """Fill in a stack's layers, which join those maps of query, key and value that take the same input."""
    for i, spec in enumerate(specs):
        layer = f"{stack}.layers.{i}"
        attentions = [("self_attn", spec.self_attention, [(0, 1, 2), (3,)])]
        if stack == "decoder":
            attentions.append(("src_attn", spec.attention, [(0,), (1, 2), (3,)]))
        for j, (name, attention, groups) in enumerate(attentions):
            for part, group in zip(attention.linear, groups, strict=True):
                set_linear(part, own, *(f"{layer}.{name}.linears.{k}" for k in group))
            set_norm(attention.layer_norm, own, f"{layer}.sublayer.{j}.norm")
        set_linear(spec.ffn.linear_0, own, f"{layer}.feed_forward.w_1")
        set_linear(spec.ffn.linear_1, own, f"{layer}.feed_forward.w_2")
        set_norm(spec.ffn.layer_norm, own, f"{layer}.sublayer.{len(attentions)}.norm")


def set_linear(spec: Any, own: Mapping[str, Tensor], *names: str) -> None:
    """Fill in linear maps of the same input, as one."""
    spec.weight = array(torch.cat([own[f"{name}.weight"] for name in names]))
    spec.bias = array(torch.cat([own[f"{name}.bias"] for name in names]))


def set_norm(spec: Any, own: Mapping[str, Tensor], name: str) -> None:
    """Fill in a layer norm."""
    spec.gamma, spec.beta = array(own[f"{name}.weight"]), array(own[f"{name}.bias"])


def array(tensor: Tensor) -> Any:
    """A copy of a tensor for CTranslate2, which changes in place what it is handed: NumPy, float32."""
    return tensor.detach().to("cpu", torch.float32, copy=True).contiguous().numpy()


def check_vocabulary(folder: Path, side: str, tokenizer: str, pieces: list[str]) -> None:
    """Raise ValueError unless the engine's vocabulary of a side is that of our tokenizer."""
    paths = [folder / f"{name}_vocabulary.json" for name in (side, "shared")]
    path = next((path for path in paths if path.exists()), paths[0])
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        found = None
    if found != pieces:
        raise ValueError(f"{path} does not hold the tokens of {tokenizer}.json")


class CTranslate2Translator:
    """Text in, text out, through a folder of `to_ctranslate2`: no PyTorch computes here.

    As many batches as `threads` are computed side by side, each in one thread. `limits` are those of our own
    `Translator`, within the engine's table of positions. Raises ImportError where CTranslate2 is missing,
    FileNotFoundError or ValueError for a folder that holds no such model.
    """

    def __init__(self, folder: str | Path, threads: int = 1, **limits: Any):
        engine = foreign("ctranslate2")
        self.src_tokenizer = load_tokenizer(folder, "src_tokenizer")
        self.tgt_tokenizer = load_tokenizer(folder, "tgt_tokenizer")
        self.src_pieces, tgt_pieces = vocabulary(self.src_tokenizer), vocabulary(self.tgt_tokenizer)
        self.tgt_ids = {piece: i for i, piece in enumerate(tgt_pieces)}
        self.never = [tgt_pieces[i] for i in (START, PAD, *self.tgt_tokenizer.forbidden_ids)]
        self.positions = read_json(Path(folder) / CONFIG).get("positions", LONGEST)
        if type(self.positions) is not int or self.positions < 1:
            said = f"{Path(folder) / CONFIG}: positions must be a whole number from 1, not {self.positions!r}"
            raise ValueError(said)
        self.limits = Limits(**limits).within(self.positions)
        check_vocabulary(Path(folder), "source", "src_tokenizer", self.src_pieces)
        check_vocabulary(Path(folder), "target", "tgt_tokenizer", tgt_pieces)
        try:
            self.engine = engine.Translator(str(folder), inter_threads=threads, intra_threads=1)
        except RuntimeError as error:
            raise ValueError(f"{folder} holds no model of CTranslate2's: {error}") from None

    def translate(self, sentences: Iterable[str], beam: int = 4, alpha: float = 0.6) -> list[str]:
        """Translate sentences, one for one and in order; `alpha` is that of the penalty "power"."""
        return [self.tgt_tokenizer.decode(ids) for ids, _ in self.search(sentences, beam, alpha)]

    def search(
        self, sentences: Iterable[str], beam: int = 4, alpha: float = 0.6
    ) -> list[tuple[tuple[int, ...], float]]:
        """The best hypothesis of each sentence, tokens and score; no tokens for one of white space alone.

        A translation that reaches its limit, as a rule input length + 50, is cut off, and has no end symbol
        in its score; our own search ends it there, and counts that.

        Raises ValueError as `Translator.translate` does.
        """
        sentences = several_sentences(sentences)
        check_search(beam, 1, alpha)
        tokenizer = self.src_tokenizer
        around = len(tokenizer.before + tokenizer.after)  # symbols, which the engine adds itself
        # The sentences of a call have one limit there, and here each has its own, by its length.
        groups: dict[int, dict[int, list[str]]] = {}
        for i, text in enumerate(sentences):
            if text.strip():
                tokens = self.limits.fit(tokenizer.encode(text), around, f"line {i + 1}")
                pieces = [self.src_pieces[token] for token in tokens]
                groups.setdefault(len(tokens) + around, {})[i] = pieces
        found: list[tuple[tuple[int, ...], float]] = [((), 0.0)] * len(sentences)
        for length, group in groups.items():
            limit = self.limits.longest(length) - 1  # ours counts the end symbol
            results = self.decode(list(group.values()), beam, alpha, limit)
            for i, result in zip(group, results, strict=True):
                found[i] = tuple(self.tgt_ids[piece] for piece in result.hypotheses[0]), result.scores[0]
        return found

    def decode(self, pieces: list[list[str]], beam: int, alpha: float, limit: int) -> list[Any]:
        """What CTranslate2 finds for each sentence.

        Tokens that are never taken are struck out only for the sentences in which one turns up, as a trained
        model has none: so the scores of all others are the model's own.
        """
        options = {"length_penalty": alpha, "max_batch_size": 1024, "batch_type": "tokens"}
        found = self.results(pieces, beam, limit, **options)
        wrong = [i for i, each in enumerate(found) if not set(each.hypotheses[0]).isdisjoint(self.never)]
        if wrong:
            options["suppress_sequences"] = [[piece] for piece in self.never]
            struck = self.results([pieces[i] for i in wrong], beam, limit, **options)
            for i, each in zip(wrong, struck, strict=True):
                found[i] = each
        return found

    def results(self, pieces: list[list[str]], beam: int, limit: int, **options: Any) -> list[Any]:
        """What CTranslate2 finds for sources of any length, in translations of 0 to `limit` pieces."""
        return self.engine.translate_batch(
            pieces,
            beam_size=beam,
            max_input_length=0,
            max_decoding_length=limit,
            min_decoding_length=0,
            return_scores=True,
            **options,
        )
