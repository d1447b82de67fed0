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
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock
from torch.optim import Adam

from annotated.files import creating_folder, read_json, remove_folder, remove_partials, replacing, write_json
from annotated.tokenizers import Tokenizer
from annotated.training.checkpoint import PROGRESS, Progress, check_whole, save_checkpoint
from annotated.training.config import CHANGEABLE, TrainingConfig
from annotated.training.distributed import is_first, raise_on_all_ranks
from annotated.transformer.model import EncoderDecoder
from annotated.translation.model_folder import CONFIG, SETTINGS, save_model

LOG, LOCK = "log.jsonl", "run.lock"

# Settings that say where the text is. A resumed run must have the same text, wherever that is.
PLACES = ("path", "src", "tgt", "val_src", "val_tgt", "columns")


class RunFolder:
    """A run on disk. Of several processes, only the first reads and writes it."""

    def __init__(self, path: str | Path):
        self.path = Path(path).expanduser().absolute()
        self.board: Any = None

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r}, {len(self.checkpoints())} checkpoints)"

    # ---- check, open

    @contextmanager
    def open(self, resume: bool) -> Iterator[None]:
        """Check the folder, and lock it while the block runs. Raises as `check` and `locked` do."""
        with ExitStack() as stack:
            with raise_on_all_ranks():
                if is_first():
                    self.check(resume)
                    stack.enter_context(self.locked())
            stack.callback(self.close)
            yield

    def close(self) -> None:
        """Close the log for TensorBoard."""
        if self.board is not None:
            self.board.close()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from the run. Raises Timeout, an OSError, where one trains in the folder."""
        self.path.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path / LOCK, timeout=0):
            yield

    def check(self, resume: bool) -> None:
        """Raise ValueError where a run would mix with other files or replace something, or is damaged."""
        checkpoints = self.checkpoints()
        holds_model = (self.path / CONFIG).exists()
        files = sorted(path.name for path in self.path.glob("[!.]*"))
        if files and not (checkpoints or holds_model or LOCK in files):
            raise ValueError(f"{self.path} holds {files[0]}, but no run; choose a new or an empty folder")
        if resume and holds_model and not checkpoints:
            raise ValueError(
                f"{self.path} holds a model, but no checkpoint to go on from; to train it further, begin "
                f"another run with --init-from {self.path}"
            )
        if not resume and (checkpoints or holds_model):
            raise ValueError(f"{self.path} already holds a run or a model; resume it, or choose another")
        for checkpoint in checkpoints:
            try:
                read_json(checkpoint / PROGRESS)
                if checkpoint == checkpoints[-1]:
                    check_whole(checkpoint)
            except (ValueError, FileNotFoundError) as error:
                hint = "there is no other checkpoint"
                if others := [folder.name for folder in checkpoints if folder != checkpoint]:
                    hint = f"delete the folder {checkpoint}, and the run goes on from {others[-1]}"
                raise ValueError(f"{error}; {hint}") from None

    def check_resumable(
        self, checkpoint: Path, settings: Mapping[str, object], text: str, update_batches: int, world: int
    ) -> int:
        """Raise ValueError where the run would not go on exactly with these settings, text and processes.

        Returns the number of batches that each process takes of an update.
        """
        progress = Progress.load(checkpoint)
        size, free = progress.update_batches, {*CHANGEABLE, "notes"}
        other = f"to change that, begin another run with --init-from {self.path}"
        if text and text == progress.text:
            free.update(PLACES)
        if update_batches == size:
            free.add("accumulate")
        # A run of an older version does not name all settings: it had the defaults of the others.
        defaults = {field.name: field.default for field in dataclasses.fields(TrainingConfig)}
        for name, value in {**defaults, **self.settings(checkpoint)}.items():
            new = settings.get(name, value)
            same = new == value or (name == "init_from" and same_folder(new, value))
            if not same and name not in free:
                raise ValueError(f"{self.path} was begun with {name} = {value!r}, not {new!r}; {other}")
        if progress.text not in ("", text):
            raise ValueError(f"{self.path} was begun with other text to train or validate on; {other}")
        if size % world:
            raise ValueError(f"{self.path}: {world} processes cannot share the {size} batches of an update")
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
            if not line.endswith(b"\n"):
                return False
            try:
                record = json.loads(line)
                step = record["step"]
            except (ValueError, KeyError, TypeError):
                return True  # somebody's note
            validated = progress.validation_loss is not None or "validation_loss" not in record
            return step < progress.step or (step == progress.step and validated)

        log = self.path / LOG
        lines = log.read_bytes().splitlines(keepends=True) if log.exists() else []
        if not all(map(is_older, lines)):
            with replacing(log) as partial:
                partial.write_bytes(b"".join(line for line in lines if is_older(line)))

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
    """Return whether two paths, if there are two, lead to one folder."""
    return None not in (one, other) and Path(str(one)).resolve() == Path(str(other)).resolve()
