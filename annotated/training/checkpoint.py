"""The folder of a training run: what is in it, and how it survives being killed at any moment.

It is a model folder (the newest weights, or their average at the end) that also holds

    training.json                settings of the run, as `--config` takes them
    log.jsonl                    a line each `log_every` updates and each validation, with the epoch from 1
                                 (from 0 in older runs, but for validation), in nats a target token: "loss" is
                                 what is trained, the smoothed divergence (and what `rdrop_weight` adds),
                                 "validation_loss" the cross-entropy without smoothing
    checkpoints/step-00001234/   a model folder with the optimizer's state and the position in the data
    tensorboard/                 the log for TensorBoard, if asked for
    run.lock                     empty; held by the process that trains
"""

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import Tensor
from torch.optim import Adam

from annotated.files import creating_folder, naming, read_json, remove_folder, remove_partials, write_json
from annotated.tokenizers import Tokenizer
from annotated.training.config import CHANGEABLE, TrainingConfig
from annotated.training.progress import PROGRESS, Progress, read_progress
from annotated.transformer.model import EncoderDecoder, TransformerConfig
from annotated.translation.model_folder import CONFIG, SETTINGS, WEIGHTS, read_config, save_model, weights
from annotated.translation.tensor_files import check_tensors, read_tensors, write_tensors

LOG, LOCK = "log.jsonl", "run.lock"
OPTIMIZER = "optimizer.safetensors"

# Settings that say where the text lies. A resumed run is held to the text itself.
PLACES = ("path", "src", "tgt", "val_src", "val_tgt")


class RunFolder:
    """A run on disk. Of several processes, only the first may call `locked`, `open`, `save` and `log`."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.board: Any = None

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r}, {len(self.checkpoints())} checkpoints)"

    def checkpoints(self) -> list[Path]:
        """The run's whole checkpoints, oldest first: folders of exactly that name."""
        named = (self.path / "checkpoints").glob("step-" + 8 * "[0-9]")
        return sorted(folder for folder in named if folder.is_dir())

    def newest(self) -> Path | None:
        """The newest whole checkpoint, if there is one."""
        return next(reversed(self.checkpoints()), None)

    def settings(self) -> dict[str, Any]:
        """Read what the run was begun with."""
        return read_json(self.path / SETTINGS)

    def warmup(self) -> int:
        """Read the warm-up that the run was begun with. Raises ValueError where its settings name none."""
        warmup = self.settings().get("warmup")
        if type(warmup) is not int or warmup < 1:
            raise ValueError(f"{self.path / SETTINGS}: warmup must be a number of updates, not {warmup!r}")
        return warmup

    def select_checkpoints(self, count: int, of: str, off_schedule: bool = False) -> list[Path]:
        """`count` checkpoints: of "last" the newest, of "best" those with the lowest validation losses.

        With `off_schedule`, one saved only because the run stopped there counts too, if it is the newest.
        """
        found = {}
        for folder in self.checkpoints():
            with self.reading(folder):
                found[folder] = read_progress(folder)
        counted = [f for f in found if not found[f].off_schedule or (off_schedule and f == self.newest())]
        if of == "best":
            losses = {f: loss for f in counted if (loss := found[f].validation_loss) is not None}
            counted = sorted(losses, key=losses.__getitem__, reverse=True)
        return counted[-count:]

    def check_empty(self) -> None:
        """Raise ValueError where the folder already holds a run, a model, or files of the user's."""
        if self.checkpoints() or (self.path / CONFIG).exists():
            raise ValueError(
                f"{self.path} already holds a run or a model; resume the run, or choose another folder"
            )
        self.check_ours()

    def check_ours(self) -> None:
        """Raise ValueError where the folder holds no run, but files that one would replace or mix with."""
        if not (self.path / LOCK).exists() and not self.checkpoints():
            files = sorted(path.name for path in self.path.glob("[!.]*"))
            if files:
                raise ValueError(f"{self.path} holds {files[0]}, but no run; choose a new or an empty folder")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from the run, until this one ends, however it does.

        Raises ValueError where one is at work on it, and as `check_ours` does.
        """
        self.check_ours()
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            held = FileLock(self.path / LOCK).acquire(timeout=0)
        except Timeout:
            busy = f"another process trains in {self.path}; wait for it, or choose another folder"
            raise ValueError(busy) from None
        with held:
            yield

    @contextmanager
    def reading(self, checkpoint: Path) -> Iterator[None]:
        """Let an error over a checkpoint's files say how the run goes on without it."""
        try:
            yield
        except (ValueError, FileNotFoundError) as error:
            others = [folder for folder in self.checkpoints() if folder != checkpoint]
            way_out = "there is no other checkpoint"
            if others:
                way_out = f"delete the folder {checkpoint}, and the run goes on from {others[-1].name}"
            raise ValueError(f"{error}; {way_out}") from None

    def check_goes_on(
        self, settings: dict[str, object], mine: Progress, found: Progress, processes: int
    ) -> int:
        """Raise ValueError where the run cannot go on exactly with these settings, text and processes.

        `mine` tells the text and the batches of an update as they would be now, `found` as the checkpoint has
        them. Returns how many of those batches a process takes.
        """
        size, same_text = found.update_batches, mine.text and mine.text == found.text
        free = {*CHANGEABLE, *(PLACES if same_text else ())}
        if mine.update_batches == size:
            free.add("accumulate")
        # A run of an older version does not name all settings: it had the defaults of the others.
        defaults = {field.name: field.default for field in dataclasses.fields(TrainingConfig)}
        for name, value in {**defaults, **self.settings()}.items():
            if name in settings and name not in free and settings[name] != value:
                raise ValueError(
                    f"{self.path} was begun with {name} = {value!r}, not {settings[name]!r}; a resumed run "
                    f"keeps its settings, but for {', '.join(CHANGEABLE)}"
                )
        if found.text not in ("", mine.text):
            raise ValueError(
                f"{self.path} was begun with other text to train or validate on; resume it with that, or "
                f"begin another run with --init-from {self.path}"
            )
        if size % processes:
            counts = ", ".join(str(n) for n in range(1, size + 1) if size % n == 0)
            raise ValueError(
                f"{self.path}: an update is made of {size} batches, which {processes} processes cannot "
                f"share evenly; resume it with as many processes as one of {counts}"
            )
        return size // processes

    def open(self, settings: dict[str, object], progress: Progress) -> None:
        """Get ready to go on from `progress`: undo what a killed process logged later or left half done."""
        (self.path / "checkpoints").mkdir(parents=True, exist_ok=True)
        with (self.path / LOG).open("ab") as log:
            log.truncate(min(progress.log_bytes, log.tell()))
        for folder in (self.path, self.path / "checkpoints"):
            remove_partials(folder)
        write_json(self.path / SETTINGS, settings)
        if settings["tensorboard"]:
            self.board = tensorboard_writer(self.path / "tensorboard", progress.step + 1)

    def close(self) -> None:
        """End the thread that writes for TensorBoard, if there is one."""
        if self.board is not None:
            self.board.close()
            self.board = None

    def save(
        self,
        model: EncoderDecoder,
        tokenizers: Sequence[Tokenizer],
        optimizer: Adam,
        progress: Progress,
        config: TrainingConfig,
    ) -> None:
        """Write a checkpoint, make its weights the run's, and drop those that `config` does not keep."""
        with creating_folder(self.path / "checkpoints" / f"step-{progress.step:08d}") as folder:
            write_tensors(folder / OPTIMIZER, optimizer_tensors(model, optimizer))
            write_json(folder / PROGRESS, dataclasses.asdict(progress))
            save_model(folder, model, *tokenizers)
        save_model(self.path, model, *tokenizers)
        self.drop(config)

    def note(self, progress: Progress, config: TrainingConfig) -> None:
        """Let the newest checkpoint know how it was validated, and drop what that makes superfluous."""
        write_json(self.checkpoints()[-1] / PROGRESS, dataclasses.asdict(progress))
        self.drop(config)

    def drop(self, config: TrainingConfig) -> None:
        """Remove all checkpoints but the newest and those that `config` keeps."""
        kept = {self.newest(), *self.select_checkpoints(config.keep, config.average_of)}
        for old in self.checkpoints():
            if old not in kept:
                remove_folder(old)

    def log(self, record: dict[str, float], progress: Progress) -> None:
        """Add a line to the log, and to TensorBoard's if asked for; `progress` learns the new length."""
        p = progress
        line = {"step": p.step, "epoch": p.current_epoch, **record, "seconds": round(p.seconds, 3)}
        with naming(self.path / LOG), (self.path / LOG).open("ab") as file:
            file.write((json.dumps(line) + "\n").encode())
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
        raise ImportError('TensorBoard is missing: pip install ".[dev]" in the clone') from None
    return SummaryWriter(folder, purge_step=first_step)


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
    wanted: dict[str, Tensor] = {}
    for name, parameter in own.items():
        moments = {f"{name}.exp_avg": parameter, f"{name}.exp_avg_sq": parameter}
        wanted |= {f"{name}.step": torch.zeros(()), **moments}
    check_tensors(tensors, wanted.items(), path)
    for name, tensor in tensors.items():
        whose, _, part = name.rpartition(".")
        optimizer.state[own[whose]][part] = tensor.to(own[whose].device, copy=True)


# ---- the mean of checkpoints


def meaning(folder: Path) -> tuple[TransformerConfig, list[dict[str, Any]]]:
    """What the weights in a folder mean: the settings, and what the tokenizers' files say."""
    config, names = read_config(folder)
    return config, [read_json(folder / f"{name}.json") for name in names.values()]


def average_checkpoints(folders: Sequence[str | Path]) -> dict[str, Tensor]:
    """The arithmetic mean of the weights in several model folders (section 6.1), in their own dtype.

    Raises ValueError for no folders, and naming the folder where tensors, settings or tokenizers differ.
    """
    if not folders:
        raise ValueError("there are no checkpoints to average")
    first = read_tensors(Path(folders[0]) / WEIGHTS)
    total = {name: tensor.double() for name, tensor in first.items()}  # float64: their order does not show
    for folder in folders[1:]:
        tensors = read_tensors(Path(folder) / WEIGHTS)
        for name in [*first, *tensors]:
            here, there = (tuple(t[name].shape) if name in t else None for t in (tensors, first))
            if here != there:
                raise ValueError(f"{folder}: tensor {name} has shape {here}, but {there} in {folders[0]}")
        if meaning(Path(folder)) != meaning(Path(folders[0])):
            raise ValueError(f"{folder} and {folders[0]} are two models: their settings or tokenizers differ")
        for name, tensor in tensors.items():
            total[name] += tensor
    return {name: (tensor / len(folders)).to(first[name].dtype) for name, tensor in total.items()}
