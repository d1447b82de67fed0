"""Checkpoints: model folders that also hold the optimizer's state and the position of the run.

`write_checkpoint` writes one; `restore` goes on from it, exactly as if the run had not stopped.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import torch
from torch import Tensor, distributed as dist
from torch.optim import Adam

from annotated.transformer.model import EncoderDecoder
from annotated.translation.files import read_json, sha256, write_json
from annotated.translation.messages import print_message
from annotated.translation.processes import broadcast
from annotated.translation.storage import model_folder, tensor_files
from annotated.translation.storage.model_folder import CONFIG, SETTINGS, WEIGHTS
from annotated.translation.tokenizers import Tokenizer
from annotated.translation.training.config import CHANGEABLE, PATHS
from annotated.translation.training.progress import PROGRESS, Progress

OPTIMIZER = "optimizer.safetensors"


def write_checkpoint(
    folder: Path,
    model: EncoderDecoder,
    tokenizers: Sequence[Tokenizer],
    optimizer: Adam,
    progress: Progress,
    settings: Mapping[str, Any],
) -> None:
    """Write all that a run needs to go on exactly from here."""
    model_folder.write_model(folder, model, *tokenizers)
    sums = {WEIGHTS: sha256(folder / WEIGHTS)}  # to know the weights that the optimizer belongs to
    tensor_files.write_tensors(folder / OPTIMIZER, optimizer_tensors(model, optimizer), sums)
    write_json(folder / PROGRESS, dataclasses.asdict(progress))
    write_json(folder / SETTINGS, settings)


def optimizer_tensors(model: EncoderDecoder, optimizer: Adam) -> dict[str, Tensor]:
    """Return Adam's step and moments by parameter name; a parameter without gradients has none."""
    return {
        f"{name}.{part}": value
        for name, parameter in model.named_parameters()
        for part, value in optimizer.state.get(parameter, {}).items()
    }


# ---- resume


def check_checkpoint(checkpoint: Path) -> None:
    """Raise ValueError or FileNotFoundError where files of a checkpoint are damaged or of another step."""
    for path in (checkpoint / CONFIG, *sorted(checkpoint.glob("*.json"))):
        read_json(path)
    step = read_json(checkpoint / PROGRESS).get("step")
    tensor_files.read_tensors(checkpoint / WEIGHTS)
    tensors, sums = tensor_files.read_with_sums(checkpoint / OPTIMIZER)
    steps = [int(tensor) for name, tensor in tensors.items() if name.endswith(".step")]
    if sums.get(WEIGHTS) != sha256(checkpoint / WEIGHTS) or (steps and max(steps) != step):
        raise ValueError(f"{checkpoint}: {WEIGHTS}, {OPTIMIZER} and {PROGRESS} are not of one step")


def restore(
    checkpoint: Path,
    model: EncoderDecoder,
    optimizer: Adam,
    progress: Progress,
    settings: dict[str, Any],
    world: int,
) -> Progress:
    """Load a checkpoint into the model and its optimizer; returns its position.

    `progress` and `settings` are those of the run that would go on, in `world` processes; of the settings,
    `accumulate` is set so that an update keeps its size. Raises ValueError where the run would not go on
    exactly as it began.
    """
    saved = Progress.load(checkpoint)
    check_settings(checkpoint, saved, settings, progress)
    if saved.update_batches % world:
        raise ValueError(f"{world} processes cannot share the {saved.update_batches} batches of an update")
    share = saved.update_batches // world
    if settings["accumulate"] != share:
        settings["accumulate"] = share
        print_message(f"an update keeps its {saved.update_batches} batches: accumulate is now {share}")
    model_folder.load_weights(model, tensor_files.read_tensors(checkpoint / WEIGHTS), checkpoint / WEIGHTS)
    load_optimizer(optimizer, model, checkpoint)
    return dataclasses.replace(saved, fingerprint=progress.fingerprint)


def check_settings(
    checkpoint: Path, saved: Progress, settings: Mapping[str, object], progress: Progress
) -> None:
    """Raise ValueError where a run was begun with other settings, that decide its weights, or other text."""
    run = checkpoint.parents[1]
    saved_settings = model_folder.training_settings(checkpoint)
    start_from = f"to change that, begin another run with --init-from {quote(str(run))}, in Python init_from"
    start_anew = "for another, begin a new run"
    if saved_settings.get("init_from"):
        start_anew += ", without init_from"
    remedies = {
        "minutes": "to go on for longer, raise --max-steps, in Python max_steps",
        "init_from": "to start from that, begin another run, in a folder of its own",
    }
    remedies |= dict.fromkeys(("vocab", "tokenizer", "src_tokenizer", "tgt_tokenizer"), start_anew)
    changeable = {*CHANGEABLE, "lengths"}  # the text is compared, and the lengths follow from it
    if settings.get("average_of") == "best":
        changeable.discard("metric")  # the kept checkpoints have no scores by another one
    if not settings.get("warmup"):  # the first warm-up of the run is kept
        changeable.add("warmup")
    if saved.fingerprint:  # the text itself is compared, whatever its files are called
        changeable.update(PATHS, ["columns"])
    if progress.update_batches == saved.update_batches:
        changeable.add("accumulate")
    for name, value in saved_settings.items():
        requested = settings.get(name, value)
        if requested != value and name not in changeable:
            remedy = remedies.get(name, start_from)
            raise ValueError(f"{run} was begun with {name} = {value!r}, not {requested!r}; {remedy}")
    if saved.fingerprint not in ("", progress.fingerprint):
        raise ValueError(f"{run} was begun with other text to train or validate on; {start_from}")


def load_optimizer(optimizer: Adam, model: EncoderDecoder, checkpoint: Path) -> None:
    """Load Adam's step and moments."""
    parameters = dict(model.named_parameters())
    for name, tensor in tensor_files.read_tensors(checkpoint / OPTIMIZER).items():
        parameter_name, _, part = name.rpartition(".")
        parameter = parameters[parameter_name]
        optimizer.state[parameter][part] = tensor.to(parameter.device, copy=True)


def broadcast_state(model: EncoderDecoder, optimizer: Adam | None = None) -> None:
    """Copy the first process's weights, persistent buffers and optimizer state to all processes."""
    if not dist.is_initialized():
        return
    tensors = model_folder.named_state(model)  # without the sinusoids, which grow in each process
    if optimizer is not None:
        for name in broadcast(list(optimizer_tensors(model, optimizer))):
            parameter_name, _, part = name.rpartition(".")
            parameter = tensors[parameter_name]
            like = torch.zeros((), device=parameter.device) if part == "step" else parameter.detach()
            optimizer.state[parameter].setdefault(part, torch.zeros_like(like))
        tensors |= optimizer_tensors(model, optimizer)
    for name in sorted(tensors):
        dist.broadcast(tensors[name].detach(), 0)


# ---- the mean of checkpoints


def average_checkpoints(folders: Sequence[str | Path]) -> dict[str, Tensor]:
    """Compute the arithmetic mean of the weights in several model folders (section 6.1), in their own dtype.

        model.load_state_dict(average_checkpoints(folders))

    A matrix that is tied stands in it under each of its names. Raises ValueError for no folders, and for
    folders whose tensors, settings or tokenizers differ.
    """
    if not folders:
        raise ValueError("there are no checkpoints to average")
    paths = [Path(folder).expanduser() for folder in folders]
    first = tensor_files.read_tensors(paths[0] / WEIGHTS)
    files = model_files(paths[0])
    total = {name: tensor.double() for name, tensor in first.items()}  # float64 hides the addition order
    for path in paths[1:]:
        tensors = tensor_files.read_tensors(path / WEIGHTS)
        tensor_files.check_tensors(tensors, first, path)
        if model_files(path) != files:
            raise ValueError(f"{path} and {paths[0]} are two models: their settings or tokenizers differ")
        for name, tensor in tensors.items():
            total[name] += tensor
    mean = {name: (tensor / len(paths)).to(first[name].dtype) for name, tensor in total.items()}
    built = model_folder.build_model(model_folder.read_config(paths[0])[0])
    saved = {id(tensor): mean[name] for name, tensor in model_folder.named_state(built).items()}
    return {name: saved[id(t)] for name, t in built.state_dict(keep_vars=True).items() if id(t) in saved}


def model_files(folder: Path) -> list[object]:
    """Read the settings and tokenizers that give a folder's weights their meaning."""
    config, names = model_folder.read_config(folder)
    return [config, *(read_json(folder / f"{name}.json") for name in names.values())]
