"""What several converters share: checks, the tokens by number, and the README of an exported folder."""

import shutil
from pathlib import Path

import torch
from torch import Tensor

from annotated.transformer.config import TransformerConfig
from annotated.transformer.model import EncoderDecoder
from annotated.transformer.positions import sinusoids
from annotated.translation.storage.model_folder import check_can_be_saved, check_vocabularies
from annotated.translation.tokenizers import Tokenizer

POSITIONS = 1024  # rows of an exported table of sinusoids; ours grows as needed


def check_exportable(model: EncoderDecoder, *tokenizers: Tokenizer) -> None:
    """Raise ValueError for a variant, which other libraries lack, or tokenizers that do not fit the model."""
    if (variant := model.config.variant) != "paper":
        raise ValueError(f"the other library has the paper's parts alone, not the variant {variant!r}")
    check_can_be_saved(model)
    if tokenizers:
        check_vocabularies(model.config, *tokenizers, source="the model")


def vocabulary(tokenizer: Tokenizer) -> list[str]:
    """Return the tokens by number, as strings. Raises ValueError where two are spelled alike."""
    tokens = tokenizer.vocabulary
    if len(set(tokens)) < len(tokens):
        raise ValueError("a token is in the vocabulary twice")
    return tokens


def check_sinusoids(
    table: Tensor, d_model: int, name: str, atol: float, order: Tensor | slice = slice(None)
) -> None:
    """Raise ValueError unless `table` (positions, d_model) is sinusoids, dimensions in this `order`."""
    table = torch.atleast_1d(table)[: TransformerConfig.max_len].float().cpu()  # further rows are not used
    expected = sinusoids(len(table), d_model)[:, order]
    if table.shape != expected.shape or not torch.allclose(table, expected, atol=atol):
        raise ValueError(f"{name} does not hold the sinusoids of section 3.5")


def write_readme(folder: Path) -> None:
    """Write the README.md of an exported folder: how to use it without this package."""
    shutil.copyfile(Path(__file__).with_name("export_readme.md"), folder / "README.md")
