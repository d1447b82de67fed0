"""Marian's translation models as Hugging Face keeps them (`Helsinki-NLP/opus-mt-*`), read.

Same model, three habits apart. Marian lays sines in the first half of d_model and cosines in the second, we
take turns: d_model is permuted throughout, which changes nothing else. Its padding symbol begins a
translation: here that row of the embedding is `<s>`, and `<blank>` is a row of its own. And its tokens have
other numbers, ours begin with four symbols. `LAYERS` and `MATRICES` say what Marian calls our parameters.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import chain, product
from pathlib import Path

import torch
from torch import Tensor

from annotated.files import read_file, read_json, settings_from_json
from annotated.interop.common import Rows, check_sinusoids, read_pickle, renumbered, taken
from annotated.interop.hub import find_folder
from annotated.tokenizers import END, SPECIALS, MarianTokenizer
from annotated.transformer.model import EncoderDecoder, TransformerConfig
from annotated.translation.model_folder import model_with, wanted_weights
from annotated.translation.tensor_files import check_tensors, read_tensors

CONFIG, WEIGHTS, OLD_WEIGHTS = "config.json", "model.safetensors", "pytorch_model.bin"
VOCAB, TGT_VOCAB, SRC_SPM, TGT_SPM = "vocab.json", "target_vocab.json", "source.spm", "target.spm"
FILES = (CONFIG, WEIGHTS, VOCAB, TGT_VOCAB, SRC_SPM, TGT_SPM)

# What a Marian model must have set for ours to compute the same, and why.
FIXED = {
    "model_type": ("marian", "this reads Marian's models alone"),
    "scale_embedding": (True, "our embeddings are multiplied by sqrt(d_model)"),
    "normalize_before": (False, "Marian's code at Hugging Face is post-norm"),
    "normalize_embedding": (False, "we have no norm after the embeddings"),
    "add_final_layer_norm": (False, "post-norm has no final norm"),
    "static_position_embeddings": (True, "Marian's positions are sinusoids"),
    "encoder_layerdrop": (0, "we leave out no whole layer in training"),
    "decoder_layerdrop": (0, "we leave out no whole layer in training"),
}
# Settings that Marian has for each stack and we have once: our name of each, and Marian's after the stack's.
TWICE = {"N": "layers", "d_ff": "ffn_dim", "h": "attention_heads"}
ONCE = {
    "d_model": "d_model",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "relu_dropout": "activation_dropout",
    "max_len": "max_position_embeddings",
}
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
TIED = {(True, True): "all", (False, True): "target", (False, False): "none"}  # across, and to the output
UNREACHABLE = -1e4  # a logit whose exponential is 0, yet finite in half precision
RECIPE = "load it with transformers' MarianMTModel and save_pretrained(): that writes safetensors"

# Our name of each part of a layer, and Marian's.
ATTENTION = {f"linears.{i}": f"{name}_proj" for i, name in enumerate(["q", "k", "v", "out"])}
LAYERS = {
    "encoder": {
        **{f"self_attn.{ours}": f"self_attn.{theirs}" for ours, theirs in ATTENTION.items()},
        "sublayer.0.norm": "self_attn_layer_norm",
        "feed_forward.w_1": "fc1",
        "feed_forward.w_2": "fc2",
        "sublayer.1.norm": "final_layer_norm",
    },
    "decoder": {
        **{f"self_attn.{ours}": f"self_attn.{theirs}" for ours, theirs in ATTENTION.items()},
        "sublayer.0.norm": "self_attn_layer_norm",
        **{f"src_attn.{ours}": f"encoder_attn.{theirs}" for ours, theirs in ATTENTION.items()},
        "sublayer.1.norm": "encoder_attn_layer_norm",
        "feed_forward.w_1": "fc1",
        "feed_forward.w_2": "fc2",
        "sublayer.2.norm": "final_layer_norm",
    },
}
SRC, TGT = "src_embed.0.lut.weight", "tgt_embed.0.lut.weight"
OUTPUT, BIAS = "generator.proj.weight", "generator.proj.bias"
ENCODER, DECODER = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
SHARED, HEAD = "model.shared.weight", "lm_head.weight"
# For each way of tying, our matrices and all of Marian's names for each; a file has one of them or more.
MATRICES = {
    "all": {SRC: (SHARED, ENCODER, DECODER, HEAD)},
    "target": {SRC: (ENCODER,), TGT: (DECODER, HEAD)},
    "none": {SRC: (ENCODER,), TGT: (DECODER,), OUTPUT: (HEAD,)},
}
POSITIONS = "model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"


def load_marian(name_or_folder: str | Path) -> tuple[EncoderDecoder, MarianTokenizer, MarianTokenizer]:
    """A Marian model of Hugging Face's, from its folder or by its name there, with both its tokenizers.

        translate = Translator(*load_marian("Helsinki-NLP/opus-mt-en-de"))

    The model is in evaluation mode. Tokens have our numbers: `tokenizer.vocabulary` tells which is which.

    Raises FileNotFoundError for what is neither on disk nor to be had, and ValueError that names a setting
    that we have not, a tensor that is missing, surplus or of the wrong shape, or a file that is damaged.
    """
    folder = find_folder(name_or_folder, FILES)
    if not (folder / WEIGHTS).is_file():
        folder = find_folder(name_or_folder, (*FILES, OLD_WEIGHTS))
    settings = read_json(folder / CONFIG)
    check_settings(settings, folder / CONFIG)
    src, tgt = read_vocabularies(folder, settings)
    symbols = symbols_of(settings, tgt, folder / CONFIG)
    src_rows, tgt_rows = numbering(src, symbols, folder), numbering(tgt, symbols, folder)
    ours = our_settings(settings, len(src_rows), len(tgt_rows))
    config = settings_from_json(TransformerConfig, ours, folder / CONFIG)
    source, tensors = read_weights(folder)
    found = our_tensors(tensors, config, source)
    for names, rows, size in (((SRC,), src_rows, len(src)), ((TGT, OUTPUT, BIAS), tgt_rows, len(tgt))):
        found |= our_rows({name: found[name] for name in names if name in found}, rows, size, source)
    check_tensors(found, wanted_weights(config, source), source)  # before any work at the width they claim
    order = sines_first(config.d_model)
    model = model_with(config, permuted(found, order.argsort()), source)
    for name in tensors.keys() & set(POSITIONS):
        check_sinusoids(tensors[name], config.d_model, f"{source}: tensor {name}", 1e-3, order)
    tokenizers = [
        MarianTokenizer(read_file(folder / file), pieces_of(numbers, rows))
        for file, numbers, rows in ((SRC_SPM, src, src_rows), (TGT_SPM, tgt, tgt_rows))
    ]
    return model.eval(), *tokenizers


def check_settings(settings: Mapping[str, object], source: Path) -> None:
    """Raise ValueError naming a setting of Marian's that is missing, or that no model of ours could have."""
    twice = [(f"encoder_{name}", f"decoder_{name}") for name in TWICE.values()]
    others = ("model_type", "scale_embedding", "activation_function", "vocab_size")
    for name in (*ONCE.values(), *sum(twice, ()), *others):
        if name not in settings:
            raise ValueError(f"{source}: the setting {name!r} is missing")
    for name in ("vocab_size", "decoder_vocab_size"):
        if not isinstance(settings.get(name, 0) or 0, int):
            raise ValueError(f"{source}: {name} must be a number, not {settings[name]!r}")
    for name, (value, why) in FIXED.items():
        if settings.get(name, value) != value:
            raise ValueError(f"{source}: {name} is {settings[name]!r}, but must be {value!r}: {why}")
    for encoder, decoder in twice:
        if settings[encoder] != settings[decoder]:
            both = f"{encoder} is {settings[encoder]} and {decoder} {settings[decoder]}"
            raise ValueError(f"{source}: {both}; our models have one number for both stacks")
    if settings["activation_function"] not in list(ACTIVATIONS):
        names = ", ".join(ACTIVATIONS)
        raise ValueError(f"{source}: activation {settings['activation_function']!r} is none of {names}")
    if sharing(settings) not in TIED:
        raise ValueError(
            f"{source}: embeddings shared by both sides, but not with the output; ours share all"
        )


def sharing(settings: Mapping[str, object]) -> tuple[bool, bool]:
    """Whether both sides' embeddings are one matrix, and whether the target's is the output's too."""
    shared = settings.get("share_encoder_decoder_embeddings", True)
    return shared is not False, settings.get("tie_word_embeddings", True) is not False


def our_settings(settings: Mapping[str, object], src_vocab: int, tgt_vocab: int) -> dict[str, object]:
    """The fields of a `TransformerConfig` that stand for Marian's settings."""
    return {
        "src_vocab": src_vocab,
        "tgt_vocab": tgt_vocab,
        **{ours: settings[theirs] for ours, theirs in ONCE.items()},
        **{ours: settings[f"encoder_{theirs}"] for ours, theirs in TWICE.items()},
        "activation": ACTIVATIONS[settings["activation_function"]],
        "tied_embeddings": TIED[sharing(settings)],
    }


def read_vocabularies(folder: Path, settings: Mapping[str, object]) -> tuple[dict[str, int], dict[str, int]]:
    """The numbers of both sides' pieces; one file serves both unless there are two."""
    src_size = settings["vocab_size"]
    tgt_size = src_size if sharing(settings)[0] else settings.get("decoder_vocab_size") or src_size
    second = TGT_VOCAB if (folder / TGT_VOCAB).exists() else VOCAB
    found = []
    for path, size in ((folder / VOCAB, src_size), (folder / second, tgt_size)):
        numbers = read_json(path)
        given = {number for number in numbers.values() if isinstance(number, int)}
        if len(numbers) != size or given != set(range(len(numbers))):
            raise ValueError(f"{path} must give {size} pieces the numbers from 0 to {size - 1}")
        found.append(numbers)
    if sharing(settings)[0] and found[0] != found[1]:
        raise ValueError(f"{folder}: two vocabularies, but embeddings that both sides share")
    return found[0], found[1]


def symbols_of(settings: Mapping[str, object], tgt: Mapping[str, int], source: Path) -> list[str | None]:
    """The pieces that serve as our four symbols; None for padding where its piece begins translations too."""
    pieces = {number: piece for piece, number in tgt.items()}
    found = []
    for name in ("decoder_start_token_id", "eos_token_id", "pad_token_id"):
        number = settings.get(name)
        if not isinstance(number, int) or number not in pieces:
            raise ValueError(f"{source}: {name} must be the number of a piece, not {number!r}")
        found.append(pieces[number])
    start, end, pad = found
    if end in (start, pad):
        raise ValueError(f"{source}: {end} ends a translation, and begins it or pads it too; ours ends alone")
    return [start, end, None if pad == start else pad, "<unk>"]


def numbering(numbers: Mapping[str, int], symbols: list[str | None], folder: Path) -> Rows:
    """For each of our tokens its number at Marian's: our four symbols, then the other pieces in order."""
    for symbol in (symbols[END], "<unk>"):
        if symbol not in numbers:
            raise ValueError(f"{folder}: the vocabulary has no {symbol}")
    first = [numbers.get(symbol) for symbol in symbols]
    return [*first, *(number for number in sorted(numbers.values()) if number not in first)]


def pieces_of(numbers: Mapping[str, int], rows: Rows) -> list[str]:
    """The vocabulary in our order, our symbols by our names."""
    pieces = {number: piece for piece, number in numbers.items()}
    return [*SPECIALS, *(pieces[number] for number in rows[len(SPECIALS) :])]


def read_weights(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    """Which file holds the weights, and its tensors."""
    if (folder / WEIGHTS).is_file() or not (folder / OLD_WEIGHTS).is_file():
        return folder / WEIGHTS, read_tensors(folder / WEIGHTS)
    return folder / OLD_WEIGHTS, read_pickle(folder / OLD_WEIGHTS, RECIPE)


def our_tensors(
    tensors: Mapping[str, Tensor], config: TransformerConfig, source: object
) -> dict[str, Tensor]:
    """Marian's tensors under our names, in Marian's order of tokens and dimensions."""
    names, ignored = {BIAS: "final_logits_bias"}, set(POSITIONS)
    for ours, aliases in MATRICES[config.tied_embeddings].items():
        names[ours], *others = present(aliases, tensors)
        for other in others:
            if not torch.equal(tensors[names[ours]], tensors[other]):
                raise ValueError(f"{source}: {names[ours]} and {other} must be one matrix, by the settings")
        ignored.update(others)
    found = taken(tensors, chain(names.items(), stack_names(config.N)), source, ignored)
    return found | {BIAS: found[BIAS].flatten()}


def our_rows(tensors: Mapping[str, Tensor], rows: Rows, size: int, source: object) -> dict[str, Tensor]:
    """The tensors with a row for each of our tokens. Raises ValueError for one of not `size` rows."""
    for name, tensor in tensors.items():
        if tensor.shape[:1] != (size,):
            raise ValueError(f"{source}: {name} has shape {tuple(tensor.shape)}, but there are {size} pieces")
    fill = {name: UNREACHABLE if name == BIAS else 0.0 for name in tensors}
    return {name: renumbered(tensor, rows, fill[name]) for name, tensor in tensors.items()}


def stack_names(N: int) -> Iterator[tuple[str, str]]:
    """Our name of every parameter of the two stacks, and Marian's: one by one, as N may be any number."""
    for stack, parts in LAYERS.items():
        for i in range(N):
            for (ours, theirs), kind in product(parts.items(), ("weight", "bias")):
                yield f"{stack}.layers.{i}.{ours}.{kind}", f"model.{stack}.layers.{i}.{theirs}.{kind}"


def present(aliases: Collection[str], tensors: Collection[str]) -> list[str]:
    """Those of a matrix's names that a file has; the first of all if it has none."""
    return [name for name in aliases if name in tensors] or [next(iter(aliases))]


def along_d_model(name: str) -> int | None:
    """Which axis of one of our parameters runs along d_model, the width between layers; None if none does."""
    if name.rpartition(".")[0].endswith(("linears.3", "w_2", "norm")):
        return 0  # what a sub-layer gives, and what is normalised
    return 1 if name.endswith("weight") else None  # what a map takes; its bias lies along its own output


def sines_first(d_model: int) -> Tensor:
    """Our dimensions in Marian's order: those with a sine, then those with a cosine."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


def permuted(tensors: dict[str, Tensor], order: Tensor) -> dict[str, Tensor]:
    """Our tensors with d_model in another order.

    One of another width is left as it is: whoever takes it will say what is wrong with its shape.
    """
    found = dict(tensors)
    for name, tensor in tensors.items():
        axis = along_d_model(name)
        if axis is not None and tensor.dim() > axis and tensor.size(axis) == len(order):
            found[name] = tensor.index_select(axis, order.to(tensor.device))
    return found
