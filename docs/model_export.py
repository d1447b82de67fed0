"""The shipped model as a script that a page can load, from the disk too, with weights in half precision."""

import base64
import json
from pathlib import Path

import torch

from annotated.checkpoints import check_rebuilds, weights
from annotated.translator import Translator

# What translator.js can compute: the paper's model.
NEEDED = {"norm_first": False, "activation": "relu", "positions": "sinusoidal", "tied_embeddings": "all"}


def write_model(translator: Translator, path: Path) -> None:
    """Write `path`, a script that leaves the model in `window.model`.

    Raises ValueError for a model that translator.js cannot run.
    """
    check_rebuilds(translator.model)
    config, tokenizer = translator.model.config, translator.src_tokenizer
    for name, value in NEEDED.items():
        if getattr(config, name) != value:
            raise ValueError(f"the page's model needs {name}={value!r}, not {getattr(config, name)!r}")
    if tokenizer is not translator.tgt_tokenizer or tokenizer.kind != "sentencepiece":
        raise ValueError("the page's model needs one vocabulary of subwords")
    tensors = {name: tensor.detach().cpu() for name, tensor in weights(translator.model).items()}
    packed = torch.cat([tensor.flatten() for tensor in tensors.values()]).half().numpy().tobytes()
    pieces = tokenizer.pieces(range(len(tokenizer)))
    model = {
        "N": config.N,
        "h": config.h,
        "d_model": config.d_model,
        "eps": config.layer_norm_eps,
        "forbidden": list(translator.forbidden),
        "pieces": [[piece, tokenizer._scores.get(piece)] for piece in pieces],
        "tensors": {name: list(tensor.shape) for name, tensor in tensors.items()},
        "weights": base64.b64encode(packed).decode("ascii"),
    }
    text = json.dumps(model, ensure_ascii=False, separators=(",", ":"))
    path.write_text(f"window.model = {text};\n", encoding="utf-8")
