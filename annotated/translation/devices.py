"""Devices of this machine, and PyTorch's global state while one computes."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from annotated.translation.processes import read_number


def find_device(device: str | torch.device = "auto") -> torch.device:
    """Return a device by name, such as "cpu", "cuda" or "cuda:1"; "auto" is the best there is.

    Under `torchrun`, "cuda" is the GPU of this process. Raises ValueError for a device that is missing.
    """
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if device == "auto":
        device = next(name for name, present in available.items() if present)
    try:
        wanted = torch.device(device)
    except RuntimeError:
        raise ValueError(f"there is no device {device!r}; use auto, cpu, cuda, cuda:1 or mps") from None
    if not available.get(wanted.type, False):
        raise ValueError(f"there is no {wanted.type} device here that can be used; use auto or cpu")
    if wanted.type == "cuda" and wanted.index is None:
        return torch.device("cuda", read_number("LOCAL_RANK", 0))
    return wanted


@contextmanager
def default_torch_state(device: torch.device) -> Iterator[None]:
    """Run a block with gradients and float32; restore random state, dtype, threads and mode after it."""
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    gpus, plain = [device] if device.type == "cuda" else [], torch.autocast(device.type, enabled=False)
    with torch.random.fork_rng(gpus), torch.inference_mode(False), torch.enable_grad(), plain:
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            torch.set_num_threads(threads)
