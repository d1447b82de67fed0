"""Model folders: settings in JSON, weights in safetensors, tokenizers beside them. Nothing is ever unpickled.

    config.json          format, model settings, which tokenizers
    model.safetensors    the weights, each shared matrix once, and checksums of them and of the other files
    tokenizer.* or src_tokenizer.* and tgt_tokenizer.*

The weights come last: a folder that has them has all else. Where newer weights take the place of older ones
of the same settings and tokenizers, as in a run's folder, a whole model remains whenever that is cut off.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from annotated.files import read_json, settings_from_json, write_json
from annotated.tokenizers import Tokenizer, load_tokenizer, save_tokenizer
from annotated.transformer.layers import PositionalEncoding, sinusoids
from annotated.transformer.model import EncoderDecoder, TransformerConfig
from annotated.transformer.parts import Parts, parts_of
from annotated.translation.tensor_files import check_tensors, read_with_sums, write_tensors

FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
SETTINGS = "training.json"  # of the run that trained it, if there was one
COMPARABLE = (bool, int, float, str, tuple, FunctionType, BuiltinFunctionType)


def weights(model: EncoderDecoder) -> dict[str, Tensor]:
    """A model's parameters by name, each shared matrix once."""
    return dict(model.named_parameters())


def rebuilt(config: TransformerConfig) -> EncoderDecoder:
    """The model that these settings bring back, on the meta device; all share it, so nobody may change it."""
    return build_on_meta(config, type(parts_of(config)))  # type: ignore[arg-type]  # a class has a hash


@lru_cache(maxsize=4)  # a run asks for it at each checkpoint, and building takes longer than saving
def build_on_meta(config: TransformerConfig, parts: type[Parts]) -> EncoderDecoder:
    """Build a model without memory for its weights; `parts` are those that the settings name now."""
    with torch.device("meta"):
        return EncoderDecoder.from_config(config)


def wanted_weights(config: TransformerConfig, source: object) -> Iterator[tuple[str, Tensor]]:
    """The name of each weight of a model with these settings, and a tensor of its shape that takes no memory.

    One after the other, because settings can ask for any number of layers: a comparison with tensors that
    exist stops at the first that does not. Raises ValueError for a shape beyond all memory.
    """
    try:
        model = rebuilt(dataclasses.replace(config, N=1))
    except RuntimeError as error:
        raise ValueError(f"{source}: no model can be built from these settings: {error}") from None
    for name, parameter in weights(model).items():
        for i in range(config.N if ".layers.0." in name else 1):
            yield name.replace(".layers.0.", f".layers.{i}."), parameter


def load_weights(model: EncoderDecoder, tensors: Mapping[str, Tensor], source: object) -> None:
    """Copy weights, which come from `source`, into a model, all or none. Raises as `check_tensors` does."""
    own = weights(model)
    check_tensors(tensors, own.items(), source)
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(tensors[name])


def model_with(config: TransformerConfig, tensors: Mapping[str, Tensor], source: object) -> EncoderDecoder:
    """Build the model of these settings and weights, on the CPU, after a look whether they belong together.

    It takes the memory of its weights in float32, whatever the settings say: nothing is drawn at random, and
    no more sinusoids are made ahead than by default. Raises ValueError as `check_tensors` does.
    """
    check_tensors(tensors, wanted_weights(config, source), source)
    with torch.device("meta"):
        model = EncoderDecoder.from_config(config)
    whole: dict[str, Any] = {"device": "cpu", "copy": True, "memory_format": torch.contiguous_format}
    real = {p: nn.Parameter(tensors[name].to(dtype=p.dtype, **whole)) for name, p in weights(model).items()}
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, real[parameter])  # one that several share stays one
        if isinstance(module, PositionalEncoding):
            module.pe = sinusoids(min(config.max_len, TransformerConfig.max_len), config.d_model)
    return model


# ---- what is saved is what was trained


def check_rebuilds(model: EncoderDecoder) -> None:
    """Raise ValueError naming the first part of a model that its settings and weights would not bring back.

    Nothing else is kept, here and in the formats of other libraries: a part of another class, or with another
    activation, would come back as the one that `from_config` builds. So would what `torch.compile` wraps.
    """
    if not isinstance(getattr(model, "config", None), TransformerConfig):
        raise ValueError("the model has no settings: build it with make_model or EncoderDecoder.from_config")
    whole = rebuilt(model.config)
    ours, theirs = (dict(each.named_modules(remove_duplicate=False)) for each in (model, whole))
    for name in [*theirs, *ours]:
        found, wanted = traits(ours.get(name)), traits(theirs.get(name))
        for trait, value in wanted.items():
            if found.get(trait) != value:
                is_, would = (getattr(each, "__name__", each) for each in (found.get(trait), value))
                raise ValueError(
                    f"{name or 'the model'}: its {trait} is {is_}, but the settings would bring back {would}"
                )
    check_tensors(weights(model), weights(whole).items(), "the model")


def traits(module: nn.Module | None) -> dict[str, object]:
    """What else decides what a module computes: its class, plain attributes, a `forward` of its own."""
    found: dict[str, object] = {"class": type(module), "forward": None}
    for name, value in ({} if module is None else vars(module)).items():
        if isinstance(value, COMPARABLE) and name != "training" and not name.startswith("_"):
            found[name] = value
    return found


def check_vocabularies(
    config: TransformerConfig, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer, source: object
) -> None:
    """Raise ValueError where a tokenizer has more or fewer tokens than its side of the model."""
    for tokenizer, size in ((src_tokenizer, config.src_vocab), (tgt_tokenizer, config.tgt_vocab)):
        if len(tokenizer) != size:
            raise ValueError(f"{source}: a tokenizer of {len(tokenizer)} tokens for a model of {size}")


def check_whole(model: EncoderDecoder, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer) -> None:
    """Raise ValueError for a model that would come back as another, or tokenizers that do not fit it."""
    check_rebuilds(model)
    check_vocabularies(model.config, src_tokenizer, tgt_tokenizer, "the model")


# ---- folders


def save_model(
    folder: Path, model: EncoderDecoder, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer
) -> None:
    """Write a model folder. Raises ValueError as `check_whole` does, and then writes nothing."""
    check_whole(model, src_tokenizer, tgt_tokenizer)
    folder = Path(folder)
    joint = src_tokenizer is tgt_tokenizer  # it is stored once
    names = {side: "tokenizer" if joint else f"{side}_tokenizer" for side in ("src", "tgt")}
    folder.mkdir(parents=True, exist_ok=True)
    for name, tokenizer in {names["src"]: src_tokenizer, names["tgt"]: tgt_tokenizer}.items():
        save_tokenizer(tokenizer, folder, name)
    settings = {"format": FORMAT, "model": dataclasses.asdict(model.config), "tokenizers": names}
    write_json(folder / CONFIG, settings)
    write_tensors(folder / WEIGHTS, weights(model), described(folder, names))


def described(folder: Path, names: Mapping[str, str]) -> dict[str, str]:
    """The SHA-256 of what each JSON file says that tells what the weights mean: settings and tokenizers.

    Its bytes may change on the way: line ends, for one. It has the checksum of a tokenizer's second file.
    """
    files = [CONFIG, *(f"{name}.json" for name in sorted(set(names.values())))]
    said = {file: json.dumps(read_json(folder / file), sort_keys=True) for file in files}
    return {file: hashlib.sha256(text.encode()).hexdigest() for file, text in said.items()}


def read_config(folder: Path) -> tuple[TransformerConfig, dict[str, str]]:
    """The settings of the model in a folder, and its tokenizers' names. Raises as `load_model` does."""
    path = folder / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no model: there is no {CONFIG} in it")
    settings = read_json(path)
    if "format" not in settings:
        raise ValueError(f"{path} was not written by annotated: it names no format")
    if settings["format"] != FORMAT:
        raise ValueError(f"{path}: format {settings['format']!r} is unknown; this version reads {FORMAT}")
    for name in ("model", "tokenizers"):
        if not isinstance(settings.get(name), dict):
            raise ValueError(f"{path}: the settings {name!r} are missing")
    names = settings["tokenizers"]
    for side in ("src", "tgt"):
        if names.get(side) not in ("tokenizer", f"{side}_tokenizer"):
            raise ValueError(f"{path}: tokenizers.{side} must be tokenizer or {side}_tokenizer")
    config = settings_from_json(TransformerConfig, settings["model"], path)
    return config, {side: names[side] for side in ("src", "tgt")}


def load_model(
    folder: str | Path, device: str | torch.device = "cpu"
) -> tuple[EncoderDecoder, Tokenizer, Tokenizer]:
    """Read a model folder: the model in evaluation mode, its tokenizers for source and target.

    Raises FileNotFoundError for a folder without a model, ValueError for one that is damaged, put together
    from several or of another format, with one line that names the file and what is wrong with it.
    """
    folder = Path(folder)
    config, names = read_config(folder)
    tensors, sums = read_with_sums(folder / WEIGHTS)
    model = model_with(config, tensors, folder / WEIGHTS)
    src = load_tokenizer(folder, names["src"])
    tgt = src if names["src"] == names["tgt"] else load_tokenizer(folder, names["tgt"])
    check_vocabularies(config, src, tgt, folder)
    found = described(folder, names)
    for name, value in sums.items():
        if found.get(name) != value:
            raise ValueError(f"{folder / name} is not what was saved with {WEIGHTS}: its checksum differs")
    return model.to(device).eval(), src, tgt


# ---- shipped models


def shipped_models() -> list[str]:
    """The names of the models that come with the package."""
    folder = resources.files("annotated") / "pretrained"
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []


def shipped_model(name: str) -> Path:
    """The folder of a model that comes with the package. Raises ValueError that lists the names."""
    if name not in shipped_models():
        names = ", ".join(shipped_models()) or "none yet"
        raise ValueError(f"{name!r} is not the name of a shipped model; they are: {names}")
    return Path(str(resources.files("annotated") / "pretrained" / name))


def find_model(name_or_folder: str | Path) -> Path:
    """The folder of a model, on disk or shipped. Raises FileNotFoundError that lists the shipped models."""
    if Path(name_or_folder).is_dir():
        return Path(name_or_folder)
    try:
        return shipped_model(str(name_or_folder))
    except ValueError as error:
        raise FileNotFoundError(f"there is no model folder {name_or_folder}, and {error}") from None


def training_settings(folder: Path) -> dict[str, Any]:
    """Read how the model in a folder was trained; {} where nothing says it. A checkpoint's run says it.

    Raises ValueError if what it says of the text is no text.
    """
    path, checkpoints = folder / SETTINGS, folder.resolve().parent
    if not path.exists() and checkpoints.name == "checkpoints":
        path = checkpoints.parent / SETTINGS
    settings = read_json(path) if path.exists() else {}
    for name in ("corpus", "path", "pair", "variant", "src", "tgt"):
        if not isinstance(settings.get(name), str | None):
            raise ValueError(f"{path}: {name} must be text or null, not {settings[name]!r}")
    return settings
