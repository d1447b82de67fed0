"""The end of a run: the mean of its last or best checkpoints, where that is better than one of them."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from annotated.transformer.model import EncoderDecoder
from annotated.translation.messages import print_message
from annotated.translation.processes import broadcast, is_first, raise_on_all_ranks
from annotated.translation.storage.model_folder import write_model
from annotated.translation.tokenizers import Tokenizer
from annotated.translation.training.checkpoint import average_checkpoints, broadcast_state
from annotated.translation.training.config import TrainingConfig
from annotated.translation.training.progress import is_better
from annotated.translation.training.run_folder import RunFolder
from annotated.translation.training.validation import Validation


def save_average(
    run_folder: RunFolder,
    model: EncoderDecoder,
    tokenizers: Sequence[Tokenizer],
    validation: Validation | None,
    config: TrainingConfig,
) -> None:
    """Save the mean of the checkpoints that the settings name, unless the newest or best is better."""
    folders: list[Path] = []
    with raise_on_all_ranks():
        if is_first():
            count = max(1, config.average)
            folders = run_folder.select_checkpoints(count, dataclasses.asdict(config), off_schedule=True)
            folders = folders or run_folder.checkpoints()[-1:]
    folders = broadcast(folders)
    if validation is None or len(folders) == 1:
        load_mean(model, folders)
    else:
        load_better(model, folders, validation, config)
    if is_first():
        write_model(run_folder.path, model, *tokenizers)


def load_better(
    model: EncoderDecoder, folders: Sequence[Path], validation: Validation, config: TrainingConfig
) -> None:
    """Load the mean of checkpoints, or the last of these, whichever validates better."""
    load_mean(model, folders[-1:])
    of_single = validation.metric_value(model)
    load_mean(model, folders)
    of_mean = validation.metric_value(model)
    mean = f"the mean of the {config.average_of} {len(folders)} checkpoints"
    single = f"the {'newest' if config.average_of == 'last' else 'best'} checkpoint"
    print_message(f"validation {config.metric} {of_mean:.4f} of {mean}, {of_single:.4f} of {single}")
    takes_mean = of_mean == of_single or is_better(of_mean, of_single, config.metric)
    if not takes_mean:
        load_mean(model, folders[-1:])
    print_message(f"the model is {mean if takes_mean else single}")


def load_mean(model: EncoderDecoder, folders: Sequence[Path]) -> None:
    """Load the mean of checkpoints, which the first process reads, in all processes."""
    with raise_on_all_ranks():
        if is_first():
            model.load_state_dict(average_checkpoints(folders))
    broadcast_state(model)
