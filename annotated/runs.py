"""The folder of a training run: what is in it, and how it survives being killed at any moment.

It is a model folder (the newest weights, or their average at the end) that also holds

    training.json                settings of the run, as `--config` takes them
    log.jsonl                    a line each `log_every` updates and each validation: "loss" is what is
                                 trained, the smoothed divergence (and what `consistency` adds),
                                 "validation_loss" the cross-entropy without smoothing, both in nats a
                                 target token
    checkpoints/step-00001234/   a model folder with the optimizer's state and the position in the data
    tensorboard/                 the log for TensorBoard, if asked for
    run.lock                     empty; held by the process that trains
"""

import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.optim import Adam

from annotated.checkpoints import CONFIG, check_tensors, read_tensors, save_model, weights, write_tensors
from annotated.files import creating_folder, read_json, remove_folder, settings_from_json, write_json
from annotated.model import EncoderDecoder
from annotated.settings import CHANGEABLE, TrainingConfig
from annotated.tokenizers import Tokenizer

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None

SETTINGS, LOG, LOCK = "training.json", "log.jsonl", "run.lock"
OPTIMIZER, PROGRESS = "optimizer.safetensors", "progress.json"


@dataclass
class Progress:
    """Where a run stands: all that a checkpoint must hold besides weights and the optimizer's state."""

    step: int = 0  # updates made
    epoch: int = 0  # the epoch under way, from 0
    position: int = 0  # updates made in it
    seconds: float = 0.0  # spent on updates, interruptions not counted
    loss: float = 0.0  # summed since the last line of the log
    tokens: int = 0  # target tokens since then
    total_tokens: int = 0  # target tokens since the start
    log_bytes: int = 0  # the log's length; what a killed run wrote after its checkpoint is cut off
    validation_loss: float | None = None  # of exactly these weights, if they were validated
    best: float | None = None  # lowest validation loss
    stale: int = 0  # epochs since then
    between: bool = False  # saved only because the run was to stop here, where no other run would save


class RunFolder:
    """A run on disk. Of several processes, only the first may call `locked`, `open`, `save` and `log`."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.board = None

    def checkpoints(self) -> list[Path]:
        """The run's whole checkpoints, oldest first."""
        return sorted((self.path / "checkpoints").glob("step-*"))

    def newest(self) -> Path | None:
        """The newest whole checkpoint, if there is one."""
        return (self.checkpoints() or [None])[-1]

    def chosen(self, count: int, of: str, between: bool = False) -> list[Path]:
        """`count` checkpoints: of "last" the newest, of "best" those with the lowest validation losses.

        With `between` one that was saved only because the run was to stop counts too, if it is the newest.
        """
        found = {folder: read_progress(folder) for folder in self.checkpoints()}
        counted = [f for f in found if not found[f].between or (between and f == self.newest())]
        if of == "best":
            losses = {folder: found[folder].validation_loss for folder in counted}
            counted = [folder for folder in counted if losses[folder] is not None]
            counted.sort(key=losses.get, reverse=True)
        return counted[-count:]

    def check_empty(self) -> None:
        """Raise ValueError where the folder already holds a run or a model."""
        if self.checkpoints() or (self.path / CONFIG).exists():
            raise ValueError(
                f"{self.path} already holds a run or a model; resume the run, or choose another folder"
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from the run. Raises ValueError where one is at work on it.

        The lock ends with the process, however that ends. Windows and some file systems have none.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / LOCK).open("ab") as file:
            if fcntl is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    busy = f"another process trains in {self.path}; wait for it, or choose another folder"
                    raise ValueError(busy) from None
                except OSError:  # a file system without locks
                    pass
            yield

    @contextmanager
    def reading(self, checkpoint: Path) -> Iterator[None]:
        """Let an error over a checkpoint's files say how the run goes on without it."""
        try:
            yield
        except (ValueError, FileNotFoundError) as error:
            before = [folder for folder in self.checkpoints() if folder < checkpoint]
            way_out = "there is no checkpoint before it"
            if before:
                way_out = f"delete the folder {checkpoint}, and the run goes on from {before[-1].name}"
            raise ValueError(f"{error}; {way_out}") from None

    def check_settings(self, settings: dict[str, object]) -> None:
        """Raise ValueError naming a setting that differs from the run's, unless it may be changed.

        A run of an older version does not name all of them; it had the defaults of the others.
        """
        defaults = {field.name: field.default for field in dataclasses.fields(TrainingConfig)}
        for name, value in {**defaults, **read_json(self.path / SETTINGS)}.items():
            if name in settings and name not in CHANGEABLE and settings[name] != value:
                raise ValueError(
                    f"{self.path} was begun with {name} = {value!r}, not {settings[name]!r}; a resumed run "
                    f"keeps its settings, but for {', '.join(CHANGEABLE)}"
                )

    def open(self, settings: dict[str, object], progress: Progress) -> None:
        """Get ready to go on from `progress`: undo what a killed process logged later or left half done."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / LOG).open("ab") as log:
            log.truncate(min(progress.log_bytes, log.tell()))
        for partial in (self.path / "checkpoints").glob(".*.partial"):
            shutil.rmtree(partial)
        write_json(self.path / SETTINGS, settings)
        if settings["tensorboard"]:
            self.board = tensorboard_writer(self.path / "tensorboard", progress.step + 1)

    def save(
        self,
        model: EncoderDecoder,
        tokenizers: tuple[Tokenizer, Tokenizer],
        optimizer: Adam,
        progress: Progress,
        keep: int,
        of: str,
    ) -> None:
        """Write a checkpoint, make its weights the run's, and drop all but it and the `keep` chosen ones."""
        with creating_folder(self.path / "checkpoints" / f"step-{progress.step:08d}") as folder:
            write_tensors(folder / OPTIMIZER, optimizer_tensors(model, optimizer))
            write_json(folder / PROGRESS, dataclasses.asdict(progress))
            save_model(folder, model, *tokenizers)
        kept = {self.newest(), *self.chosen(keep, of)}
        save_model(self.path, model, *tokenizers)
        for old in self.checkpoints():
            if old not in kept:
                remove_folder(old)

    def log(self, record: dict[str, float], progress: Progress) -> None:
        """Add a line to the log, and to TensorBoard's if asked for; `progress` learns the new length."""
        p = progress
        line = json.dumps({"step": p.step, "epoch": p.epoch, **record, "seconds": round(p.seconds, 3)}) + "\n"
        with (self.path / LOG).open("ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
            p.log_bytes = file.tell()
        if self.board is not None:
            for name, value in record.items():
                self.board.add_scalar(name, value, p.step)
            self.board.flush()


def tensorboard_writer(folder: Path, first_step: int) -> object:
    """Write for TensorBoard, hiding what was written before from `first_step` on. Raises ImportError."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ImportError('TensorBoard is missing: pip install "annotated-transformer[dev]"') from None
    return SummaryWriter(folder, purge_step=first_step)


def settings_of(folder: Path) -> dict[str, object]:
    """How the model in a folder was trained; a checkpoint's run tells, for others nothing may: then {}."""
    checkpoints = folder.resolve().parent
    places = (folder, checkpoints.parent) if checkpoints.name == "checkpoints" else (folder,)
    return next((read_json(place / SETTINGS) for place in places if (place / SETTINGS).exists()), {})


def read_progress(checkpoint: Path) -> Progress:
    """Where the run stood at a checkpoint. Raises ValueError that names the file if it is damaged."""
    return settings_from_json(Progress, read_json(checkpoint / PROGRESS), checkpoint / PROGRESS)


def optimizer_tensors(model: EncoderDecoder, optimizer: Adam) -> dict[str, Tensor]:
    """Adam's step and moments by the name of the parameter."""
    return {
        f"{name}.{part}": value
        for name, parameter in weights(model).items()
        for part, value in optimizer.state[parameter].items()
    }


def load_optimizer(optimizer: Adam, model: EncoderDecoder, checkpoint: Path) -> None:
    """Set Adam's step and moments. Raises ValueError naming the file and what is wrong with it."""
    path, own = checkpoint / OPTIMIZER, weights(model)
    tensors = read_tensors(path)
    wanted = {}
    for name, parameter in own.items():
        moments = {f"{name}.exp_avg": parameter, f"{name}.exp_avg_sq": parameter}
        wanted |= {f"{name}.step": torch.zeros(()), **moments}
    check_tensors(tensors, wanted, path)
    for name, tensor in tensors.items():
        parameter, _, part = name.rpartition(".")
        optimizer.state[own[parameter]][part] = tensor.to(own[parameter].device, copy=True)
