"""What the ways in and out share: packages that may be missing, pieces by number, rows in another order."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from annotated.model import EncoderDecoder
from annotated.tokenizers import SPECIALS, MarianTokenizer, Tokenizer, WordTokenizer
from annotated.tokenizers.subwords import read_processor

Rows = Sequence[int | None]  # for each of our tokens its number elsewhere, or None where there is none


def foreign(package: str) -> ModuleType:
    """Import another library. Raises ImportError that names the extra to install."""
    name = package.partition(".")[0]
    try:
        import_module(name)
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ImportError(f'{name} is missing: pip install "annotated-transformer[interop]"') from None


def read_pickle(path: Path, recipe: str) -> dict[str, Tensor]:
    """Tensors by name from a file of torch.save, nothing else unpickled (`weights_only=True`).

    Raises FileNotFoundError, or ValueError with the `recipe` for exporting what may be read.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    try:
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # what is no such file ends in errors of every kind
        found = None
    named = isinstance(found, Mapping) and all(isinstance(name, str) for name in found)
    if not named or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise ValueError(f"{path} is not a file of tensors by name, and nothing else is unpickled; {recipe}")
    return dict(found)


def taken(
    tensors: Mapping[str, Tensor], names: Mapping[str, str], source: object, ignored: Collection[str] = ()
) -> dict[str, Tensor]:
    """Foreign tensors under our names; `names` gives theirs by ours.

    Raises ValueError naming one that is missing, or that is neither asked for nor `ignored`.
    """
    for theirs in names.values():
        if theirs not in tensors:
            raise ValueError(f"{source}: tensor {theirs} is missing")
    if surplus := sorted(tensors.keys() - names.values() - set(ignored)):
        raise ValueError(f"{source}: tensor {surplus[0]} has no place in our model")
    return {ours: tensors[theirs] for ours, theirs in names.items()}


def renumbered(tensor: Tensor, rows: Rows, fill: float = 0.0) -> Tensor:
    """The rows of `tensor` in the order of our tokens; a token without one gets a row of `fill`."""
    chosen = tensor[[row or 0 for row in rows]]
    missing = torch.tensor([row is None for row in rows], device=tensor.device)
    return chosen.masked_fill(missing.view(-1, *[1] * (tensor.dim() - 1)), fill)


def vocabulary(tokenizer: Tokenizer) -> list[str]:
    """The tokens by number, spelled as they are. Raises ValueError where two are spelled alike."""
    if isinstance(tokenizer, WordTokenizer):
        tokens = [*SPECIALS, *tokenizer.words]
    elif isinstance(tokenizer, MarianTokenizer):
        tokens = tokenizer.vocabulary
    else:
        processor = read_processor(tokenizer.model)
        tokens = [processor.id_to_piece(i) for i in range(len(tokenizer))]
    if twice := [token for token, count in Counter(tokens).items() if count > 1]:
        raise ValueError(f"the token {twice[0]!r} is in the vocabulary twice, so its name tells no number")
    return tokens


def check_vocabularies(model: EncoderDecoder, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer) -> None:
    """Raise ValueError where a tokenizer has more or fewer tokens than its side of the model."""
    sides = ((src_tokenizer, model.config.src_vocab), (tgt_tokenizer, model.config.tgt_vocab))
    for tokenizer, size in sides:
        if len(tokenizer) != size:
            raise ValueError(f"a tokenizer of {len(tokenizer)} tokens for a model of {size}")
