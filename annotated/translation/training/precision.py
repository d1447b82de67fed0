"""Mixed precision: bf16 in matrix products."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


@contextmanager
def half_precision(device: torch.device) -> Iterator[None]:
    """Compute matrix products in bf16 while the block runs, forward and backward; all else stays float32.

    On a GPU that is autocast. On a CPU products round their numbers inside, if it has AMX: autocast would
    spend more on conversions than it saves in a small model, and the fused attention is slower there.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    on_cpu = device.type == "cpu"
    try:
        with sdpa_kernel(SDPBackend.MATH) if on_cpu else torch.autocast(device.type, torch.bfloat16):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
