"""Marian's translation models as Hugging Face keeps them (`Helsinki-NLP/opus-mt-*`), read and written.

Same model, three habits apart. Marian lays sines in the first half of d_model and cosines in the second, we
take turns: d_model is permuted throughout, which changes nothing else. Its padding symbol begins a
translation: here that row of the embedding is `<s>`, and `<blank>` is a row of its own. And its tokens have
other numbers, ours begin with four symbols.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from safetensors.torch import save

from annotated.files import creating_folder, read_file, read_json, settings_from_json, write_json
from annotated.interop.common import LONGEST, Rows, check_parts, read_pickle, vocabulary, write_readme
from annotated.interop.hub import find_folder
from annotated.interop.marian_weights import marian_tensors, our_model
from annotated.tokenizers import (
    END,
    PAD,
    SPECIALS,
    START,
    CharacterTokenizer,
    MarianTokenizer,
    Tokenizer,
    WordTokenizer,
)
from annotated.transformer.model import EncoderDecoder, TransformerConfig
from annotated.translation.model_folder import check_whole
from annotated.translation.tensor_files import read_tensors

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
# Our names of settings, and Marian's: first those that it has for each stack, after whose name they stand.
TWICE = {"N": "layers", "d_ff": "ffn_dim", "h": "attention_heads"}
ONCE = {
    "d_model": "d_model",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "relu_dropout": "activation_dropout",
    "max_len": "max_position_embeddings",
}
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
SHARING = "share_encoder_decoder_embeddings", "tie_word_embeddings"  # by both sides, by target and output
TIED: dict[tuple[bool, ...], str] = {(True, True): "all", (False, True): "target", (False, False): "none"}
SYMBOLS = "decoder_start_token_id", "eos_token_id", "pad_token_id"
RECIPE = "load it with transformers' MarianMTModel and save_pretrained(): that writes safetensors"


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
    ours = our_settings(settings, folder / CONFIG)
    pieces = read_vocabularies(folder, settings, ours["tied_embeddings"] == "all")
    symbols = symbols_of(settings, pieces[1], folder / CONFIG)
    (src_rows, src), (tgt_rows, tgt) = (renumbering(side, symbols, folder) for side in pieces)
    sizes = {"src_vocab": len(src), "tgt_vocab": len(tgt)}
    config = settings_from_json(TransformerConfig, sizes | ours, folder / CONFIG)
    old = not (folder / WEIGHTS).is_file() and (folder / OLD_WEIGHTS).is_file()
    source = folder / (OLD_WEIGHTS if old else WEIGHTS)
    tensors = read_pickle(source, RECIPE) if old else read_tensors(source)
    model = our_model(tensors, config, src_rows, tgt_rows, source)
    src_tokenizer = MarianTokenizer(read_file(folder / SRC_SPM), src)
    return model, src_tokenizer, MarianTokenizer(read_file(folder / TGT_SPM), tgt)


def our_settings(settings: Mapping[str, Any], source: Path) -> dict[str, Any]:
    """The fields of a `TransformerConfig` that stand for Marian's settings, but the sizes of vocabularies.

    Raises ValueError naming a setting that is missing, or that no model of ours could have.
    """
    stacks = [f"{stack}_{name}" for name in TWICE.values() for stack in ("encoder", "decoder")]
    others = ("model_type", "scale_embedding", "activation_function", "vocab_size")
    for name in (*ONCE.values(), *stacks, *others):
        if name not in settings:
            raise ValueError(f"{source}: the setting {name!r} is missing")
    for name in ("vocab_size", "decoder_vocab_size"):
        if not isinstance(settings.get(name, 0) or 0, int):
            raise ValueError(f"{source}: {name} must be a number, not {settings[name]!r}")
    encoder = {ours: settings[f"encoder_{theirs}"] for ours, theirs in TWICE.items()}
    decoder = {f"decoder_{TWICE[ours]}": (value, "our stacks are alike") for ours, value in encoder.items()}
    for name, (value, why) in (FIXED | decoder).items():
        if settings.get(name, value) != value:
            raise ValueError(f"{source}: {name} is {settings[name]!r}, but must be {value!r}: {why}")
    if (activation := settings["activation_function"]) not in list(ACTIVATIONS):
        raise ValueError(f"{source}: activation {activation!r} is none of {', '.join(ACTIVATIONS)}")
    tied = TIED.get(tuple(settings.get(name, True) is not False for name in SHARING))
    if tied is None:
        says = "embeddings shared by both sides, but not with the output; ours share all"
        raise ValueError(f"{source}: {says}")
    once = {ours: settings[theirs] for ours, theirs in ONCE.items()}
    return once | encoder | {"activation": ACTIVATIONS[activation], "tied_embeddings": tied}


def read_vocabularies(folder: Path, settings: Mapping[str, Any], shared: bool) -> list[list[str]]:
    """Both sides' pieces, in the order of their numbers; one file serves both unless there are two."""
    src_size = settings["vocab_size"]
    tgt_size = src_size if shared else settings.get("decoder_vocab_size") or src_size
    second = TGT_VOCAB if (folder / TGT_VOCAB).exists() else VOCAB
    found = []
    for path, size in ((folder / VOCAB, src_size), (folder / second, tgt_size)):
        numbers = read_json(path)
        given = {number for number in numbers.values() if isinstance(number, int)}
        if len(numbers) != size or given != set(range(size)):
            raise ValueError(f"{path} must give {size} pieces the numbers from 0 on")
        found.append(sorted(numbers, key=numbers.__getitem__))
    if shared and found[0] != found[1]:
        raise ValueError(f"{folder}: two vocabularies, but embeddings that both sides share")
    return found


def symbols_of(settings: Mapping[str, Any], tgt: Sequence[str], source: Path) -> list[str | None]:
    """The pieces that serve as our four symbols; None for padding where its piece begins translations too."""
    found = []
    for name in SYMBOLS:
        number = settings.get(name)
        if not isinstance(number, int) or number not in range(len(tgt)):
            raise ValueError(f"{source}: {name} must be the number of a piece, not {number!r}")
        found.append(tgt[number])
    start, end, pad = found
    if end in (start, pad):
        raise ValueError(f"{source}: {end} ends a translation, and begins it or pads it too; ours ends alone")
    return [start, end, None if pad == start else pad, "<unk>"]


def renumbering(pieces: Sequence[str], symbols: Sequence[str | None], folder: Path) -> tuple[Rows, list[str]]:
    """For each of our tokens its number at Marian's, and its name: our symbols, then the others."""
    for symbol in (symbols[END], "<unk>"):
        if symbol not in pieces:
            raise ValueError(f"{folder}: the vocabulary has no {symbol}")
    first = [pieces.index(symbol) if symbol in pieces else None for symbol in symbols]
    others = [number for number in range(len(pieces)) if number not in first]
    return [*first, *others], [*SPECIALS, *(pieces[number] for number in others)]


def to_marian(
    folder: str | Path, model: EncoderDecoder, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer
) -> None:
    """Write a new folder that transformers' `MarianMTModel` and `MarianTokenizer` load.

    Tokens keep their numbers. Text is cut alike, unless it spells out a symbol such as `</s>` or holds `▁`:
    to our tokenizers that is text like any other, to theirs it may be the symbol. Raises FileExistsError, and
    ValueError naming what Marian has not: a variant's parts, pre-norm, learned positions, another
    layer_norm_eps than 1e-5, words in the place of subwords.
    """
    check_whole(model, src_tokenizer, tgt_tokenizer)
    check_parts(model.config)
    for name, value in {"norm_first": False, "positions": "sinusoidal", "layer_norm_eps": 1e-5}.items():
        if (ours := getattr(model.config, name)) != value:
            raise ValueError(f"{name} is {ours!r}; Marian's models have {value!r}")
    sides = {SRC_SPM: src_tokenizer, TGT_SPM: tgt_tokenizer}
    for tokenizer in sides.values():
        if isinstance(tokenizer, WordTokenizer | CharacterTokenizer):
            raise ValueError(
                f"Marian's text is cut by SentencePiece; this model's tokens are {tokenizer.kind}"
            )
    src, tgt = vocabulary(src_tokenizer), vocabulary(tgt_tokenizer)
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
            (new / file).write_bytes(cast(MarianTokenizer, tokenizer).model)
        write_readme(new, "Marian", src_tokenizer, tgt_tokenizer)
        (new / WEIGHTS).write_bytes(save(marian_tensors(model), metadata={"format": "pt"}))


def marian_settings(config: TransformerConfig) -> dict[str, Any]:
    """Marian's settings for a model of ours."""
    sharing = next(how for how, name in TIED.items() if name == config.tied_embeddings)
    stacks = ("encoder", "decoder")
    return {
        "architectures": ["MarianMTModel"],
        "vocab_size": config.src_vocab,
        "decoder_vocab_size": config.tgt_vocab,
        "activation_function": config.activation,
        **{name: value for name, (value, _) in FIXED.items()},
        **{theirs: getattr(config, ours) for ours, theirs in ONCE.items()},
        **{f"{s}_{theirs}": getattr(config, ours) for ours, theirs in TWICE.items() for s in stacks},
        "max_position_embeddings": LONGEST,  # Marian's code makes each by hand whenever it loads a model
        **dict(zip(SHARING, sharing, strict=True)),
        "is_encoder_decoder": True,
        "dtype": "float32",
    }
