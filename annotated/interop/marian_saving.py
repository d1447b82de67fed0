"""Our models written as Hugging Face keeps Marian's, so that transformers loads what was trained here."""

from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from annotated.files import creating_folder, write_json
from annotated.interop import marian
from annotated.interop.common import LONGEST, check_parts, vocabulary
from annotated.interop.readmes import write_readme
from annotated.tokenizers import END, PAD, SPECIALS, START, Tokenizer, WordTokenizer
from annotated.transformer.model import EncoderDecoder, TransformerConfig
from annotated.translation.model_folder import check_whole, weights


def to_marian(
    folder: str | Path, model: EncoderDecoder, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer
) -> None:
    """Write a new folder that transformers' `MarianMTModel` and `MarianTokenizer` load.

    Tokens keep their numbers. Text is cut alike, unless it spells out a symbol such as `</s>` or holds `▁`:
    to our tokenizers that is text like any other, to theirs it may be the symbol. Raises FileExistsError, and
    ValueError naming what Marian has not: a variant's parts, pre-norm, learned positions, another
    layer_norm_eps than 1e-5, words in the place of subwords.
    """
    check_like_marian(model, src_tokenizer, tgt_tokenizer)
    src, tgt = vocabulary(src_tokenizer), vocabulary(tgt_tokenizer)
    never = [[token] for token in (START, PAD, *tgt_tokenizer.forbidden_ids)]
    symbols = {
        "decoder_start_token_id": START,
        "eos_token_id": END,
        "pad_token_id": PAD,
        "forced_eos_token_id": END,
    }
    with creating_folder(Path(folder)) as new:
        write_json(new / marian.CONFIG, marian_settings(model.config) | symbols)
        write_json(new / "generation_config.json", symbols | {"bad_words_ids": never, "max_length": 512})
        write_json(new / "tokenizer_config.json", tokenizer_settings(src != tgt))
        write_json(new / marian.VOCAB, {piece: i for i, piece in enumerate(src)})
        if src != tgt:
            write_json(new / marian.TGT_VOCAB, {piece: i for i, piece in enumerate(tgt)})
        (new / marian.SRC_SPM).write_bytes(src_tokenizer.model)
        (new / marian.TGT_SPM).write_bytes(tgt_tokenizer.model)
        write_readme(new, "Marian", src_tokenizer, tgt_tokenizer)
        (new / marian.WEIGHTS).write_bytes(save(marian_tensors(model), metadata={"format": "pt"}))


def check_like_marian(model: EncoderDecoder, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer) -> None:
    """Raise ValueError naming what no model of Marian's could have."""
    check_whole(model, src_tokenizer, tgt_tokenizer)
    check_parts(model.config)
    wanted = {"norm_first": False, "positions": "sinusoidal", "layer_norm_eps": 1e-5}
    for name, value in wanted.items():
        if getattr(model.config, name) != value:
            raise ValueError(f"{name} is {getattr(model.config, name)!r}; Marian's models have {value!r}")
    for tokenizer in (src_tokenizer, tgt_tokenizer):
        if isinstance(tokenizer, WordTokenizer):
            raise ValueError("Marian's text is cut by SentencePiece; this model's tokens are words")


def marian_settings(config: TransformerConfig) -> dict[str, object]:
    """Marian's settings for a model of ours."""
    shared, tied = next(how for how, name in marian.TIED.items() if name == config.tied_embeddings)
    stacks = ("encoder", "decoder")
    return {
        "architectures": ["MarianMTModel"],
        "vocab_size": config.src_vocab,
        "decoder_vocab_size": config.tgt_vocab,
        "activation_function": config.activation,
        **{name: value for name, (value, _) in marian.FIXED.items()},
        **{theirs: getattr(config, ours) for ours, theirs in marian.ONCE.items()},
        **{f"{s}_{theirs}": getattr(config, ours) for ours, theirs in marian.TWICE.items() for s in stacks},
        "max_position_embeddings": LONGEST,  # Marian's code makes each by hand whenever it loads a model
        "share_encoder_decoder_embeddings": shared,
        "tie_word_embeddings": tied,
        "is_encoder_decoder": True,
        "dtype": "float32",
    }


def tokenizer_settings(separate: bool) -> dict[str, object]:
    """What Marian's tokenizer must be told to read our vocabulary."""
    return {
        "tokenizer_class": "MarianTokenizer",
        "eos_token": SPECIALS[END],
        "pad_token": SPECIALS[PAD],
        "unk_token": "<unk>",
        "separate_vocabs": separate,
        "clean_up_tokenization_spaces": False,
    }


def marian_tensors(model: EncoderDecoder) -> dict[str, Tensor]:
    """A model's weights under Marian's names, in Marian's order of dimensions."""
    c = model.config
    names = dict(marian.stack_names(c.N)) | {marian.BIAS: "final_logits_bias"}
    names |= {ours: aliases[0] for ours, aliases in marian.MATRICES[c.tied_embeddings].items()}
    own = {name: tensor.detach().float().cpu() for name, tensor in weights(model).items()}
    found = marian.permuted(own, marian.sines_first(c.d_model)) | {marian.BIAS: own[marian.BIAS].unsqueeze(0)}
    theirs = {names[name]: tensor.contiguous() for name, tensor in found.items()}
    if c.tied_embeddings == "target":  # transformers before 5.4 reads the output by itself
        theirs[marian.HEAD] = theirs[marian.DECODER].clone()
    return theirs
