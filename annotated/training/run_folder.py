"""The folder of a training run, which survives being killed at any moment.

It is a model folder (the newest weights, or their average at the end) that also holds

    training.json                settings of the run, as `--config` takes them
    log.jsonl                    a line each `log_every` updates and each validation, with the epoch from 1
                                 (from 0 in older runs, but for validation), in nats a target token: "loss" is
                                 the training loss, with label smoothing and R-Drop, "validation_loss" the
                                 cross-entropy without smoothing
    checkpoints/step-00001234/   a model folder with the optimizer's state, the settings and `Progress`
    tensorboard/                 the log for TensorBoard, if asked for
    run.lock                     empty; held by the process that trains
"""

import dataclasses
import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock
from torch.optim import Adam

from annotated.files import creating_folder, read_json, remove_folder, remove_partials, replacing, write_json
from annotated.tokenizers import Tokenizer
from annotated.training.checkpoint import PROGRESS, Progress, check_whole, save_checkpoint
from annotated.training.config import CHANGEABLE, TrainingConfig
from annotated.training.distributed import is_first, raise_on_all_ranks, say
from annotated.transformer.model import EncoderDecoder
from annotated.translation.model_folder import CONFIG, SETTINGS, save_model

LOG, LOCK = "log.jsonl", "run.lock"

# Settings that say where the text is. A resumed run must have the same text, wherever that is.
PLACES = ("path", "src", "tgt", "val_src", "val_tgt", "columns")


class RunFolder:
    """A run on disk. Of several processes, only the first reads and writes it."""

    def __init__(self, path: str | Path):
        self.path = Path(path).expanduser().absolute()
        self.lock = FileLock(self.path / LOCK)
        self.board: Any = None
        self.is_open = False

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r}, {len(self.checkpoints())} checkpoints)"

    # ---- open, check

    @contextmanager
    def open(self, resume: bool) -> Iterator[None]:
        """Lock the folder while the block runs; a new folder to which nothing is written is removed again.

        Raises ValueError where it holds a run that is not to be resumed, a model, other files or a damaged
        checkpoint, and Timeout, an OSError, where another process trains in it.
        """
        if self.is_open:  # by annotated.train, for the Trainer
            yield
            return
        with ExitStack() as stack:
            with raise_on_all_ranks():
                if is_first():
                    existed = self.path.exists()
                    stack.enter_context(self.locked())
                    stack.callback(self._close, existed)
                    self._check_contents(resume)
            self.is_open = True
            stack.callback(setattr, self, "is_open", False)
            yield

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from the run. Raises ValueError where the folder holds files, but no run."""
        files = sorted(path.name for path in self.path.glob("[!.]*"))
        if files and LOCK not in files and CONFIG not in files and not self.checkpoints():
            raise ValueError(f"{self.path} holds {files[0]}, but no run; choose a new or an empty folder")
        self.path.mkdir(parents=True, exist_ok=True)
        with self.lock.acquire(timeout=0):
            yield

    def _close(self, existed: bool) -> None:
        if self.board is not None:
            self.board.close()
            self.board = None
        if not existed and [path.name for path in self.path.iterdir()] == [LOCK]:
            with suppress(OSError):
                (self.path / LOCK).unlink()
                self.path.rmdir()

    def _check_contents(self, resume: bool) -> None:
        """Raise ValueError where a new run would replace something, or a checkpoint is damaged."""
        if not resume or not self.checkpoints():
            if self.checkpoints() or (self.path / CONFIG).exists():
                raise ValueError(
                    f"{self.path} already holds a run or a model; resume the run, or choose another folder"
                )
            if resume:
                say(f"there is no checkpoint in {self.path}: a new run begins")
            return
        for checkpoint in self.checkpoints():
            try:
                read_json(checkpoint / PROGRESS)
                if checkpoint == self.newest():
                    check_whole(checkpoint)
            except (ValueError, FileNotFoundError) as error:
                others = [folder.name for folder in self.checkpoints() if folder != checkpoint]
                hint = "there is no other checkpoint"
                if others:
                    hint = f"delete the folder {checkpoint}, and the run goes on from {others[-1]}"
                raise ValueError(f"{error}; {hint}") from None

    def check_resumable(
        self, checkpoint: Path, settings: Mapping[str, object], text: str, update_batches: int, world: int
    ) -> int:
        """Raise ValueError where the run would not go on exactly with these settings, text and processes.

        Returns the number of batches that each process takes of an update.
        """
        progress = Progress.load(checkpoint)
        size, same_text = progress.update_batches, text and text == progress.text
        free = {*CHANGEABLE, "notes", *(PLACES if same_text else ())}
        if update_batches == size:
            free.add("accumulate")
        # A run of an older version does not name all settings: it had the defaults of the others.
        defaults = {field.name: field.default for field in dataclasses.fields(TrainingConfig)}
        for name, value in {**defaults, **self.settings(checkpoint)}.items():
            equal = same_folder if name == "init_from" else (lambda a, b: a == b)
            if name in settings and name not in free and not equal(settings[name], value):
                raise ValueError(
                    f"{self.path} was begun with {name} = {value!r}, not {settings[name]!r}; a resumed run "
                    f"keeps its settings, except {', '.join(CHANGEABLE)}; to change others, begin another "
                    f"run with --init-from {self.path}"
                )
        if progress.text not in ("", text):
            raise ValueError(
                f"{self.path} was begun with other text to train or validate on; resume it with that, or "
                f"begin another run with --init-from {self.path}"
            )
        if size % world:
            counts = ", ".join(str(n) for n in range(1, size + 1) if size % n == 0)
            raise ValueError(
                f"{self.path}: {world} processes cannot share the {size} batches of an update evenly; "
                f"resume it with one of {counts} processes"
            )
        return size // world

    def check_space(self, model: EncoderDecoder, keep: int) -> None:
        """Raise OSError where the disk has no room for the checkpoints that the run will keep."""
        model_size = sum(tensor.nbytes for tensor in [*model.parameters(), *model.buffers()])
        count = max(1, keep + 2 - len(self.checkpoints()))  # with the newest, and one that is being written
        needed, free = 3 * model_size * count, shutil.disk_usage(self.path).free
        if needed > free:
            sizes = f"{needed / 1e9:.1f} GB for {count} checkpoints, {free / 1e9:.1f} GB are free"
            raise OSError(errno.ENOSPC, f"not enough space: {sizes}; see --keep", str(self.path))

    # ---- read

    def checkpoints(self) -> list[Path]:
        """List the whole checkpoints, oldest first: folders of exactly that name."""
        folders = (self.path / "checkpoints").glob("step-" + 8 * "[0-9]")
        return sorted(folder for folder in folders if folder.is_dir())

    def newest(self) -> Path | None:
        """Return the newest whole checkpoint, if there is one."""
        return next(reversed(self.checkpoints()), None)

    def settings(self, checkpoint: Path | None = None) -> dict[str, Any]:
        """Read the settings of the run, as a checkpoint has them (those of 0.2.0 have none) or as edited."""
        path = self.path / SETTINGS
        return read_json(checkpoint / SETTINGS if checkpoint and (checkpoint / SETTINGS).exists() else path)

    def select_checkpoints(self, count: int, of: str, off_schedule: bool = False) -> list[Path]:
        """Select `count` checkpoints: the newest for "last", those of lowest validation loss for "best".

        With `off_schedule`, one saved only because the run stopped there counts too, if it is the newest.
        """
        progress = {folder: Progress.load(folder) for folder in self.checkpoints()}
        newest = self.newest() if off_schedule else None
        chosen = [f for f, p in progress.items() if not p.off_schedule or f == newest]
        if of == "best":
            losses = {f: loss for f in chosen if (loss := progress[f].validation_loss) is not None}
            chosen = sorted(losses, key=losses.__getitem__, reverse=True)
        return chosen[-count:]

    # ---- write

    def start(self, settings: Mapping[str, object], progress: Progress) -> None:
        """Prepare to go on from `progress`: remove what a killed process logged later or left half done."""
        (self.path / "checkpoints").mkdir(parents=True, exist_ok=True)
        for folder in (self.path, self.path / "checkpoints"):
            remove_partials(folder)
        self._trim_log(progress)
        write_json(self.path / SETTINGS, settings)
        if settings["tensorboard"]:
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(self.path / "tensorboard", purge_step=progress.step + 1)

    def _trim_log(self, progress: Progress) -> None:
        """Drop the lines that were logged after `progress`, and a line that was cut off."""

        def is_older(line: bytes) -> bool:
            try:
                record = json.loads(line)
                step = record["step"]
            except (ValueError, KeyError, TypeError):
                return line.endswith(b"\n")  # somebody's note
            validated = progress.validation_loss is not None or "validation_loss" not in record
            return step < progress.step or (step == progress.step and validated)

        lines = (self.path / LOG).read_bytes().split(b"\n") if (self.path / LOG).exists() else []
        whole = [line + b"\n" for line in lines[:-1]]
        kept = [line for line in whole if is_older(line)]
        if kept != whole or lines[-1:] != [b""]:
            with replacing(self.path / LOG) as partial:
                partial.write_bytes(b"".join(kept))

    def save(
        self,
        model: EncoderDecoder,
        tokenizers: Sequence[Tokenizer],
        optimizer: Adam,
        progress: Progress,
        settings: Mapping[str, Any],
    ) -> None:
        """Write a checkpoint, make its weights the run's, and remove the checkpoints not to be kept."""
        with creating_folder(self.path / "checkpoints" / f"step-{progress.step:08d}") as folder:
            save_checkpoint(folder, model, tokenizers, optimizer, progress)
            write_json(folder / SETTINGS, settings)
        save_model(self.path, model, *tokenizers)
        self.prune(settings)

    def record_validation(self, progress: Progress, settings: Mapping[str, Any]) -> None:
        """Write the validation loss into the newest checkpoint, and remove the checkpoints not to be kept."""
        write_json(self.checkpoints()[-1] / PROGRESS, dataclasses.asdict(progress))
        self.prune(settings)

    def prune(self, settings: Mapping[str, Any]) -> None:
        """Remove all checkpoints but the newest and those that the settings keep."""
        kept = {self.newest(), *self.select_checkpoints(settings["keep"], settings["average_of"])}
        for checkpoint in self.checkpoints():
            if checkpoint not in kept:
                remove_folder(checkpoint)

    def log(self, record: dict[str, float], progress: Progress) -> None:
        """Append a line to the log, and to TensorBoard's if asked for."""
        p = progress
        line = {"step": p.step, "epoch": p.current_epoch, **record, "seconds": round(p.seconds, 3)}
        with (self.path / LOG).open("a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if self.board is not None:
            for name, value in record.items():
                self.board.add_scalar(name, value, p.step)
            self.board.flush()


def same_folder(one: object, other: object) -> bool:
    """Return whether two names of models mean one folder, or are equal."""
    return one == other or (
        None not in (one, other) and Path(str(one)).resolve() == Path(str(other)).resolve()
    )
