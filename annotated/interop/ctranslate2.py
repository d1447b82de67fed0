"""CTranslate2, a fast engine for Transformers without PyTorch: written through its specification API.

Its model is ours, but that it joins the linear maps that take the same input. It strikes out forbidden tokens
before the softmax, which shares their probability out among the others; our search does so after it.
"""

import json
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from annotated.files import creating_folder, read_json
from annotated.interop.common import LONGEST, check_parts, foreign, vocabulary
from annotated.interop.readmes import write_readme
from annotated.tokenizers import END, SPECIALS, START, UNK, Tokenizer, load_tokenizer, save_tokenizer
from annotated.transformer.attention import MultiHeadedAttention
from annotated.transformer.layers import SublayerConnection, sinusoids
from annotated.transformer.model import EncoderDecoder, EncoderLayer, Stack
from annotated.translation.limits import Limits, check_search, several_sentences
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
    specs = foreign("ctranslate2.specs")
    c = model.config
    activation = getattr(specs.common_spec.Activation, ACTIVATIONS[c.activation])
    spec = specs.TransformerSpec.from_config(c.N, c.h, pre_norm=c.norm_first, activation=activation)
    start, end, _, unk = SPECIALS
    spec.config.decoder_start_token, spec.config.bos_token = start, start
    spec.config.eos_token, spec.config.unk_token = end, unk
    spec.config.layer_norm_epsilon = c.layer_norm_eps
    set_stack(spec.encoder, model.encoder)
    set_stack(spec.decoder, model.decoder)
    for part, embed in ((spec.encoder, model.src_embed), (spec.decoder, model.tgt_embed)):
        table = positions(embed[1], c.d_model)
        part.position_encodings.encodings = array(table)
    spec.config.add_attribute("positions", len(table))  # for ourselves: no engine asks
    spec.encoder.embeddings[0].weight = array(model.src_embed[0].lut.weight)
    spec.decoder.embeddings.weight = array(model.tgt_embed[0].lut.weight)
    set_linear(spec.decoder.projection, model.generator.proj)
    return spec


def positions(module: nn.Module, d_model: int) -> Tensor:
    """What is added at each position: learned vectors, or sinusoids, of which ours could make any number."""
    learned = getattr(module, "lut", None)
    return sinusoids(LONGEST, d_model) if learned is None else learned.weight


def set_stack(spec: Any, stack: Stack) -> None:
    """Fill in all layers, and the final norm of pre-norm."""
    for part, layer in zip(spec.layer, stack.layers, strict=True):
        set_layer(part, layer)
    if isinstance(stack.norm, nn.LayerNorm):
        set_norm(spec.layer_norm, stack.norm)


def set_layer(spec: Any, layer: nn.Module) -> None:
    """Fill in one layer, encoder's or decoder's."""
    set_attention(spec.self_attention, layer.self_attn, layer.sublayer[0], joined=(3,))
    if not isinstance(layer, EncoderLayer):
        set_attention(spec.attention, layer.src_attn, layer.sublayer[1], joined=(1, 2))
    set_linear(spec.ffn.linear_0, layer.feed_forward.w_1)
    set_linear(spec.ffn.linear_1, layer.feed_forward.w_2)
    set_norm(spec.ffn.layer_norm, layer.sublayer[-1].norm)


def set_attention(
    spec: Any, attention: MultiHeadedAttention, connection: SublayerConnection, joined: tuple[int, ...]
) -> None:
    """Fill in an attention; `joined` says how many of query, key and value share each of its maps."""
    groups = torch.arange(3).split(list(joined))
    for part, group in zip(spec.linear, [*groups, [3]], strict=True):
        set_linear(part, *(attention.linears[i] for i in group))
    set_norm(spec.layer_norm, connection.norm)


def set_linear(spec: Any, *linears: nn.Linear) -> None:
    """Fill in linear maps of the same input, as one."""
    spec.weight = array(torch.cat([linear.weight for linear in linears]))
    spec.bias = array(torch.cat([linear.bias for linear in linears]))


def set_norm(spec: Any, norm: nn.LayerNorm) -> None:
    """Fill in a layer norm."""
    spec.gamma, spec.beta = array(norm.weight), array(norm.bias)


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

    def __init__(self, folder: str | Path, threads: int = 1, **limits: int | str):
        engine = foreign("ctranslate2")
        self.src_tokenizer = load_tokenizer(folder, "src_tokenizer")
        self.tgt_tokenizer = load_tokenizer(folder, "tgt_tokenizer")
        self.src_pieces, tgt_pieces = vocabulary(self.src_tokenizer), vocabulary(self.tgt_tokenizer)
        self.tgt_ids = {piece: i for i, piece in enumerate(tgt_pieces)}
        never = {i for i in range(UNK) if i != self.tgt_tokenizer.end} | set(self.tgt_tokenizer.forbidden_ids)
        self.never = [tgt_pieces[i] for i in sorted(never)]
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
        texts = {
            i: self.limits.fit(tokenizer.encode(text), around, f"line {i + 1}")
            for i, text in enumerate(sentences)
            if text.strip()
        }
        found: list[tuple[tuple[int, ...], float]] = [((), 0.0)] * len(sentences)
        # The sentences of a call have one limit there, and here each has its own.
        by_length = groupby(sorted(texts, key=lambda i: len(texts[i])), lambda i: len(texts[i]) + around)
        for length, group in by_length:
            indices = list(group)
            limit = self.limits.longest(length) - 1  # ours counts the end symbol
            pieces = [[self.src_pieces[token] for token in texts[i]] for i in indices]
            for i, (said, score) in zip(indices, self.decode(pieces, beam, alpha, limit), strict=True):
                found[i] = tuple(self.tgt_ids[piece] for piece in said), score
        return found

    def decode(
        self, pieces: list[list[str]], beam: int, alpha: float, limit: int
    ) -> list[tuple[list[str], float]]:
        """The pieces and the score of each sentence's best hypothesis.

        Tokens that are never taken are struck out only for the sentences in which one turns up, as a trained
        model has none: so the scores of all others are the model's own.
        """

        def best(pieces: list[list[str]], **options: object) -> list[tuple[list[str], float]]:
            results = self.engine.translate_batch(
                pieces,
                beam_size=beam,
                length_penalty=alpha,
                max_batch_size=1024,
                batch_type="tokens",
                max_input_length=0,
                max_decoding_length=limit,
                min_decoding_length=0,
                return_scores=True,
                **options,
            )
            return [(result.hypotheses[0], result.scores[0]) for result in results]

        found = best(pieces)
        wrong = [i for i, (said, _) in enumerate(found) if not set(said).isdisjoint(self.never)]
        if wrong:
            struck = best([pieces[i] for i in wrong], suppress_sequences=[[piece] for piece in self.never])
            for i, each in zip(wrong, struck, strict=True):
                found[i] = each
        return found
