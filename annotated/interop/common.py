"""What the ways in and out share: packages that may be missing, pieces by number, rows in another order."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, cast
from zipfile import ZipFile

import torch
from torch import Tensor

from annotated.tokenizers import SPECIALS, MarianTokenizer, Tokenizer, WordTokenizer
from annotated.transformer.config import TransformerConfig
from annotated.transformer.layers import sinusoids

ALIASES = 4  # under so many names a file of torch.save may hold one matrix: Marian's of all embeddings
LONGEST = 1024  # positions of what is written, where they are sinusoids: ours grow, others are a table
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
        raise ImportError(f'{name} is missing: pip install ".[interop]" in the clone') from None


def check_parts(config: TransformerConfig) -> None:
    """Raise ValueError for a variant of the model: under its weights' names, others compute the paper's."""
    if config.parts != "paper":
        raise ValueError(f"parts {config.parts!r} are a variant's; the other library knows the paper's alone")


def read_pickle(path: Path, recipe: str) -> dict[str, Tensor]:
    """Tensors by name from a file of torch.save, nothing else unpickled (`weights_only=True`).

    Raises FileNotFoundError, or ValueError with the `recipe` for exporting what may be read; ValueError too
    for a file that is damaged, and for tensors that claim more than the file holds.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    check_archive(path)
    try:
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # what is no such file ends in errors of every kind
        found = None
    named = isinstance(found, Mapping) and all(isinstance(name, str) for name in found)
    if not named or not all(map(is_plain, found.values())):
        raise ValueError(f"{path} is not a file of tensors by name, and nothing else is unpickled; {recipe}")
    claimed, size = sum(tensor.nbytes for tensor in found.values()), path.stat().st_size
    if claimed > ALIASES * size:
        raise ValueError(f"{path}: its tensors claim {claimed:,} bytes, but the file has {size:,}")
    return dict(found)


def check_archive(path: Path) -> None:
    """Raise ValueError for a damaged archive of torch.save, or one that unpacks to more than it holds.

    torch.load compares no checksum. Files from before PyTorch 1.6 are no archives, and have none.
    """
    try:
        with ZipFile(path) as archive:
            whole = sum(record.file_size for record in archive.infolist()) <= path.stat().st_size
            whole = whole and archive.testzip() is None
    except Exception:  # what is no such archive ends in errors of every kind; torch.load will tell
        return
    if not whole:
        raise ValueError(f"{path} is damaged: what is in it is not what was saved, by its checksums")


def is_plain(tensor: Any) -> bool:
    """Whether this is a tensor of numbers that are all there."""
    whole = isinstance(tensor, Tensor) and tensor.layout is torch.strided
    return whole and not tensor.is_meta and not tensor.is_nested


def taken(
    tensors: Mapping[str, Tensor],
    names: Iterable[tuple[str, str]],
    source: object,
    ignored: Collection[str] = (),
) -> dict[str, Tensor]:
    """Foreign tensors under our names; `names` gives each of ours and theirs.

    Raises ValueError naming one that is missing, or that is neither asked for nor `ignored`.
    """
    found, used = {}, set(ignored)
    for ours, theirs in names:
        if theirs not in tensors:
            raise ValueError(f"{source}: tensor {theirs} is missing")
        found[ours] = tensors[theirs]
        used.add(theirs)
    if surplus := sorted(tensors.keys() - used):
        raise ValueError(f"{source}: tensor {surplus[0]} has no place in our model")
    return found


def check_sinusoids(
    waves: Tensor, d_model: int, name: str, atol: float, order: Tensor | slice = slice(None)
) -> None:
    """Raise ValueError unless `waves` (positions, d_model) are the sinusoids, dimensions in that `order`."""
    waves = torch.atleast_1d(waves)[: TransformerConfig.max_len].float().cpu()  # further rows are not used
    expected = sinusoids(len(waves), d_model)[:, order]
    if waves.shape != expected.shape or not torch.allclose(waves, expected, atol=atol):
        raise ValueError(f"{name} does not hold the sinusoids of section 3.5")


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
        tokens = [piece for piece, _ in cast(Any, tokenizer).scored_pieces()]
    if twice := [token for token, count in Counter(tokens).items() if count > 1]:
        raise ValueError(f"the token {twice[0]!r} is in the vocabulary twice, so its name tells no number")
    return tokens
