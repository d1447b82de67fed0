"""Marian's translation models as Hugging Face keeps them (`Helsinki-NLP/opus-mt-*`), read and written.

The same model, with three differences. Marian puts sines in the first half of d_model and cosines in the
second, we alternate: d_model is permuted, which changes nothing else. Its padding symbol begins translations:
here that row of the embedding is `<s>`, and `<blank>` a row of its own. Our tokens begin with four symbols.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save
from torch import Tensor

from annotated.files import creating_folder, read_json, settings_from_json, write_json
from annotated.interop.export import POSITIONS, Subwords, check_exportable, vocabulary, write_tokenizers
from annotated.interop.hub import find_folder
from annotated.interop.tensors import Rows, check_sinusoids, load_tensors, rename_tensors, select_rows
from annotated.tokenizers import END, PAD, SPECIALS, START, UNK, MarianTokenizer, Tokenizer
from annotated.transformer.model import EncoderDecoder, TransformerConfig
from annotated.translation.model_folder import model_with, wanted_weights, weights
from annotated.translation.tensor_files import read_tensors

CONFIG, WEIGHTS, OLD_WEIGHTS = "config.json", "model.safetensors", "pytorch_model.bin"
VOCAB, TGT_VOCAB, SRC_SPM, TGT_SPM = "vocab.json", "target_vocab.json", "source.spm", "target.spm"
FILES = (CONFIG, WEIGHTS, VOCAB, TGT_VOCAB, SRC_SPM, TGT_SPM)

# Settings with one value that our model computes the same with.
FIXED = {
    "model_type": "marian",
    "scale_embedding": True,
    "normalize_before": False,  # post-norm
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
    "encoder_layerdrop": 0,
    "decoder_layerdrop": 0,
}
SHARING = "share_encoder_decoder_embeddings", "tie_word_embeddings"  # by both sides, by target and output
TIED = {(True, True): "all", (False, True): "target", (False, False): "none"}
# What a file leaves out has Marian's default.
DEFAULTS = {**FIXED, "scale_embedding": False, **dict.fromkeys(SHARING, True)}
# Our names of settings, and Marian's: those of each stack, which begin with its name, and those of the model.
STACK_SETTINGS = {"N": "layers", "d_ff": "ffn_dim", "h": "attention_heads"}
MODEL_SETTINGS = {
    "d_model": "d_model",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "relu_dropout": "activation_dropout",
    "max_len": "max_position_embeddings",
    "activation": "activation_function",
}
SYMBOLS = "decoder_start_token_id", "eos_token_id", "pad_token_id"
RECIPE = "load it with transformers' MarianMTModel and save_pretrained(): that writes safetensors"

# Our name of each part of a layer, and Marian's; an encoder layer's second norm is its last.
PARTS = {
    "src_attn": "encoder_attn",
    **{f"linears.{i}": f"{name}_proj" for i, name in enumerate(["q", "k", "v", "out"])},
    "feed_forward.w_1": "fc1",
    "feed_forward.w_2": "fc2",
    "sublayer.0.norm": "self_attn_layer_norm",
    "sublayer.1.norm": "encoder_attn_layer_norm",
    "sublayer.2.norm": "final_layer_norm",
}
SRC, TGT = "src_embed.0.lut.weight", "tgt_embed.0.lut.weight"
OUTPUT, BIAS = "generator.proj.weight", "generator.proj.bias"
ENCODER, DECODER = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
SHARED, HEAD, HEAD_BIAS = "model.shared.weight", "lm_head.weight", "final_logits_bias"
# For each way of tying, our matrices and Marian's names of each, of which a file has at least one.
MATRICES: dict[str, dict[str, tuple[str, ...]]] = {
    "all": {SRC: (SHARED, ENCODER, DECODER, HEAD)},
    "target": {SRC: (ENCODER,), TGT: (DECODER, HEAD)},
    "none": {SRC: (ENCODER,), TGT: (DECODER,), OUTPUT: (HEAD,)},
}
SINUSOIDS = {"model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"}
UNREACHABLE = -1e4  # a logit whose exponential is 0, yet finite in half precision


# ---- in


def load_marian(name_or_folder: str | Path) -> tuple[EncoderDecoder, MarianTokenizer, MarianTokenizer]:
    """Load a Marian model, from its folder or by its name at Hugging Face, with both tokenizers.

        translate = Translator(*load_marian("Helsinki-NLP/opus-mt-en-de"))

    The model is in evaluation mode. Tokens have our numbers, in the order of `tokenizer.vocabulary`. Raises
    FileNotFoundError for a missing file, KeyError for a missing setting, and ValueError naming a setting that
    our model lacks, a tensor that is missing, surplus or of the wrong shape, or a damaged file.
    """
    folder = find_folder(name_or_folder, FILES)
    if not (folder / WEIGHTS).is_file():
        folder = find_folder(name_or_folder, (*FILES, OLD_WEIGHTS))
    path = folder / CONFIG
    settings = DEFAULTS | read_json(path)
    ours = convert_settings(settings, path)
    (src_rows, src), (tgt_rows, tgt) = number_tokens(folder, settings, ours["tied_embeddings"] == "all")
    config = settings_from_json(
        TransformerConfig, {"src_vocab": len(src), "tgt_vocab": len(tgt)} | ours, path
    )
    if (folder / WEIGHTS).is_file():
        tensors = read_tensors(folder / WEIGHTS)
    else:
        tensors = load_tensors(folder / OLD_WEIGHTS, RECIPE)
    model = convert_model(tensors, config, src_rows, tgt_rows, folder)
    spm = ((folder / name).read_bytes() for name in (SRC_SPM, TGT_SPM))
    return model, MarianTokenizer(next(spm), src), MarianTokenizer(next(spm), tgt)


def convert_settings(settings: Mapping[str, Any], source: Path) -> dict[str, Any]:
    """Convert Marian's settings to fields of `TransformerConfig`, except the sizes of the vocabularies.

    Raises ValueError naming a setting with a value that our model lacks.
    """
    encoder = {ours: settings[f"encoder_{theirs}"] for ours, theirs in STACK_SETTINGS.items()}
    equal = {f"decoder_{STACK_SETTINGS[ours]}": value for ours, value in encoder.items()}
    for name, value in (FIXED | equal).items():
        if settings[name] != value:
            raise ValueError(f"{source}: {name} is {settings[name]!r}, but our model has {value!r}")
    tied = TIED.get((settings[SHARING[0]], settings[SHARING[1]]))
    if tied is None:
        raise ValueError(f"{source}: both sides share embeddings, but not with the output; ours share all")
    model = {ours: settings[theirs] for ours, theirs in MODEL_SETTINGS.items()}
    activation = {"silu": "swish"}.get(model["activation"], model["activation"])
    return model | encoder | {"activation": activation, "tied_embeddings": tied}


def number_tokens(folder: Path, settings: Mapping[str, Any], shared: bool) -> list[tuple[Rows, list[str]]]:
    """Return, for each side, Marian's number of each of our tokens, and its name.

    Our symbols come first, then the other pieces. Raises ValueError for a symbol that is missing.
    """
    files = [VOCAB, TGT_VOCAB if (folder / TGT_VOCAB).exists() else VOCAB]
    numbers = [read_json(folder / file) for file in files]
    if shared and numbers[0] != numbers[1]:
        raise ValueError(f"{folder}: two vocabularies, but embeddings that both sides share")
    src, tgt = (sorted(pieces, key=pieces.__getitem__) for pieces in numbers)
    start, end, pad = (tgt[settings[name]] for name in SYMBOLS)
    if end in (start, pad):
        raise ValueError(f"{folder}: {end!r} ends a translation, and begins it or pads it too")
    sides: list[tuple[Rows, list[str]]] = []
    for pieces in (src, tgt):
        number: dict[str | None, int] = {piece: i for i, piece in enumerate(pieces)}
        first = [number.get(piece) for piece in (start, end, None if pad == start else pad, "<unk>")]
        if None in (first[END], first[UNK]):
            raise ValueError(f"{folder}: a vocabulary lacks {end!r} or '<unk>'")
        others = [i for i in range(len(pieces)) if i not in first]
        sides.append(([*first, *others], [*SPECIALS, *(pieces[i] for i in others)]))
    return sides


def convert_model(
    tensors: Mapping[str, Tensor], config: TransformerConfig, src_rows: Rows, tgt_rows: Rows, source: Path
) -> EncoderDecoder:
    """Return the model of Marian's tensors, in evaluation mode; rows are Marian's numbers of our tokens."""
    names, ignored = {BIAS: HEAD_BIAS}, {*SINUSOIDS}
    for ours, aliases in MATRICES[config.tied_embeddings].items():
        names[ours], *others = [name for name in aliases if name in tensors] or aliases[:1]
        for other in others:
            if not torch.equal(tensors[names[ours]], tensors[other]):
                raise ValueError(f"{source}: {names[ours]} and {other} must be one matrix, by the settings")
        ignored.update(others)
    layers = ((ours, marian_name(ours)) for ours, _ in wanted_weights(config, source) if ".layers." in ours)
    found = rename_tensors(tensors, chain(names.items(), layers), source, ignored)
    found[BIAS] = found[BIAS].flatten()
    for name in found.keys() & {SRC, TGT, OUTPUT, BIAS}:
        rows = src_rows if name == SRC else tgt_rows
        size, shape = len(set(rows) - {None}), tuple(found[name].shape)
        if shape[:1] != (size,):
            raise ValueError(f"{source}: {name} has shape {shape}, but there are {size} pieces")
        found[name] = select_rows(found[name], rows, UNREACHABLE if name == BIAS else 0.0)
    order = sines_first(found[SRC].size(-1))  # the settings may claim another width
    model = model_with(config, dict(permute(found, order.argsort())), source)
    for name in tensors.keys() & SINUSOIDS:
        check_sinusoids(tensors[name], config.d_model, f"{source}: tensor {name}", 1e-3, order)
    return model.eval()


def marian_name(name: str) -> str:
    """Return Marian's name of a parameter of a layer."""
    if name.startswith("encoder"):
        name = name.replace("sublayer.1", "sublayer.2")
    for ours, theirs in PARTS.items():
        name = name.replace(ours, theirs)
    return f"model.{name}"


def sines_first(d_model: int) -> Tensor:
    """Return our dimensions in Marian's order: those with a sine, then those with a cosine."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


def permute(tensors: Mapping[str, Tensor], order: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield tensors with the d_model axis in another order; one of another width is left for later checks."""
    for name, tensor in tensors.items():
        # d_model is the rows of maps whose outputs are added up and of norms, the columns of all other maps.
        axis = 0 if name.rpartition(".")[0].endswith(("linears.3", "w_2", "norm")) else 1
        fits = tensor.dim() > axis and tensor.size(axis) == len(order)
        yield name, tensor.index_select(axis, order.to(tensor.device)) if fits else tensor


# ---- out


def to_marian(
    folder: str | Path, model: EncoderDecoder, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer
) -> None:
    """Write a new folder that transformers' `MarianMTModel` and `MarianTokenizer` load.

    Tokens keep their numbers. Text that spells a symbol such as `</s>`, or holds `▁`, may be read as the
    symbol there; all other text is split alike. Raises FileExistsError, and ValueError naming what Marian
    lacks: variants, pre-norm, learned positions, a layer_norm_eps other than 1e-5, words as tokens.
    """
    check_exportable(model, src_tokenizer, tgt_tokenizer)
    for name, value in {"norm_first": False, "positions": "sinusoidal", "layer_norm_eps": 1e-5}.items():
        if (ours := getattr(model.config, name)) != value:
            raise ValueError(f"{name} is {ours!r}; Marian's models have {value!r}")
    sides = {SRC_SPM: src_tokenizer, TGT_SPM: tgt_tokenizer}
    for tokenizer in sides.values():
        if not isinstance(tokenizer, Subwords):
            raise ValueError(f"Marian's text is cut by SentencePiece; this model has {tokenizer.kind}")
    src, tgt = map(vocabulary, sides.values())
    symbols = dict(zip(SYMBOLS, (START, END, PAD), strict=True)) | {"forced_eos_token_id": END}
    never = [[token] for token in (START, PAD, *tgt_tokenizer.forbidden_ids)]
    tokenizer_settings = {
        "tokenizer_class": "MarianTokenizer",
        "eos_token": SPECIALS[END],
        "pad_token": SPECIALS[PAD],
        "unk_token": "<unk>",
        "separate_vocabs": src != tgt,
        "clean_up_tokenization_spaces": False,
    }
    with creating_folder(Path(folder)) as new:
        write_json(new / CONFIG, marian_settings(model.config) | symbols)
        write_json(new / "generation_config.json", symbols | {"bad_words_ids": never, "max_length": 512})
        write_json(new / "tokenizer_config.json", tokenizer_settings)
        write_json(new / VOCAB, {piece: i for i, piece in enumerate(src)})
        if src != tgt:
            write_json(new / TGT_VOCAB, {piece: i for i, piece in enumerate(tgt)})
        for file, tokenizer in sides.items():
            (new / file).write_bytes(cast(Subwords, tokenizer).model)
        write_tokenizers(new, "Marian", src_tokenizer, tgt_tokenizer)
        (new / WEIGHTS).write_bytes(save(marian_tensors(model), metadata={"format": "pt"}))


def marian_settings(config: TransformerConfig) -> dict[str, Any]:
    """Return Marian's settings for a model of ours."""
    sharing = next(how for how, name in TIED.items() if name == config.tied_embeddings)
    stacks = ("encoder", "decoder")
    return {
        "architectures": ["MarianMTModel"],
        "vocab_size": config.src_vocab,
        "decoder_vocab_size": config.tgt_vocab,
        **FIXED,
        **{theirs: getattr(config, ours) for ours, theirs in MODEL_SETTINGS.items()},
        **{f"{s}_{theirs}": getattr(config, ours) for ours, theirs in STACK_SETTINGS.items() for s in stacks},
        "max_position_embeddings": POSITIONS,  # Marian's code fills the table slowly when it loads a model
        **dict(zip(SHARING, sharing, strict=True)),
        "is_encoder_decoder": True,
        "dtype": "float32",
    }


def marian_tensors(model: EncoderDecoder) -> dict[str, Tensor]:
    """Return a model's weights under Marian's names, in Marian's order of dimensions."""
    tied = model.config.tied_embeddings
    names = {BIAS: HEAD_BIAS, **{ours: aliases[0] for ours, aliases in MATRICES[tied].items()}}
    own = {name: tensor.detach().float().cpu() for name, tensor in weights(model).items()}
    found = dict(permute(own, sines_first(model.config.d_model))) | {BIAS: own[BIAS].unsqueeze(0)}
    theirs = {names.get(name, marian_name(name)): tensor.contiguous() for name, tensor in found.items()}
    if tied == "target":  # transformers before 5.4 reads the output by itself
        theirs[HEAD] = theirs[DECODER].clone()
    return theirs
