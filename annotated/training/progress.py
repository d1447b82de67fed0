"""Where a run stands, how far it is from its end, and how Ctrl-C stops it on the way."""

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import distributed as dist
from tqdm.auto import tqdm
from tqdm.notebook import tqdm_notebook

from annotated.files import read_json, settings_from_json
from annotated.training.config import TrainingConfig

PROGRESS = "progress.json"


@dataclass
class Progress:
    """Where a run stands: all that a checkpoint must hold besides weights and the optimizer's state."""

    step: int = 0  # updates made
    epoch: int = 0  # the epoch under way, from 0
    batches: int = 0  # trained on in it
    epoch_batches: int = 0  # in it; at its start, in the one before
    update_batches: int = 1  # in an update, of all processes
    text: str = ""  # identifies what is trained and validated on; "" is unknown
    seconds: float = 0.0  # spent on updates, interruptions not counted
    loss: float = 0.0  # summed since the last line of the log
    tokens: int = 0  # target tokens since then
    total_tokens: int = 0  # target tokens since the start
    log_bytes: int = 0  # the log's length; what a killed run wrote after its checkpoint is cut off
    validation_loss: float | None = None  # of exactly these weights, if they were validated
    best: float | None = None  # lowest validation loss
    stale: int = 0  # epochs since then
    off_schedule: bool = False  # saved because the run stopped here, not because a checkpoint was due

    def __post_init__(self) -> None:
        """Raises ValueError for a number that no run can have reached."""
        for name, value in vars(self).items():
            if isinstance(value, int) and value < (name == "update_batches"):
                raise ValueError(f"{name} cannot be {value}")

    @property
    def current_epoch(self) -> int:
        """The epoch of the latest update, counted from 1, as people and the log have it."""
        return self.epoch + (self.batches > 0)

    def finished(self, config: TrainingConfig) -> bool:
        """Whether the settings say that this is the end."""
        stale = config.patience > 0 and self.stale >= config.patience
        return self.step >= config.max_steps or self.epoch >= config.epochs or stale

    def last_step(self, config: TrainingConfig) -> int:
        """The update that ends the run, unless patience ends it sooner."""
        done, each = (math.ceil(count / self.update_batches) for count in (self.batches, self.epoch_batches))
        return min(config.max_steps, self.step - done + each * (config.epochs - self.epoch))

    def minutes_left(self, config: TrainingConfig) -> float:
        """How long the run will still take if its updates go on as fast as they did."""
        return self.seconds / 60 / max(self.step, 1) * (self.last_step(config) - self.step)


def read_progress(checkpoint: Path) -> Progress:
    """Where the run stood at a checkpoint. Raises ValueError that names the file if it is damaged."""
    values = read_json(checkpoint / PROGRESS)
    if "position" in values:
        raise ValueError(
            f"{checkpoint / PROGRESS} is of annotated 0.1, which did not note enough to go on exactly; "
            f"begin another run with --init-from {checkpoint}"
        )
    return settings_from_json(Progress, values, checkpoint / PROGRESS)


def progress_bar(step: int, first: bool) -> tqdm:
    """Open a bar of updates that begins at `step`, in the first process, on a terminal or in a notebook."""
    shown = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}, {rate_fmt}{postfix}]"  # the time left is ours
    options = {"unit": "update", "smoothing": 0.05, "bar_format": shown}
    if not first:
        options["disable"] = True
    elif not issubclass(tqdm, tqdm_notebook):
        options["disable"] = None  # draw on a terminal, but not into a file
    return tqdm(initial=step, **options)


def set_end(bar: tqdm, total: int) -> None:
    """Tell the bar where it ends; that of a notebook learns it from `reset` alone."""
    if bar.total is None:
        step = bar.n
        bar.reset(total)
        bar.n = bar.last_print_n = step
    bar.total = total


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
