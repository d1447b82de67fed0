"""Ctrl-C, and how a run takes it: at the next good moment."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import distributed as dist


class Stopped(KeyboardInterrupt):
    """Ctrl-C ended a run after it was saved; the message says where, and how to go on."""


@contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C, or SIGTERM, ask for a stop at the next good moment; a second one stops at once.

    Outside the main thread, which alone gets signals, nothing changes.
    """
    asked = False
    at_once: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}

    def ask(number: int, _: object) -> None:
        nonlocal asked
        asked = True
        if not dist.is_torchelastic_launched():  # torchrun passes on a Ctrl-C that we already got
            signal.signal(number, at_once[number])

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.signal(number, ask) for number in at_once}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
