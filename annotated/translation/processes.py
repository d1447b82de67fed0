"""The processes that `torchrun` starts for a run, and the signals that stop them."""

import inspect
import os
import platform
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import distributed as dist, nn

Item = TypeVar("Item")


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


class DistributedError(RuntimeError):
    """An error that every process of a run raises, with the same message."""


@contextmanager
def process_group(device: torch.device) -> Iterator[None]:
    """Join the processes that `torchrun` started, if it did and they have not joined, while the block runs.

    Raises DistributedError where another process is lost.
    """
    if read_number("WORLD_SIZE", 1) == 1 or dist.is_initialized():
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)  # otherwise NCCL takes the first GPU in every process
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield
    except BaseException as error:
        for each in (error, error.__context__):
            if each is not None:  # leaving the group while holding the model may hang
                traceback.clear_frames(each.__traceback__)
        if isinstance(error, dist.DistError) or "gloo/transport" in str(error):  # gloo has no class for it
            message = f"{node()} has lost another process of this run, which says why"
            raise DistributedError(f"{message}; --resume, in Python resume=True, goes on") from None
        raise
    finally:
        dist.destroy_process_group()


def data_parallel(module: nn.Module, variant: bool) -> nn.Module:
    """Wrap a module so that processes add up its gradients, if there are several.

    The paper's model uses all its parameters, and its buffers are constants; those of a `variant` may differ.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return module
    wrapper: Any = nn.parallel.DistributedDataParallel
    names = inspect.signature(wrapper).parameters  # torch 2.13 has renamed the setting
    buffers = "forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers"
    return wrapper(module, find_unused_parameters=variant, **{buffers: variant})


def all_gather(value: Item) -> list[Item]:
    """Return the values of all processes, in each of them."""
    if not dist.is_initialized():
        return [value]
    values = [value] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def broadcast(value: Item) -> Item:
    """Return the value of the first process, in each of them."""
    values = [value]
    if dist.is_initialized():
        dist.broadcast_object_list(values)
    return values[0]


def all_reduce(numbers: Sequence[float], device: torch.device) -> list[float]:
    """Sum each of the numbers over all processes, in float64."""
    if not dist.is_initialized():
        return list(numbers)
    tensor = torch.tensor(numbers, dtype=torch.float64, device=device)
    dist.all_reduce(tensor)
    return tensor.tolist()


@contextmanager
def raise_on_all_ranks(hint: str = "") -> Iterator[None]:
    """Raise the error of one process in all of them, as a DistributedError that names its node.

    The block must not communicate. In a single process, an error stays as it is.
    """
    if not dist.is_initialized():
        yield
        return
    message = None
    try:
        yield
    except (ValueError, OSError, ImportError) as error:
        message = f"{node()}: {error}{hint}"
    for text in all_gather(message):
        if text:
            raise DistributedError(text)


@contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C or SIGTERM ask for a stop after the current update; a second one stops at once.

    Yields a function that returns whether a stop was asked for. Only the main thread receives signals;
    in another nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    requested = False
    at_once: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}

    def request_stop(number: int, _: object) -> None:
        nonlocal requested
        requested = True
        if not dist.is_torchelastic_launched():  # torchrun repeats a Ctrl-C that its processes got already
            signal.signal(number, at_once[number])

    before = {number: signal.signal(number, request_stop) for number in at_once}
    try:
        yield lambda: requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
