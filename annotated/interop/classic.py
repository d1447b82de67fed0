"""Checkpoints of "The Annotated Transformer", of 2018 and of 2022.

That model is pre-norm, and its parameters have our names, except `a_2` and `b_2` in the norms. Its layer norm
divides by the unbiased deviation plus 1e-6, ours by the root of the biased variance plus eps. The constant
factor between the deviations goes into the gain, and eps becomes nearly nothing. What remains, the 1e-6 added
to the deviation, changes a state by about one part in a million over its deviation.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from annotated.interop.tensors import Numbers, check_sinusoids, load_tensors, select_rows
from annotated.tokenizers import END, SPECIALS, START, WordTokenizer
from annotated.transformer.model import EncoderDecoder, TransformerConfig
from annotated.translation.model_folder import model_with, wanted_weights, weights
from annotated.translation.translator import Translator

EPS = 1e-12
SINUSOIDS = "src_embed.1.pe", "tgt_embed.1.pe"
EMBEDDINGS = "src_embed.0.lut.weight", "tgt_embed.0.lut.weight"
OUTPUT = "generator.proj.weight", "generator.proj.bias"


def from_annotated(
    source: Mapping[str, Tensor] | str | Path, h: int = 8, dropout: float = 0.1
) -> EncoderDecoder:
    """Return the model of a `state_dict()`, or of a file that holds one; tokens keep their numbers.

    Args:
        source: the tensors by name, or a `torch.save` file of them.
        h: number of heads, which the weights do not show; that code's default is 8.
        dropout: for further training, on residual sums, attention weights and inside feed-forward networks.

    Raises KeyError or ValueError naming a tensor that is missing, surplus or of the wrong shape.
    """
    name = source if isinstance(source, str | Path) else "state_dict"
    state = load_tensors(Path(source)) if isinstance(source, str | Path) else dict(source)
    config, tensors = infer_config(state, h, dropout), {}
    for table in SINUSOIDS:  # that code computes them in float32, a little off at late positions
        waves = state.pop(table).squeeze(0)
        check_sinusoids(waves, config.d_model, f"{name}: tensor {table}", 1e-2)
    for ours, _ in wanted_weights(config, name):
        tensors[ours] = state.pop(ours.replace("norm.weight", "norm.a_2").replace("norm.bias", "norm.b_2"))
        if ours.endswith("norm.weight"):  # the unbiased deviation is the larger
            tensors[ours] = tensors[ours] * math.sqrt(1 - 1 / config.d_model)
    if state:
        raise ValueError(f"{name}: tensor {min(state)!r} has no place in our model")
    return model_with(config, tensors, name).eval()


def annotated_translator(
    source: Mapping[str, Tensor] | str | Path,
    src_words: Sequence[str],
    tgt_words: Sequence[str],
    languages: tuple[str | None, str | None] = ("de", "en"),
    h: int = 8,
    dropout: float = 0.1,
) -> Translator:
    """Return a translator of the same model, with its vocabularies.

    Args:
        source: as in `from_annotated`, like `h` and `dropout`.
        src_words: all source tokens in the order of their numbers, symbols included: `vocab.get_itos()`
            (2022), `field.vocab.itos` (2018). In 2022 they begin with `<s> </s> <blank> <unk>`, and the
            source is read between `<s>` and `</s>`; in 2018 they begin with `<unk> <blank>`, and it is read
            without symbols.
        tgt_words: the same for the target.
        languages: spaCy's rules that split the text; None splits at white space.
    """
    model = from_annotated(source, h, dropout)
    c, tensors = model.config, weights(model)
    src, tgt = token_numbers(src_words, c.src_vocab), token_numbers(tgt_words, c.tgt_vocab)
    if None in tgt:
        raise ValueError(f"tgt_words: {', '.join(SPECIALS)} must be among the words")
    for name in (*EMBEDDINGS, *OUTPUT):
        tensors[name] = select_rows(tensors[name], src if name == EMBEDDINGS[0] else tgt)
    model = model_with(replace(c, src_vocab=len(src), tgt_vocab=len(tgt)), tensors, "state_dict").eval()
    before, after = ((START,), (END,)) if SPECIALS[START] in src_words else ((), ())
    src_others, tgt_others = (
        [word for word in side if word not in SPECIALS] for side in (src_words, tgt_words)
    )
    src_tokenizer = WordTokenizer(src_others, languages[0], before=before, after=after)
    return Translator(model, src_tokenizer, WordTokenizer(tgt_others, languages[1]))


def infer_config(state: Mapping[str, Tensor], h: int, dropout: float) -> TransformerConfig:
    """Infer settings from shapes. Raises KeyError naming a tensor that is missing."""
    numbers = (re.match(r"encoder\.layers\.(\d{1,9})\.", name) for name in state)
    return TransformerConfig(
        src_vocab=len(state[EMBEDDINGS[0]]),
        tgt_vocab=len(state[EMBEDDINGS[1]]),
        N=1 + max(int(number[1]) for number in numbers if number),
        d_model=state[EMBEDDINGS[0]].size(-1),
        d_ff=len(state["encoder.layers.0.feed_forward.w_1.weight"]),
        h=h,
        dropout=dropout,
        attention_dropout=dropout,
        relu_dropout=dropout,
        max_len=state[SINUSOIDS[0]].size(-2),
        norm_first=True,
        layer_norm_eps=EPS,
        tied_embeddings="none",
    )


def token_numbers(words: Sequence[str], size: int) -> Numbers:
    """Return each of our tokens' number in that vocabulary, None for a symbol that it lacks."""
    numbers = {word: i for i, word in enumerate(words)}
    if len(words) != size or len(numbers) != size:
        raise ValueError(f"a vocabulary must be a list of {size} different words, one for each embedding")
    if missing := [symbol for symbol in SPECIALS[2:] if symbol not in numbers]:
        raise ValueError(f"{', '.join(missing)} must be among the words")
    return [*map(numbers.get, SPECIALS), *(i for word, i in numbers.items() if word not in SPECIALS)]
