"""Checkpoints of "The Annotated Transformer", of 2018 and of 2022.

That model is pre-norm, and its parameters have our names, except `a_2` and `b_2` in the norms. Its layer norm
divides by the unbiased deviation plus 1e-6, ours by the root of the biased variance plus eps. The constant
factor between the deviations goes into the gain, and eps becomes nearly nothing. What remains, the 1e-6 added
to the deviation, changes a state by about one part in a million over its deviation.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

import torch
from torch import Tensor
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

from annotated.transformer.model import EncoderDecoder, TransformerConfig
from annotated.translation.interop.common import check_sinusoids
from annotated.translation.storage.model_folder import model_with

EPS = 1e-12
SINUSOIDS = "src_embed.1.pe", "tgt_embed.1.pe"
EMBEDDINGS = "src_embed.0.lut.weight", "tgt_embed.0.lut.weight"
FEED_FORWARD = "encoder.layers.0.feed_forward.w_1.weight"
NEEDED = {*SINUSOIDS, *EMBEDDINGS, FEED_FORWARD}  # whose shapes tell the settings


def load_classic(
    source: Mapping[str, Tensor] | str | Path, h: int = 8, dropout: float = 0.1
) -> EncoderDecoder:
    """Return the model of a `state_dict()`, or of a file that holds one.

    Tokens keep their numbers, so that code's own vocabularies go with it:

        model = load_classic("multi30k_model_final.pt")
        src = torch.tensor([vocab_src(["<s>", *tokenize_de(sentence), "</s>"])])
        mask = (src != vocab_src["<blank>"]).unsqueeze(-2)
        numbers = greedy_decode(model, src, mask, max_len=72, start_symbol=vocab_tgt["<s>"])[0]

    Args:
        source: the tensors by name, or a `torch.save` file of them.
        h: number of heads, which the weights do not show; that code's default is 8.
        dropout: for further training, on residual sums, attention weights and inside feed-forward networks.

    Raises ValueError naming a tensor that is missing, surplus or of the wrong shape.
    """
    name = source if isinstance(source, str | Path) else "state_dict"
    loaded = load_tensors(Path(source)) if isinstance(source, str | Path) else source
    if not (isinstance(loaded, Mapping) and all(isinstance(x, Tensor) for x in loaded.values())):
        names = f", but {', '.join(map(str, loaded))[:80]}" if isinstance(loaded, Mapping) else ""
        raise ValueError(f"{name} holds no tensors by name{names}; give what model.state_dict() returns")
    state = {key: tensor.detach() for key, tensor in loaded.items()}
    consume_prefix_in_state_dict_if_present(state, "module.")  # of a model under DistributedDataParallel
    if missing := NEEDED - state.keys():
        raise ValueError(f"{name}: tensor {min(missing)} is missing; give what model.state_dict() returns")
    config = infer_config(state, h, dropout)
    tensors = {}
    for table in SINUSOIDS:  # that code computes them in float32, a little off at late positions
        check_sinusoids(state.pop(table).squeeze(0), config.d_model, f"{name}: tensor {table}", atol=1e-2)
    for theirs, tensor in state.items():
        gain = theirs.endswith("norm.a_2")  # an unbiased standard deviation is the larger one
        ours = theirs.replace("norm.a_2", "norm.weight").replace("norm.b_2", "norm.bias")
        tensors[ours] = tensor * math.sqrt(1 - 1 / config.d_model) if gain else tensor
    return model_with(config, tensors, name).eval()


def load_tensors(path: Path) -> Any:
    """Load a `torch.save` file of tensors, lists and dictionaries; nothing else is unpickled.

    Raises ValueError for a damaged file, and for one that holds anything else.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the file that torch.save wrote")
    if is_zipfile(path):  # as since PyTorch 1.6; `torch.load` compares no checksums
        with ZipFile(path) as archive:
            if archive.testzip():
                raise ValueError(f"{path} is damaged: its content does not match its checksums")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception:  # other files raise errors of every kind
        written = "as torch.save(model.state_dict(), 'weights.pt') writes"
        raise ValueError(f"{path} is not a file of tensors by name, {written}") from None


def infer_config(state: Mapping[str, Tensor], h: int, dropout: float) -> TransformerConfig:
    """Infer settings from the shapes of the tensors that are needed."""
    numbers = (re.match(r"encoder\.layers\.(\d{1,9})\.", name) for name in state)
    return TransformerConfig(
        src_vocab=len(state[EMBEDDINGS[0]]),
        tgt_vocab=len(state[EMBEDDINGS[1]]),
        N=1 + max((int(number[1]) for number in numbers if number), default=0),
        d_model=state[EMBEDDINGS[0]].size(-1),
        d_ff=len(state[FEED_FORWARD]),
        h=h,
        dropout=dropout,
        attention_dropout=dropout,
        relu_dropout=dropout,
        max_len=state[SINUSOIDS[0]].size(-2),
        norm_first=True,
        layer_norm_eps=EPS,
    )
