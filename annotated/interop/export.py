"""What the exports check before they write, and the README that they leave."""

import shutil
from collections import Counter
from pathlib import Path

from annotated.storage.model_folder import check_model
from annotated.tokenizers import Tokenizer
from annotated.transformer.config import TransformerConfig
from annotated.transformer.model import EncoderDecoder

POSITIONS = 1024  # rows of an exported table of sinusoids; ours grows as needed


def check_parts(config: TransformerConfig) -> None:
    """Raise ValueError for a variant, whose weights other libraries would compute with as the paper does."""
    if config.parts != "paper":
        raise ValueError(f"parts {config.parts!r} are a variant's; the other library knows the paper's alone")


def check_exportable(model: EncoderDecoder, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer) -> None:
    """Raise ValueError for a variant, or tokenizers that do not fit the model."""
    check_parts(model.config)
    check_model(model, src_tokenizer, tgt_tokenizer)


def vocabulary(tokenizer: Tokenizer) -> list[str]:
    """Return the tokens by number, as strings. Raises ValueError where two are spelled alike."""
    tokens = tokenizer.vocabulary
    if duplicates := [token for token, count in Counter(tokens).items() if count > 1]:
        raise ValueError(f"the token {duplicates[0]!r} is in the vocabulary twice")
    return tokens


def write_readme(folder: Path) -> None:
    """Write the README.md of an exported folder: how to use it without this package."""
    shutil.copyfile(Path(__file__).with_name("export_readme.md"), folder / "README.md")
