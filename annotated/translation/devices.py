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
        result = torch.device(device)
    except RuntimeError:
        raise ValueError(f"there is no device {device!r}; use auto, cpu, cuda, cuda:1 or mps") from None
    if not available.get(result.type, False):
        raise ValueError(f"there is no {result.type} device here that can be used; use auto or cpu")
    if result.type == "cuda" and result.index is None:
        return torch.device("cuda", read_number("LOCAL_RANK", 0))
    return result


@contextmanager
def default_torch_state(device: torch.device) -> Iterator[None]:
    """Run a block with gradients and float32; restore random state, dtype, threads and mode after it."""
    dtype = torch.get_default_dtype()
    threads = torch.get_num_threads()
    gpus = [device] if device.type == "cuda" else []
    no_autocast = torch.autocast(device.type, enabled=False)
    with torch.random.fork_rng(gpus), torch.inference_mode(False), torch.enable_grad(), no_autocast:
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            torch.set_num_threads(threads)
