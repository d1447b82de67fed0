"""Model folders: settings in JSON, weights in safetensors, tokenizers beside them. Nothing is ever unpickled.

    config.json          format, model settings, which tokenizers
    model.safetensors    the weights, each shared matrix once
    tokenizer.* or src_tokenizer.* and tgt_tokenizer.*

The weights come last: a folder that has them has all else. Where newer weights take the place of older ones
of the same settings and tokenizers, as in a run's folder, a whole model remains whenever that is cut off.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from annotated.files import read_json, replacing, settings_from_json, write_json
from annotated.model import EncoderDecoder, TransformerConfig
from annotated.tokenizers import Tokenizer, load_tokenizer, save_tokenizer

FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write safetensors, whole or not at all."""
    with replacing(path) as partial:
        partial.write_bytes(save({name: tensor.detach().contiguous() for name, tensor in tensors.items()}))


def read_tensors(path: Path, device: str | torch.device = "cpu") -> dict[str, Tensor]:
    """Read safetensors. Raises FileNotFoundError, or ValueError that names the file if it is not whole."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    try:
        return load_file(path, device=str(device))
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from None


def weights(model: EncoderDecoder) -> dict[str, Tensor]:
    """A model's parameters by name, each shared matrix once."""
    return dict(model.named_parameters())


def check_tensors(tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor], source: object) -> None:
    """Raise ValueError naming a tensor that is missing, surplus, not finite or not of the shape `wanted`."""
    for name, tensor in wanted.items():
        if name not in tensors:
            raise ValueError(f"{source}: tensor {name} is missing")
        if tensors[name].shape != tensor.shape:
            found, shape = tuple(tensors[name].shape), tuple(tensor.shape)
            raise ValueError(f"{source}: tensor {name} has shape {found}, but the settings ask for {shape}")
        if not tensors[name].isfinite().all():
            raise ValueError(f"{source}: tensor {name} holds numbers that are not finite")
    for name in tensors:
        if name not in wanted:
            raise ValueError(f"{source}: tensor {name} is not part of what the settings describe")


def load_weights(model: EncoderDecoder, tensors: Mapping[str, Tensor], source: object) -> None:
    """Copy weights into a model, all or none; `source` says where they come from.

    Raises ValueError as `check_tensors` does.
    """
    own = weights(model)
    check_tensors(tensors, own, source)
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(tensors[name])


def model_from(values: dict, source: object) -> EncoderDecoder:
    """A model from its settings in JSON. Raises ValueError naming what is wrong with them."""
    config = settings_from_json(TransformerConfig, values, source)
    try:
        return EncoderDecoder.from_config(config)
    except (ValueError, RuntimeError, MemoryError) as error:  # contradictory, or larger than the memory
        raise ValueError(f"{source}: no model can be built from these settings: {error}") from None


def save_model(
    folder: Path, model: EncoderDecoder, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer
) -> None:
    """Write a model folder; the weights last, so that a folder with weights has all else.

    One tokenizer that serves both sides is stored once.
    """
    folder = Path(folder)
    joint = src_tokenizer is tgt_tokenizer
    names = (
        {"src": "tokenizer", "tgt": "tokenizer"}
        if joint
        else {"src": "src_tokenizer", "tgt": "tgt_tokenizer"}
    )
    folder.mkdir(parents=True, exist_ok=True)
    save_tokenizer(src_tokenizer, folder, names["src"])
    if not joint:
        save_tokenizer(tgt_tokenizer, folder, names["tgt"])
    settings = {"format": FORMAT, "model": dataclasses.asdict(model.config), "tokenizers": names}
    write_json(folder / CONFIG, settings)
    write_tensors(folder / WEIGHTS, weights(model))


def load_model(
    folder: str | Path, device: str | torch.device = "cpu"
) -> tuple[EncoderDecoder, Tokenizer, Tokenizer]:
    """Read a model folder: the model in evaluation mode, its source and its target tokenizer.

    Raises FileNotFoundError for a folder without a model, ValueError for one that is damaged or of another
    format, with one line that names the file and what is wrong with it.
    """
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"{folder} holds no model: there is no {CONFIG} in it")
    settings = read_json(folder / CONFIG)
    if settings.get("format") != FORMAT:
        raise ValueError(
            f"{folder / CONFIG}: format {settings.get('format')!r} is unknown; this version reads {FORMAT}"
        )
    for name in ("model", "tokenizers"):
        if not isinstance(settings.get(name), dict):
            raise ValueError(f"{folder / CONFIG}: the settings {name!r} are missing")
    model = model_from(settings["model"], folder / CONFIG)
    load_weights(model, read_tensors(folder / WEIGHTS), folder / WEIGHTS)
    src_tokenizer, tgt_tokenizer = load_tokenizers(folder, settings["tokenizers"])
    for tokenizer, size in ((src_tokenizer, model.config.src_vocab), (tgt_tokenizer, model.config.tgt_vocab)):
        if len(tokenizer) != size:
            raise ValueError(f"{folder}: a tokenizer of {len(tokenizer)} pieces for a model of {size}")
    return model.to(device).eval(), src_tokenizer, tgt_tokenizer


def load_tokenizers(folder: Path, names: dict[str, str]) -> tuple[Tokenizer, Tokenizer]:
    """The source and the target tokenizer of a model folder: one object if they are one."""
    for side in ("src", "tgt"):
        if names.get(side) not in ("tokenizer", f"{side}_tokenizer"):
            raise ValueError(f"{folder / CONFIG}: tokenizers.{side} must be tokenizer or {side}_tokenizer")
    src = load_tokenizer(folder, names["src"])
    return src, src if names["src"] == names["tgt"] else load_tokenizer(folder, names["tgt"])


def average_checkpoints(folders: Sequence[str | Path]) -> dict[str, Tensor]:
    """The arithmetic mean of the weights in several model folders (section 6.1), in their own dtype.

    Raises ValueError for no folders, or naming the tensor and folder where names or shapes differ.
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
        for name, tensor in tensors.items():
            total[name] += tensor
    return {name: (tensor / len(folders)).to(first[name].dtype) for name, tensor in total.items()}


def shipped_models() -> list[str]:
    """The names of the models that come with the package."""
    folder = resources.files("annotated") / "pretrained"
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []


def shipped_model(name: str) -> Path:
    """The folder of a model that comes with the package.

    Raises ValueError that lists the names: only those are looked up, so no `..` or separator leads elsewhere.
    """
    if name not in shipped_models():
        names = ", ".join(shipped_models()) or "none yet"
        raise ValueError(f"{name!r} is not the name of a shipped model; they are: {names}")
    return Path(str(resources.files("annotated") / "pretrained" / name))


def find_model(name_or_folder: str | Path) -> Path:
    """The folder of a model: one on disk, or one shipped with the package under that name.

    Raises FileNotFoundError that lists the shipped models.
    """
    if Path(name_or_folder).is_dir():
        return Path(name_or_folder)
    try:
        return shipped_model(str(name_or_folder))
    except ValueError as error:
        raise FileNotFoundError(f"there is no model folder {name_or_folder}, and {error}") from None
