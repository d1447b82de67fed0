"""The folder of a training run, which survives being killed at any moment.

It is a model folder (the newest weights, or their average at the end) that also holds

    training.json                settings of the run, as `--config` takes them
    log.jsonl                    a line each `log_every` updates and each validation, with the epoch from 1,
                                 in nats a target token: "loss" is the training loss, with label smoothing
                                 and R-Drop, "validation_loss" the cross-entropy without smoothing
    checkpoints/step-00001234/   a model folder with the optimizer's state, the settings and `Progress`
    run.lock                     empty; held by the process that trains
"""

import dataclasses
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from shlex import quote
from typing import Any

from filelock import FileLock
from torch.optim import Adam

from annotated.transformer.model import EncoderDecoder
from annotated.translation import files
from annotated.translation.processes import is_first, raise_on_all_ranks
from annotated.translation.storage.model_folder import CONFIG, SETTINGS, WEIGHTS
from annotated.translation.tokenizers import Tokenizer
from annotated.translation.training.checkpoint import check_checkpoint, write_checkpoint
from annotated.translation.training.progress import PROGRESS, Progress, lower_is_better

LOG, LOCK_FILE = "log.jsonl", "run.lock"


class RunFolder:
    """A run on disk. Of several processes, only the first reads and writes it."""

    def __init__(self, path: str | Path):
        self.path = Path(path).expanduser().absolute()

    @contextmanager
    def open(self, resume: bool) -> Iterator[None]:
        """Check the folder, and keep other processes from it while the block runs.

        Raises ValueError where a run would mix with other files or replace something, or its newest
        checkpoint is damaged; TimeoutError where another process trains in the folder.
        """
        new = not self.path.exists()
        with ExitStack() as stack:
            with raise_on_all_ranks():
                if is_first():
                    self.check(resume)  # before anything is written
                    stack.enter_context(self.locked())
                    stack.callback(self.remove_if_unused, new)
                    self.check(resume)  # another process may have trained there meanwhile
                    self.check_checkpoints()
            yield

    def locked(self) -> AbstractContextManager[object]:
        """Keep other processes from the run during a block. Raises TimeoutError where one trains in it."""
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            return FileLock(self.path / LOCK_FILE).acquire(timeout=0)
        except TimeoutError:
            raise TimeoutError(f"another process trains in {self.path}; wait, or choose another") from None

    def remove_if_unused(self, new: bool) -> None:
        """Delete a `new` folder in which there is the lock alone, as where a run was refused."""
        if new and [*self.path.glob("*")] == [self.path / LOCK_FILE]:
            shutil.rmtree(self.path, ignore_errors=True)

    def check(self, resume: bool) -> None:
        """Raise ValueError where a run cannot begin in the folder, or with `resume` cannot go on."""
        if self.path.is_file():
            raise ValueError(f"{self.path} is a file; choose a new or an empty folder")
        checkpoints = self.checkpoints()
        holds_model = (self.path / CONFIG).exists()
        names = sorted(path.name for path in self.path.glob("[!.]*"))
        if names and not (checkpoints or holds_model or LOCK_FILE in names):
            raise ValueError(f"{self.path} holds {names[0]}, but no run; choose a new or an empty folder")
        if resume and holds_model and not checkpoints:
            advice = f"to train it, begin a run with --init-from {quote(str(self.path))}, in Python init_from"
            raise ValueError(f"{self.path} holds a model, but no checkpoint to go on from; {advice}")
        if not resume and (checkpoints or holds_model):
            advice = "go on with it by --resume, in Python resume=True, or name another folder"
            raise ValueError(f"{self.path} already holds a run or a model; {advice}")
        if self.path.parent.name == "checkpoints" and (self.path.parent.parent / SETTINGS).exists():
            raise ValueError(f"{self.path} is among another run's checkpoints; choose a folder elsewhere")

    def check_checkpoints(self) -> None:
        """Raise ValueError where a checkpoint cannot be read, or the newest is damaged."""
        for checkpoint in self.checkpoints():
            try:
                Progress.load(checkpoint)
                if checkpoint == self.newest():
                    check_checkpoint(checkpoint)
            except (ValueError, FileNotFoundError) as error:
                raise ValueError(f"{error}; delete the folder {checkpoint} to go on without it") from None

    # ---- read

    def checkpoints(self) -> list[Path]:
        """List the whole checkpoints, oldest first: folders of exactly that name."""
        folders = (self.path / "checkpoints").glob("step-" + 8 * "[0-9]")
        return sorted(folder for folder in folders if folder.is_dir())

    def newest(self) -> Path | None:
        """Return the newest whole checkpoint, if there is one."""
        return next(reversed(self.checkpoints()), None)

    def select_checkpoints(
        self, count: int, settings: Mapping[str, Any], off_schedule: bool = False
    ) -> list[Path]:
        """Select `count` checkpoints: the newest, or if the settings say so the best, the best last.

        With `off_schedule`, one saved only because the run stopped there counts too, if it is the newest.
        """
        progress = {folder: Progress.load(folder) for folder in self.checkpoints()}
        newest = self.newest() if off_schedule else None
        chosen = {f: p for f, p in progress.items() if not p.off_schedule or f == newest}
        if settings["average_of"] == "last":
            return list(chosen)[-count:]
        metric = settings["metric"]
        scores = {f: p.score for f, p in chosen.items() if p.metric == metric and p.score is not None}
        return sorted(scores, key=scores.__getitem__, reverse=lower_is_better(metric))[-count:]

    # ---- write

    def prepare(self, settings: Mapping[str, object], progress: Progress) -> None:
        """Prepare to go on from `progress`: remove what a killed process logged later or left half done."""
        (self.path / "checkpoints").mkdir(parents=True, exist_ok=True)
        for folder in (self.path, self.path / "checkpoints"):
            files.remove_partials(folder)
        self.trim_log(progress)
        files.write_json(self.path / SETTINGS, settings)

    def trim_log(self, progress: Progress) -> None:
        """Drop the lines that were logged after `progress`, and a line that was cut off."""

        def is_older(line: bytes) -> bool:
            record = json.loads(line)
            validated = progress.validation_loss is not None or "validation_loss" not in record
            return record["step"] < progress.step or (record["step"] == progress.step and validated)

        log = self.path / LOG
        lines = log.read_bytes().splitlines(keepends=True) if log.exists() else []
        kept = [line for line in lines if line.endswith(b"\n") and is_older(line)]
        if kept != lines:
            with files.replacing(log) as partial:
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
        if not (self.path / SETTINGS).exists():
            raise FileNotFoundError(f"{self.path / SETTINGS} was removed while the run went on")
        checkpoint = self.path / "checkpoints" / f"step-{progress.step:08d}"
        with files.creating_folder(checkpoint) as folder:
            write_checkpoint(folder, model, tokenizers, optimizer, progress, settings)
        for name in (CONFIG, *(path.name for path in checkpoint.glob("*tokenizer.*")), WEIGHTS):
            with files.replacing(self.path / name) as partial:
                shutil.copyfile(checkpoint / name, partial)
        self.prune(settings)

    def record_validation(self, progress: Progress, settings: Mapping[str, Any]) -> None:
        """Write the validation loss into the newest checkpoint, and remove the checkpoints not to be kept."""
        files.write_json(self.checkpoints()[-1] / PROGRESS, dataclasses.asdict(progress))
        self.prune(settings)

    def prune(self, settings: Mapping[str, Any]) -> None:
        """Remove all checkpoints but the newest and those that the settings keep, or average at the end."""
        count = max(settings["keep"], settings["average"])
        kept = {self.newest(), *self.select_checkpoints(count, settings)}
        for checkpoint in self.checkpoints():
            if checkpoint not in kept:
                files.remove_folder(checkpoint)

    def log(self, record: dict[str, float], progress: Progress) -> None:
        """Append a line to the log."""
        line = {"step": progress.step, "epoch": progress.current_epoch, **record}
        line |= {"tokens": progress.total_tokens, "seconds": round(progress.seconds, 3)}
        with (self.path / LOG).open("a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
