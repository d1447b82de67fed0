"""Where to compute, how precisely, and together with whom."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import distributed as dist
from torch.nn.attention import SDPBackend, sdpa_kernel


def find_device(name: str) -> torch.device:
    """A device by name, "auto" for the best there is. Raises ValueError for one that is not there."""
    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    name = next(name for name in found if found[name]) if name == "auto" else name
    if not found[name]:
        raise ValueError(f"there is no {name} device here; use --device auto or cpu")
    return torch.device(name, int(os.environ.get("LOCAL_RANK", 0))) if name == "cuda" else torch.device(name)


@contextmanager
def processes(device: torch.device) -> Iterator[None]:
    """Join the other processes, where `torchrun` started several."""
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        yield
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def half_precision(device: torch.device) -> Iterator[None]:
    """Compute matrix products in bf16 while the block runs, forward and backward; all else stays float32.

    On a GPU by autocast; products that are kept out of it, those of the loss, take float32 numbers and round
    them inside. On a CPU all do: autocast would spend more on conversions than it saves in a small model. The
    fused attention kernel is slower there on short sentences (benchmarks/attention.py), so attention is
    computed step by step.
    """
    on_cpu = device.type == "cpu"
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with sdpa_kernel(SDPBackend.MATH) if on_cpu else torch.autocast(device.type, torch.bfloat16):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
