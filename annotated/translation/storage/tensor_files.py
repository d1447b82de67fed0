"""Weights on disk: safetensors with a checksum, compared with the tensors that a model needs.

The checksums stand in the file itself, because a file beside it could be older or newer. They find damage and
mixed-up files, not malice. A file without checksums, such as another program's, is read unchecked.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from annotated.translation.files import replacing

FLOATS = torch.float16, torch.bfloat16, torch.float32, torch.float64
SUMS = "sha256"  # the only key of the metadata, because safetensors writes several in no certain order
TENSORS = "tensors"  # names the checksum of the tensors among those of other files


def write_tensors(path: Path, tensors: Mapping[str, Tensor], files: Mapping[str, str] | None = None) -> None:
    """Write safetensors with their checksum and, by name, those of other `files`; whole or not at all."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    sums = {TENSORS: digest(plain), **(files or {})}
    with replacing(path) as partial:
        partial.write_bytes(save(plain, {SUMS: " ".join(f"{name}={value}" for name, value in sums.items())}))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read safetensors; they take no more memory than the file has bytes. Raises as `read_with_sums` does."""
    return read_with_sums(path)[0]


def read_with_sums(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors of a file, and the checksums of the files that belong to them, by name.

    Raises FileNotFoundError, or ValueError that names the file if it is cut off or damaged.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
            text = (file.metadata() or {}).get(SUMS, "")
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from None
    sums = dict(part.partition("=")[::2] for part in text.split())
    if TENSORS in sums and sums.pop(TENSORS) != digest(tensors):
        raise ValueError(f"{path} is damaged: its checksum differs")
    return tensors, sums


def digest(tensors: Mapping[str, Tensor]) -> str:
    """Compute the SHA-256 of the tensors' names, types, shapes and numbers."""
    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.flatten().view(torch.uint8).numpy().data)
    return total.hexdigest()


def check_tensors(tensors: Mapping[str, Tensor], state: Mapping[str, Tensor], source: object) -> None:
    """Raise ValueError naming a tensor that is missing, surplus, or of another shape or type than in `state`.

    Floating-point numbers may have 16, 32 or 64 bits, and must be finite in the state's type, except in a
    buffer that was not finite when it was made, such as a mask.
    """
    for name, model_tensor in state.items():
        if name not in tensors:
            raise ValueError(f"{source}: tensor {name} is missing")
        tensor = tensors[name]
        is_float = model_tensor.is_floating_point()
        if tensor.shape != model_tensor.shape:
            shapes = f"{tuple(tensor.shape)}, but the settings ask for {tuple(model_tensor.shape)}"
            raise ValueError(f"{source}: tensor {name} has shape {shapes}")
        if tensor.dtype not in (FLOATS if is_float else (model_tensor.dtype,)):
            kind = "float of 16, 32 or 64 bits" if is_float else str(model_tensor.dtype)
            raise ValueError(f"{source}: tensor {name} is {tensor.dtype}, not {kind}")
        must_be_finite = isinstance(model_tensor, nn.Parameter) or bool(model_tensor.isfinite().all())
        if is_float and tensor.numel() and must_be_finite:
            bounds = torch.stack(tensor.aminmax())  # NaN if there is one; the tensor is not copied
            if not bounds.to(model_tensor.dtype).isfinite().all():
                raise ValueError(f"{source}: tensor {name} holds numbers that are not finite")
    if surplus := [name for name in tensors if name not in state]:
        raise ValueError(f"{source}: tensor {surplus[0]} is not part of what the settings describe")
