"""Where to compute, how precisely, and in how many processes and threads."""

import os
import platform
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import distributed as dist
from torch.nn.attention import SDPBackend, sdpa_kernel
from tqdm import tqdm

Item = TypeVar("Item")


class SharedError(RuntimeError):
    """What ends all processes of a run at once, with the same message in each of them."""


def find_device(name: str) -> torch.device:
    """A device by name, "auto" for the best there is. Raises ValueError for one that is not there."""
    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    name = next(name for name in found if found[name]) if name == "auto" else name
    if name not in found:
        raise ValueError(f"the device must be auto, {', '.join(found)}, not {name!r}")
    if not found[name]:
        raise ValueError(f"there is no {name} device here; use --device auto or cpu")
    if name != "cuda":
        return torch.device(name)
    number, count = int(os.environ.get("LOCAL_RANK", 0)), torch.cuda.device_count()
    if number >= count:
        raise ValueError(f"process {number} of {node()} has no GPU: use --nproc-per-node {count} at most")
    return torch.device(name, number)


def node() -> str:
    """The machine that this process runs on, and its number where `torchrun` joins several."""
    return f"node {os.environ.get('GROUP_RANK', 0)} ({platform.node()})"


@contextmanager
def processes(device: torch.device) -> Iterator[None]:
    """Join the other processes, where `torchrun` started several, unless they are joined already.

    Raises SharedError if one of them is lost while the block runs.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) == 1 or dist.is_initialized():
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)  # otherwise NCCL takes the first GPU in every process
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield
    except BaseException as error:
        for each in (error, error.__context__):
            if each is not None:
                traceback.clear_frames(each.__traceback__)  # to leave while they hold the model may hang
        if isinstance(error, dist.DistError) or "gloo/transport" in str(error):  # gloo has no class for it
            lost = f"{node()} has lost another process of this run, which says why; --resume goes on from the"
            raise SharedError(f"{lost} newest checkpoint") from None
        raise
    finally:
        dist.destroy_process_group()


def gathered(value: Item) -> list[Item]:
    """The value of every process, in all of them; without other processes, just this one."""
    if not dist.is_initialized():
        return [value]
    values = [value] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def from_first(value: Item) -> Item:
    """The value of the first process, in all of them."""
    return gathered(value)[0]


def total(value: float, device: torch.device) -> float:
    """The sum of a number over all processes."""
    if not dist.is_initialized():
        return value
    number = torch.tensor(float(value), dtype=torch.float64, device=device)
    dist.all_reduce(number)
    return number.item()


def is_first() -> bool:
    """Tell whether this is the first of the processes that `torchrun` started, or the only one."""
    return int(os.environ.get("RANK", 0)) == 0


def say(text: str) -> None:
    """Tell the user something, on standard error, from the first process only; a progress bar stays whole."""
    if is_first():
        tqdm.write(text, file=sys.stderr)


@contextmanager
def agreed(remedy: str = "") -> Iterator[None]:
    """Let an error of one process end all: each of them raises SharedError with its node, it and `remedy`.

    The block must not wait for other processes. Without others, an error stays as it is.
    """
    if not dist.is_initialized():
        yield
        return
    message = None
    try:
        yield
    except (ValueError, OSError, ImportError) as error:
        message = f"{node()}: {error}{remedy}"
    for found in gathered(message):
        if found:
            raise SharedError(found)


@contextmanager
def half_precision(device: torch.device) -> Iterator[None]:
    """Compute matrix products in bf16 while the block runs, forward and backward; all else stays float32.

    On a GPU by autocast; products that are kept out of it, those of the loss, take float32 numbers and round
    them inside. On a CPU all products do, if PyTorch can there: with AMX, not with AVX-512 alone. Autocast
    would spend more on conversions than it saves in a small model. The fused kernel is slower there on
    short sentences (benchmarks/attention.py), so attention is computed step by step.
    """
    on_cpu = device.type == "cpu"
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with sdpa_kernel(SDPBackend.MATH) if on_cpu else torch.autocast(device.type, torch.bfloat16):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
