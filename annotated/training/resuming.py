"""What it takes to go on with a run: the same settings and text, and one state in all processes."""

import torch
from torch import distributed as dist

from annotated.training.config import TrainingConfig
from annotated.training.devices import agreed, from_first
from annotated.training.progress import Progress
from annotated.training.run_folder import PLACES, RunFolder, optimizer_tensors
from annotated.training.update import Updater
from annotated.translation.model_folder import weights


def check_run(
    out: RunFolder, settings: dict[str, object], mine: Progress, found: Progress, world: int
) -> int:
    """Raise ValueError where a run cannot go on exactly with these settings, text and processes.

    `mine` tells the text and the batches of an update as this run would have them, `found` as the checkpoint
    has them. Returns how many of those batches a process takes.
    """
    text, size = mine.text, found.update_batches
    free = PLACES if text and text == found.text else ()
    if mine.update_batches == size:
        free = (*free, "accumulate")
    out.check_settings({name: value for name, value in settings.items() if name not in free})
    if found.text not in ("", text):
        raise ValueError(
            f"{out.path} was begun with other text to train or validate on; resume it with that, or "
            f"begin another run with --init-from {out.path}"
        )
    if size % world:
        counts = ", ".join(str(n) for n in range(1, size + 1) if size % n == 0)
        raise ValueError(
            f"{out.path}: an update is made of {size} batches, which {world} processes cannot "
            f"share evenly; resume it with as many processes as one of {counts}"
        )
    return size // world


def share_state(
    updater: Updater, config: TrainingConfig, progress: Progress
) -> tuple[TrainingConfig, Progress]:
    """Give the first process's state to all, so that only that one needs to see the run's folder.

    Returns its settings and progress; weights and optimizer are changed in place. Raises SharedError where a
    process has another text.
    """
    if updater.world == 1:
        return config, progress
    text = progress.text
    config, progress = from_first((config, progress))
    with agreed("; copy the text of the first node"):
        if progress.text != text:
            raise ValueError("the training or validation text is another than on the first node")
    model, optimizer = updater.model, updater.optimizer
    if progress.step and updater.rank:
        for parameter in model.parameters():
            moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            optimizer.state[parameter] = {"step": torch.zeros((), device=updater.device), **moments}
    state = weights(model) | optimizer_tensors(model, optimizer)
    for name in sorted(state):
        dist.broadcast(state[name].detach(), 0)
    return config, progress
