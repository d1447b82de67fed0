"""Batches in several threads at once."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

RUNNING_LOCK = threading.Lock()
RUNNING: list[int] = []  # for each `map_in_threads` that is running, PyTorch's threads before the first began


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
            torch.set_num_threads(threads)  # threads that start later would inherit that of the workers
