"""Checkpoints of "The Annotated Transformer", of 2018 and of 2022.

Its model is pre-norm, and its parameters have our names, but for the norms' `a_2` and `b_2`. Its layer norm
divides by the unbiased deviation plus 1e-6, ours by the root of the biased variance plus eps. The deviations
differ by a constant factor, which goes into the gain; eps is then nearly nothing. What remains, the 1e-6
beside the deviation, changes a state by about one part in a million over its deviation.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from annotated.interop.common import Rows, check_sinusoids, read_pickle, renumbered, taken
from annotated.tokenizers import END, SPECIALS, START, WordTokenizer
from annotated.transformer.model import EncoderDecoder, TransformerConfig
from annotated.translation.model_folder import model_with, wanted_weights, weights
from annotated.translation.translator import Translator

RECIPE = (
    "where the model was trained, write its tensors alone: torch.save(model.state_dict(), 'weights.pt'), "
    "and each vocabulary as a text file, a word a line in the order of the numbers: vocab.get_itos() (2022), "
    "field.vocab.itos (2018)"
)
EPS = 1e-12
WAVES = "src_embed.1.pe", "tgt_embed.1.pe"
EMBEDDINGS = "src_embed.0.lut.weight", "tgt_embed.0.lut.weight"
W_1 = "encoder.layers.0.feed_forward.w_1.weight"
OUTPUT = "generator.proj.weight", "generator.proj.bias"


def from_annotated(
    source: Mapping[str, Tensor] | str | Path, h: int = 8, dropout: float = 0.1
) -> EncoderDecoder:
    """The model whose `state_dict()` this is, or stands in this file; tokens keep their numbers.

    `h`, the number of heads, is not in the weights: 8, unless that code was asked for another. `dropout` is
    for training on, and acts where it did there: on the residual sums, on attention weights and inside the
    feed-forward networks.

    Raises FileNotFoundError, ValueError naming a tensor that is missing, surplus or of the wrong shape, and
    ValueError with the recipe for exporting where a file holds more than tensors, such as a whole module.
    """
    name = source if isinstance(source, str | Path) else "state_dict"  # what errors call it
    state = read_state(source)
    config = config_of(state, h, dropout, name)
    names = ((ours, their_name(ours)) for ours, _ in wanted_weights(config, name))
    tensors = taken(state, names, name, WAVES)
    for ours in tensors:
        if ours.endswith("norm.weight"):  # the unbiased deviation is the larger
            tensors[ours] = tensors[ours] * math.sqrt(1 - 1 / config.d_model)
    model = model_with(config, tensors, name)
    for waves in WAVES:  # that code took them in float32, a little off far out
        check_sinusoids(state[waves].squeeze(0), config.d_model, f"{name}: tensor {waves}", 1e-2)
    return model.eval()


def annotated_translator(
    source: Mapping[str, Tensor] | str | Path,
    src_words: Sequence[str],
    tgt_words: Sequence[str],
    languages: tuple[str | None, str | None] = ("de", "en"),
    h: int = 8,
    dropout: float = 0.1,
) -> Translator:
    """The same model with its vocabularies: text in, text out.

    `src_words` and `tgt_words` list all tokens in the order of their numbers, symbols included: those of
    2022 begin with `<s> </s> <blank> <unk>`, those of 2018 with `<unk> <blank>`. Tokens get our numbers. The
    source is read as that code had it: in 2022 between `<s>` and `</s>`, where its vocabulary has them, in
    2018 bare. `languages` say whose spaCy rules cut the text; None cuts at white space.

    Raises as `from_annotated` does, and ValueError for a vocabulary that does not fit the weights.
    """
    given = from_annotated(source, h, dropout)
    c, tensors = given.config, weights(given)
    src, tgt = numbering(src_words, c.src_vocab, "src"), numbering(tgt_words, c.tgt_vocab, "tgt")
    for name in (*EMBEDDINGS, *OUTPUT):
        tensors[name] = renumbered(tensors[name], src if name == EMBEDDINGS[0] else tgt)
    model = model_with(replace(c, src_vocab=len(src), tgt_vocab=len(tgt)), tensors, "state_dict")
    before, after = ((START,), (END,)) if SPECIALS[START] in src_words else ((), ())
    src_others, tgt_others = (
        [word for word in side if word not in SPECIALS] for side in (src_words, tgt_words)
    )
    return Translator(
        model.eval(),
        WordTokenizer(src_others, languages[0], before=before, after=after),
        WordTokenizer(tgt_others, languages[1]),
    )


def read_state(source: Mapping[str, Tensor] | str | Path) -> dict[str, Tensor]:
    """The tensors by name. Raises ValueError with the recipe for a file that holds anything else."""
    if isinstance(source, str | Path):
        return read_pickle(Path(source), RECIPE)
    if not isinstance(source, Mapping):
        raise ValueError(f"this takes a state_dict or its file, not {type(source).__name__}; {RECIPE}")
    if others := [name for name, tensor in source.items() if not isinstance(tensor, Tensor)]:
        raise ValueError(f"state_dict: {others[0]} is no tensor; {RECIPE}")
    return dict(source)


def config_of(state: Mapping[str, Tensor], h: int, dropout: float, source: object) -> TransformerConfig:
    """The settings that the shapes tell. Raises ValueError naming a tensor that is missing or no matrix."""
    for name in (*EMBEDDINGS, *WAVES, W_1):
        if name not in state:
            raise ValueError(f"{source}: tensor {name} is missing")
        axes, shape = (3 if name in WAVES else 2), tuple(state[name].shape)
        if len(shape) != axes:
            raise ValueError(f"{source}: tensor {name} has shape {shape}, but must have {axes} axes")
    numbers = (re.match(r"encoder\.layers\.(\d{1,9})\.", name) for name in state)
    return TransformerConfig(
        src_vocab=len(state[EMBEDDINGS[0]]),
        tgt_vocab=len(state[EMBEDDINGS[1]]),
        N=1 + max(int(number[1]) for number in numbers if number),
        d_model=state[EMBEDDINGS[0]].size(-1),
        d_ff=len(state[W_1]),
        h=h,
        dropout=dropout,
        attention_dropout=dropout,
        relu_dropout=dropout,
        max_len=state[WAVES[0]].size(-2),
        norm_first=True,
        layer_norm_eps=EPS,
        tied_embeddings="none",
    )


def their_name(name: str) -> str:
    """That code's name of one of our parameters."""
    return name.replace("norm.weight", "norm.a_2").replace("norm.bias", "norm.b_2")


def numbering(words: Sequence[str], size: int, side: str) -> Rows:
    """For each of our tokens its number in that vocabulary, None for a symbol that it has not."""
    if isinstance(words, str | Path) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{side}_words must be a list of words; {RECIPE}")
    if len(words) != size or len(set(words)) != size:
        raise ValueError(f"{side}_words: {len(set(words))} different words for an embedding of {size}")
    numbers = {word: i for i, word in enumerate(words)}
    needed = SPECIALS if side == "tgt" else SPECIALS[2:]
    if missing := [symbol for symbol in needed if symbol not in numbers]:
        raise ValueError(f"{side}_words: {', '.join(missing)} must be among the words")
    others = (i for word, i in numbers.items() if word not in SPECIALS)
    return [*map(numbers.get, SPECIALS), *others]
