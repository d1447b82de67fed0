"""Where to compute, how precisely, and in how many processes and threads."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import distributed as dist
from torch.nn.attention import SDPBackend, sdpa_kernel

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 4  # items a thread that `side_by_side` begins ahead: one slow item keeps the others busy for a while


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
    them inside. On a CPU all products do, if PyTorch can there: with AMX it does, with no more than AVX-512's
    bf16 it rounds nothing. Autocast would spend more on conversions than it saves in a small model. The fused
    attention kernel is slower there on short sentences (benchmarks/attention.py), so attention is computed
    step by step.
    """
    on_cpu = device.type == "cpu"
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with sdpa_kernel(SDPBackend.MATH) if on_cpu else torch.autocast(device.type, torch.bfloat16):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Like `map`, but do as many items at a time as PyTorch has threads; results keep their order.

    For batches on a CPU. All threads on one small batch wait for each other at the end of each of its
    operations; with a batch for each thread, they need not (benchmarks/decode.py). Fewer items than threads
    share these out evenly. At most `AHEAD` items a thread are begun before their results are taken.

    `work` runs in other threads: it must not change what the others use, and what the caller has switched on
    for itself, such as `torch.no_grad`, does not hold there. An error comes out when its item's turn comes;
    what has begun by then runs to its end, the rest is not begun.
    """
    threads = torch.get_num_threads()
    workers = min(threads, len(items))
    if workers < 2:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(threads // workers,))
    begun: deque[Future[Result]] = deque()
    try:
        for item in items:
            if len(begun) == AHEAD * workers:
                yield begun.popleft().result()
            begun.append(pool.submit(work, item))
        while begun:
            yield begun.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # else threads born later would begin with as few as the workers
