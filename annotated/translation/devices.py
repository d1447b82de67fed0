"""The devices of this machine, its threads, and the place of this process among those of `torchrun`."""

import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch
import torch.distributed as dist
from tqdm import tqdm

Item = TypeVar("Item")
Result = TypeVar("Result")

RUNNING_LOCK = threading.Lock()
RUNNING: list[int] = []  # for each `map_in_threads` that is running, PyTorch's threads before the first began


def find_device(device: str | torch.device = "auto") -> torch.device:
    """Return a device by name, such as "cpu", "cuda" or "cuda:1"; "auto" is the best there is.

    Under `torchrun`, "cuda" is the GPU of this process. Raises ValueError for a device that is missing.
    """
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if device == "auto":
        device = next(name for name, present in available.items() if present)
    try:
        found = torch.device(device)
    except RuntimeError:
        raise ValueError(f"there is no device {device!r}; use auto, cpu, cuda, cuda:1 or mps") from None
    if not available.get(found.type, False):
        raise ValueError(f"there is no {found.type} device here that can be used; use auto or cpu")
    if found.type == "cuda" and found.index is None:
        return torch.device("cuda", read_number("LOCAL_RANK", 0))
    return found


def read_number(name: str, default: int) -> int:
    """Read a whole number from the environment; an empty variable counts as unset."""
    return int(os.environ.get(name) or default)


def rank_and_world() -> tuple[int, int]:
    """Return the number of this process, from 0, and how many there are that exchange gradients."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def is_first() -> bool:
    """Return whether this is the first process, of those that have joined or that `torchrun` started."""
    if dist.is_initialized() or read_number("WORLD_SIZE", 1) == 1:
        return rank_and_world()[0] == 0
    return read_number("RANK", 0) == 0


def node() -> str:
    """Name this machine, with its number among those that `torchrun` joins."""
    return f"node {read_number('GROUP_RANK', 0)} ({platform.node()})"


def silent() -> bool:
    """Return whether this process prints nothing."""
    return not is_first() or sys.stderr is None or sys.stderr.closed


def print_message(text: str) -> None:
    """Print a message, from the first process only, without breaking a progress bar.

    It goes to standard error, but in a notebook, which would show that as an error, to standard output.
    """
    if not silent():
        notebook = hasattr(getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)(), "kernel")
        file = sys.stdout if notebook else sys.stderr
        encoding = getattr(file, "encoding", None) or "utf-8"
        tqdm.write(text.encode(encoding, "backslashreplace").decode(encoding), file=file)


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


def map_in_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Like `map`, but do as many items at a time as PyTorch has threads; results keep their order.

    For batches on a CPU. All threads on one small batch wait for each other at the end of each of its
    operations; with a batch for each thread, they need not (benchmarks/decode.py). Fewer items than threads
    share these out evenly.

    `work` runs in other threads: it must not change what the others use, and what the caller has switched on
    for itself, such as `torch.no_grad`, does not hold there. An error comes out when its item's turn comes;
    what has begun by then runs to its end, the rest is not begun.
    """
    with RUNNING_LOCK:
        threads = RUNNING[0] if RUNNING else torch.get_num_threads()
        workers = min(threads, len(items))
        if workers > 1:
            RUNNING.append(threads)
    if workers < 2:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(threads // workers,))
    try:
        yield from pool.map(work, items)
    finally:
        pool.shutdown(cancel_futures=True)
        with RUNNING_LOCK:
            RUNNING.remove(threads)
            torch.set_num_threads(threads)  # else threads born later would begin with as few as the workers
