"""Marian's translation models as Hugging Face keeps them (`Helsinki-NLP/opus-mt-*`), read and written.

The same model, with three differences. Marian puts sines in the first half of d_model and cosines in the
second, we alternate: d_model is permuted, which changes nothing else. Its padding symbol begins translations:
here that row of the embedding is `<s>`, and `<blank>` a row of its own. Our tokens begin with four symbols.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from annotated.optional import require
from annotated.transformer.model import EncoderDecoder, TransformerConfig
from annotated.translation.files import creating_folder, settings_from_json, write_json
from annotated.translation.interop.common import (
    POSITIONS,
    check_exportable,
    check_sinusoids,
    vocabulary,
    write_readme,
)
from annotated.translation.storage.model_folder import build_model, load_weights, named_state
from annotated.translation.tokenizers import END, PAD, SPECIALS, START, UNK, MarianTokenizer, Tokenizer
from annotated.translation.tokenizers.subwords import Subwords

# Settings with one value that our model computes the same with.
FIXED = {
    "model_type": "marian",
    "scale_embedding": True,
    "normalize_before": False,  # post-norm
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
}
SHARING = "share_encoder_decoder_embeddings", "tie_word_embeddings"  # of both sides; of target and output
TIED = {(True, True): "all", (False, True): "target", (False, False): "none"}
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

# Our names of weights, or of parts of them, and Marian's; an encoder layer's second norm is its last.
SRC, TGT = "src_embed.0.lut.weight", "tgt_embed.0.lut.weight"
OUTPUT, BIAS = "generator.proj.weight", "generator.proj.bias"
MATRICES = {
    SRC: "model.encoder.embed_tokens.weight",
    TGT: "model.decoder.embed_tokens.weight",
    OUTPUT: "lm_head.weight",
    BIAS: "final_logits_bias",
}
LAYER_PARTS = {
    "src_attn": "encoder_attn",
    **{f"linears.{i}": f"{name}_proj" for i, name in enumerate(["q", "k", "v", "out"])},
    "feed_forward.w_1": "fc1",
    "feed_forward.w_2": "fc2",
    "sublayer.0.norm": "self_attn_layer_norm",
    "sublayer.1.norm": "encoder_attn_layer_norm",
    "sublayer.2.norm": "final_layer_norm",
}
Numbers = Sequence[int | None]  # for each of our tokens its number in Marian, or None where there is none
UNREACHABLE = -1e4  # a logit whose exponential is 0, yet finite in half precision


# ---- in


def load_marian(name_or_folder: str | Path) -> tuple[EncoderDecoder, MarianTokenizer, MarianTokenizer]:
    """Load a Marian model, from its folder or by its name at Hugging Face, with both tokenizers.

        translate = Translator(*load_marian("Helsinki-NLP/opus-mt-en-de"))

    Tokens have our numbers, in the order of `tokenizer.vocabulary`. Files are read by transformers. Raises
    ValueError for a setting that our model lacks, or a tensor that is missing, surplus or of another shape.
    """
    transformers = require("transformers", extra="interop")
    name = str(name_or_folder)
    if not Path(name).is_dir() and (name.startswith((".", "~", "/")) or name.count("/") > 1):
        raise FileNotFoundError(f"there is no folder {name}")  # it cannot be a name at Hugging Face either
    options = {"dtype": torch.float32, "output_loading_info": True}
    theirs, report = transformers.MarianMTModel.from_pretrained(name, **options)
    if wrong := sorted(str(key) for keys in report.values() for key in keys):
        raise ValueError(f"{name} has not the weights of its settings: {', '.join(wrong)}")
    try:
        hf = transformers.MarianTokenizer.from_pretrained(name)
    except (TypeError, ValueError, OSError) as error:  # transformers raises these for a missing file
        files = "source.spm, target.spm and vocab.json"
        raise ValueError(f"{name} must hold {files}, as Marian's models do: {error}") from None
    settings = theirs.config.to_dict()
    target = hf.target_encoder if hf.separate_vocabs else hf.encoder
    src_numbers, src = number_tokens(hf.encoder, target, settings)
    tgt_numbers, tgt = number_tokens(target, target, settings)
    sizes = {"src_vocab": len(src), "tgt_vocab": len(tgt)}
    config = settings_from_json(TransformerConfig, sizes | convert_settings(settings, name), name)
    model = build_model(config)
    weights = convert_weights(theirs.state_dict(), model, src_numbers, tgt_numbers, name)
    load_weights(model, weights, name)
    src_spm, tgt_spm = (spm.serialized_model_proto() for spm in (hf.spm_source, hf.spm_target))
    return model.eval(), MarianTokenizer(src_spm, src), MarianTokenizer(tgt_spm, tgt)


def convert_weights(
    tensors: Mapping[str, Tensor], model: EncoderDecoder, src: Numbers, tgt: Numbers, source: str
) -> dict[str, Tensor]:
    """Return Marian's weights under our names, in our order of tokens and dimensions.

    Raises ValueError for tied matrices that differ, or positions that are no sinusoids.
    """
    config = model.config
    tied = {"all": (SRC, TGT, OUTPUT), "target": (TGT, OUTPUT)}.get(config.tied_embeddings, ())
    for row in tied:  # if a file has several matrices, transformers only warns
        if not torch.equal(tensors[MATRICES[row]], tensors[MATRICES[OUTPUT]]):
            raise ValueError(f"{source}: {MATRICES[row]} must be the output's matrix, by the settings")
    order = sines_first(config.d_model)
    for stack in ("encoder", "decoder"):
        table = tensors[f"model.{stack}.embed_positions.weight"]
        check_sinusoids(table, config.d_model, source, atol=1e-3, order=order)
    weights = {ours: tensors[marian_name(ours)] for ours in named_state(model)}
    weights[BIAS] = weights[BIAS].flatten()
    for row in weights.keys() & MATRICES.keys():
        numbers = src if row == SRC else tgt
        weights[row] = select_rows(weights[row], numbers, UNREACHABLE if row == BIAS else 0.0)
    return permute(weights, order.argsort())


def convert_settings(settings: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Convert Marian's settings to fields of `TransformerConfig`, except the sizes of the vocabularies.

    Raises ValueError naming a setting with a value that our model lacks.
    """
    encoder = {ours: settings[f"encoder_{theirs}"] for ours, theirs in STACK_SETTINGS.items()}
    equal = {f"decoder_{STACK_SETTINGS[ours]}": value for ours, value in encoder.items()}
    for name, value in (FIXED | equal).items():
        if settings.get(name, value) != value:
            raise ValueError(f"{source}: {name} is {settings[name]!r}, but our model has {value!r}")
    tied = TIED.get((settings[SHARING[0]], settings[SHARING[1]]))
    if tied is None:
        raise ValueError(f"{source}: both sides share embeddings, but not with the output; ours share all")
    model = {ours: settings[theirs] for ours, theirs in MODEL_SETTINGS.items()}
    activation = {"silu": "swish"}.get(model["activation"], model["activation"])
    return model | encoder | {"activation": activation, "tied_embeddings": tied}


def number_tokens(
    numbers: Mapping[str, int], target: Mapping[str, int], settings: Mapping[str, Any]
) -> tuple[Numbers, list[str]]:
    """Return one side's number in Marian of each of our tokens, and its name: our symbols come first."""
    names = {number: piece for piece, number in target.items()}
    start, end, pad = (names[settings[name]] for name in SYMBOLS)
    symbols = (start, end, "" if pad == start else pad, "<unk>")
    first = [numbers.get(symbol) for symbol in symbols]
    if end in (start, pad) or None in (first[END], first[UNK]):
        raise ValueError(f"a vocabulary needs an end symbol of its own and '<unk>'; its end is {end!r}")
    others = [piece for piece in sorted(numbers, key=numbers.__getitem__) if numbers[piece] not in first]
    return [*first, *(numbers[piece] for piece in others)], [*SPECIALS, *others]


def select_rows(tensor: Tensor, rows: Numbers, fill: float) -> Tensor:
    """Return the rows of a tensor in the order of our tokens; a token that Marian lacks has `fill`."""
    selected = tensor[[row or 0 for row in rows]]
    missing = torch.tensor([row is None for row in rows], device=tensor.device)
    return selected.masked_fill(missing.view(-1, *[1] * (tensor.dim() - 1)), fill)


def marian_name(name: str) -> str:
    """Return Marian's name of one of our weights."""
    if name in MATRICES:
        return MATRICES[name]
    if name.startswith("encoder"):
        name = name.replace("sublayer.1", "sublayer.2")
    for ours, theirs in LAYER_PARTS.items():
        name = name.replace(ours, theirs)
    return f"model.{name}"


def sines_first(d_model: int) -> Tensor:
    """Return our dimensions in Marian's order: those with a sine, then those with a cosine."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


def permute(tensors: Mapping[str, Tensor], order: Tensor) -> dict[str, Tensor]:
    """Put the d_model axis of our weights in another order."""
    permuted = dict(tensors)
    for name in tensors.keys() - {BIAS}:
        # d_model is the rows of maps whose outputs are added up and of norms, the columns of all other maps.
        layer, kind = name.rsplit(".", 1)
        rows = layer.endswith(("linears.3", "w_2", "norm"))
        if rows or kind == "weight":
            permuted[name] = tensors[name].index_select(0 if rows else 1, order)
    return permuted


# ---- out


def to_marian(
    folder: str | Path, model: EncoderDecoder, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer
) -> None:
    """Write a new folder that transformers' `MarianMTModel` and `MarianTokenizer` load.

    Tokens keep their numbers. Text that spells a symbol such as `</s>`, or holds `▁`, may be read as the
    symbol there; all other text is split alike. Raises ValueError naming what Marian lacks: variants,
    pre-norm, learned positions, a layer_norm_eps other than 1e-5, words as tokens.
    """
    check_exportable(model, src_tokenizer, tgt_tokenizer)
    for name, value in {"norm_first": False, "positions": "sinusoidal", "layer_norm_eps": 1e-5}.items():
        if (ours := getattr(model.config, name)) != value:
            advice = "export it to CTranslate2, or train one of the preset tiny, or without norm_first"
            raise ValueError(f"{name} is {ours!r}; Marian's models have {value!r}: {advice}")
    src, tgt = vocabulary(src_tokenizer), vocabulary(tgt_tokenizer)
    symbols = dict(zip(SYMBOLS, (START, END, PAD), strict=True)) | {"forced_eos_token_id": END}
    never = [[token] for token in tgt_tokenizer.never_generated]
    tokenizer_settings = {
        "tokenizer_class": "MarianTokenizer",
        "eos_token": SPECIALS[END],
        "pad_token": SPECIALS[PAD],
        "unk_token": "<unk>",
        "separate_vocabs": src != tgt,
        "clean_up_tokenization_spaces": False,
    }
    with creating_folder(Path(folder)) as new:
        for name, tokenizer in {"source": src_tokenizer, "target": tgt_tokenizer}.items():
            if not isinstance(tokenizer, Subwords):
                advice = "export it to CTranslate2, or train with the tokenizer subwords"
                raise ValueError(f"Marian's text is cut by SentencePiece, this model's is not: {advice}")
            (new / f"{name}.spm").write_bytes(tokenizer.model)
        write_json(new / "config.json", marian_settings(model.config) | symbols)
        write_json(new / "generation_config.json", symbols | {"bad_words_ids": never, "max_length": 512})
        write_json(new / "tokenizer_config.json", tokenizer_settings)
        write_json(new / "vocab.json", {piece: i for i, piece in enumerate(src)})
        if src != tgt:
            write_json(new / "target_vocab.json", {piece: i for i, piece in enumerate(tgt)})
        (new / "model.safetensors").write_bytes(save(marian_tensors(model), metadata={"format": "pt"}))
        write_readme(new)


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
    weights = {name: tensor.detach().float().cpu() for name, tensor in named_state(model).items()}
    permuted = permute(weights, sines_first(model.config.d_model)) | {BIAS: weights[BIAS].unsqueeze(0)}
    theirs = {marian_name(name): tensor.contiguous() for name, tensor in permuted.items()}
    if model.config.tied_embeddings == "all":
        theirs["model.shared.weight"] = theirs.pop(MATRICES[SRC])
    if model.config.tied_embeddings == "target":  # transformers before 5.4 reads the output by itself
        theirs[MATRICES[OUTPUT]] = theirs[MATRICES[TGT]].clone()
    return theirs
