"""Tensors of other programs: loaded without running code, compared with sinusoids."""

from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

import torch
from torch import Tensor

from annotated.transformer.config import TransformerConfig
from annotated.transformer.positions import sinusoids


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Load tensors by name from a `torch.save` file; nothing else is unpickled.

    Raises ValueError for a damaged file, for anything but tensors by name, and for tensors that claim more
    memory than the file holds.
    """
    if is_zipfile(path):  # not before PyTorch 1.6; `torch.load` compares no checksums
        with ZipFile(path) as archive:
            if archive.testzip():
                raise ValueError(f"{path} is damaged: its content does not match its checksums")
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
        claimed = sum(state[name].nbytes for name in state)
    except FileNotFoundError:
        raise
    except Exception:  # other files raise errors of every kind
        raise ValueError(
            f"{path} is not a file of tensors by name, as torch.save(model.state_dict(), 'weights.pt') writes"
        ) from None
    if claimed > 4 * path.stat().st_size:  # one matrix may have several names
        raise ValueError(f"{path}: its tensors claim {claimed:,} bytes, more than the file holds")
    return dict(state)


def check_sinusoids(
    table: Tensor, d_model: int, name: str, atol: float, order: Tensor | slice = slice(None)
) -> None:
    """Raise ValueError unless `table` (positions, d_model) is sinusoids, dimensions in this `order`."""
    table = torch.atleast_1d(table)[: TransformerConfig.max_len].float().cpu()  # further rows are not used
    expected = sinusoids(len(table), d_model)[:, order]
    if table.shape != expected.shape or not torch.allclose(table, expected, atol=atol):
        raise ValueError(f"{name} does not hold the sinusoids of section 3.5")
