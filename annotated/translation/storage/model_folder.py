"""Model folders: settings in JSON, weights in safetensors, tokenizers beside them. Nothing is ever unpickled.

    config.json          format, model settings, names of the tokenizers
    model.safetensors    the weights, each shared matrix once, and checksums of them and of the other files
    tokenizer.* or src_tokenizer.* and tgt_tokenizer.*

The weights are written last: a folder that has them has all else. Where newer weights replace older ones of
the same settings and tokenizers, as in a run's folder, an interruption leaves a whole model.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from annotated.evaluation_mode import evaluating
from annotated.search.config import EXTRA_TOKENS
from annotated.transformer.attention import subsequent_mask
from annotated.transformer.config import TransformerConfig
from annotated.transformer.model import EncoderDecoder
from annotated.translation.devices import default_torch_state, find_device
from annotated.translation.files import read_json, settings_from_json, write_json
from annotated.translation.storage.tensor_files import check_tensors, read_with_sums, write_tensors
from annotated.translation.tokenizers import Tokenizer, load_tokenizer

FOLDER_FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
SETTINGS = "training.json"  # settings of the run that trained the model, if there was one
PRETRAINED = Path(__file__).parents[1] / "pretrained"  # the models that come with the package


def named_state(model: EncoderDecoder) -> dict[str, Tensor]:
    """Return a model's parameters and persistent buffers by name, each shared tensor once."""
    tensors: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if isinstance(tensor, Tensor):  # not what `get_extra_state` gives
            tensors.setdefault(id(tensor), (name, tensor))
    return dict(tensors.values())


def build_model(config: TransformerConfig) -> EncoderDecoder:
    """Build a model in float32 on the CPU, to be loaded; the random generator stays as it is."""
    # Sinusoids grow when they are needed; a stranger's settings must not have many computed ahead.
    can_grow = config.variant == "paper" and config.positions == "sinusoidal"
    positions = min(config.max_len, TransformerConfig.max_len) if can_grow else config.max_len
    with default_torch_state(cpu := torch.device("cpu")), cpu:
        model = EncoderDecoder.from_config(dataclasses.replace(config, max_len=positions))
    model.config = config
    return model


def load_weights(model: EncoderDecoder, tensors: Mapping[str, Tensor], source: object) -> None:
    """Copy parameters and buffers from `source` into a model, all or none. Raises as `check_tensors` does."""
    state = named_state(model)
    check_tensors(tensors, state, source)
    with torch.no_grad():
        for name, tensor in state.items():
            tensor.copy_(tensors[name])


def model_with(config: TransformerConfig, tensors: Mapping[str, Tensor], source: object) -> EncoderDecoder:
    """Build the model of these settings and weights, in float32 on the CPU, after checking that they match.

    Raises as `check_tensors` does.
    """
    # A stranger's settings may ask for any number of layers: no model is built that the file cannot fill.
    stored = sum(tensor.numel() for tensor in tensors.values())
    rows = config.src_vocab + config.tgt_vocab + 2 * config.max_len * (config.positions == "learned")
    layers = 4 * config.N * (3 * config.d_model + config.d_ff)
    estimate = config.d_model * (layers + rows)  # of how many numbers the linear maps and the embeddings hold
    if config.variant == "paper" and estimate > 4 * stored:
        raise ValueError(f"{source} holds {stored:,} numbers, but the settings ask for about {estimate:,}")
    model = build_model(config)
    load_weights(model, tensors, source)
    return model


# ---- what is saved is what comes back


def check_has_settings(model: object) -> None:
    """Raise ValueError for a model that was put together by hand."""
    if not isinstance(getattr(model, "config", None), TransformerConfig):
        raise ValueError("the model has no settings: build it with make_model or EncoderDecoder.from_config")


def check_can_be_saved(model: EncoderDecoder) -> None:
    """Raise ValueError for a model that a model folder would bring back as another.

    A folder keeps the settings, the parameters and the persistent buffers. Loading calls the constructors
    again, which make everything else, so what changes or is drawn at random must be a parameter or a buffer:

        self.slopes = 2.0 ** -torch.arange(1, h + 1)  # made by every constructor
        self.register_buffer("mean", torch.zeros(d_model))  # changed by `self.mean.lerp_(...)` in `forward`
    """
    check_has_settings(model)
    if not isinstance(model, EncoderDecoder):
        raise ValueError(f"the model is wrapped in {type(model).__name__}: save what is inside of it")
    loaded = build_model(model.config)
    load_weights(loaded, named_state(model), "the model")
    loaded.to(next(model.parameters()))  # its device and its precision
    with evaluating(model), evaluating(loaded):
        before, after = random_output(model), random_output(loaded)
    if before.shape != after.shape or not torch.allclose(before, after, 1e-4, 1e-5, equal_nan=True):
        loading = "loading builds what the settings say, then fills in parameters and persistent buffers"
        lost = "".join(f"; {name} is lost" for name in lost_attributes(model, loaded)[:3])
        raise ValueError(f"the model would not come back as it is: {loading}, and nothing else{lost}")


def lost_attributes(model: nn.Module, loaded: nn.Module) -> list[str]:
    """Name the numbers and tensors of a model's modules that have other values in the loaded model."""
    before, after = (
        {f"{name}.{k}": v for name, m in whole.named_modules() for k, v in {**vars(m), **m._buffers}.items()}
        for whole in (model, loaded)
    )
    numbers = (k for k in before if all(isinstance(x.get(k), Tensor | float | int) for x in (before, after)))
    pairs = {k: [torch.as_tensor(x[k]).cpu() for x in (before, after)] for k in numbers}
    return [name for name, (a, b) in pairs.items() if a.shape == b.shape and (a != b).any()]


def random_output(model: EncoderDecoder) -> Tensor:
    """Compute log-probabilities for a batch of random tokens, the same each time."""
    device = next(model.parameters()).device
    length = min(16, model.max_positions or 16)
    generator = torch.Generator().manual_seed(0)
    sizes = model.config.src_vocab, model.config.tgt_vocab
    src, tgt = (torch.randint(size, (2, length), generator=generator).to(device) for size in sizes)
    return model.generator(model.forward(src, tgt, None, subsequent_mask(length, device)))


def check_vocabularies(
    config: TransformerConfig, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer, *, source: object
) -> None:
    """Raise ValueError where a tokenizer has more or fewer tokens than its side of the model."""
    for tokenizer, size in ((src_tokenizer, config.src_vocab), (tgt_tokenizer, config.tgt_vocab)):
        if len(tokenizer) != size:
            raise ValueError(f"{source}: a tokenizer of {len(tokenizer)} tokens for a model of {size}")


# ---- folders


def save_model(
    folder: str | Path, model: EncoderDecoder, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer
) -> None:
    """Write a model folder.

    Raises ValueError, and writes nothing, for a model that would come back as another, and for a folder that
    holds the model of a run.
    """
    folder = Path(folder).expanduser()
    if (folder / SETTINGS).exists():
        raise ValueError(f"{folder} holds the model of a run; choose another folder")
    check_can_be_saved(model)
    check_vocabularies(model.config, src_tokenizer, tgt_tokenizer, source="the model")
    write_model(folder, model, src_tokenizer, tgt_tokenizer)


def write_model(folder: Path, model: EncoderDecoder, src: Tokenizer, tgt: Tokenizer) -> None:
    """Write a model folder, unchecked; a tokenizer of both sides is stored once."""
    names = {side: "tokenizer" if src is tgt else f"{side}_tokenizer" for side in ("src", "tgt")}
    folder.mkdir(parents=True, exist_ok=True)
    for name, tokenizer in {names["src"]: src, names["tgt"]: tgt}.items():
        tokenizer.save(folder, name)
    settings = {"format": FOLDER_FORMAT, "model": dataclasses.asdict(model.config), "tokenizers": names}
    write_json(folder / CONFIG, settings)
    write_tensors(folder / WEIGHTS, named_state(model), file_sums(folder, names))


def file_sums(folder: Path, names: Mapping[str, str]) -> dict[str, str]:
    """Compute the SHA-256 of the settings and the tokenizers, by file, whatever the layout of their JSON."""
    files = [CONFIG, *(f"{name}.json" for name in sorted(set(names.values())))]
    contents = {file: json.dumps(read_json(folder / file), sort_keys=True) for file in files}
    return {file: hashlib.sha256(text.encode()).hexdigest() for file, text in contents.items()}


def read_config(folder: Path) -> tuple[TransformerConfig, dict[str, str]]:
    """Read the settings of the model in a folder, and its tokenizers' names. Raises as `load_model` does."""
    path = folder / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no model: there is no {CONFIG} in it")
    settings = read_json(path)
    if (saved := settings.get("format")) != FOLDER_FORMAT:
        raise ValueError(f"{path}: format {saved!r} is unknown; this version reads {FOLDER_FORMAT}")
    for name in ("model", "tokenizers"):
        if not isinstance(settings.get(name), dict):
            raise ValueError(f"{path}: the settings {name!r} are missing")
    names = settings["tokenizers"]
    for side in ("src", "tgt"):
        if names.get(side) not in ("tokenizer", f"{side}_tokenizer"):  # the name becomes a file's
            raise ValueError(f"{path}: tokenizers.{side} must be tokenizer or {side}_tokenizer")
    config = settings_from_json(TransformerConfig, settings["model"], path)
    return config, {side: names[side] for side in ("src", "tgt")}


def load_model(
    folder: str | Path, device: str | torch.device = "cpu"
) -> tuple[EncoderDecoder, Tokenizer, Tokenizer]:
    """Read a model folder: the model in evaluation mode, its tokenizers for source and target.

    The device "auto" is the best there is. Raises FileNotFoundError for a folder without a model, and
    ValueError, naming the file, for one that is damaged, put together from several or of another format.
    """
    folder, device = Path(folder).expanduser(), find_device(device)
    config, names = read_config(folder)
    tensors, sums = read_with_sums(folder / WEIGHTS)
    model = model_with(config, tensors, folder / WEIGHTS)
    src = load_tokenizer(folder, names["src"])
    tgt = src if names["src"] == names["tgt"] else load_tokenizer(folder, names["tgt"])
    check_vocabularies(config, src, tgt, source=folder)
    sums_now = file_sums(folder, names)
    for name, value in sums.items():
        if sums_now.get(name) != value:
            raise ValueError(f"{folder / name} is not what was saved with {WEIGHTS}: its checksum differs")
    return model.to(device).eval(), src, tgt


# ---- shipped models


def shipped_models() -> list[str]:
    """List the models that come with the package."""
    return sorted(path.name for path in PRETRAINED.glob("*") if path.is_dir())


def shipped_model(name: str) -> Path:
    """Find a model that comes with the package by its name. Raises ValueError that lists the names."""
    if name not in (names := shipped_models()):
        raise ValueError(f"{name!r} is not the name of a shipped model; they are: {', '.join(names)}")
    return PRETRAINED / name


def find_model(name_or_folder: str | Path) -> Path:
    """Find a model on disk or, by its name, a shipped one. Raises FileNotFoundError that lists those."""
    if (folder := Path(name_or_folder).expanduser()).is_dir():
        return folder
    try:
        return shipped_model(str(name_or_folder))
    except ValueError as error:
        raise FileNotFoundError(f"there is no model folder {name_or_folder}, and {error}") from None


def training_settings(folder: Path) -> dict[str, Any]:
    """Read the settings of the run that trained the model in a folder; {} if they are missing."""
    path = folder / SETTINGS
    return read_json(path) if path.exists() else {}


@dataclass(frozen=True)
class TrainedText:
    """What a run's settings tell of the text that its model was trained on."""

    pair: str | None  # the languages, such as "en-de"
    tokenized: bool  # lower-cased and tokenized beforehand
    longest_source: int | None  # in tokens
    max_extra: int  # tokens that a translation may have more than its source

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "TrainedText":
        """Take it from the settings of a run; None is unknown."""
        lengths = settings.get("lengths") or {}
        return cls(
            pair=settings.get("pair"),
            tokenized=bool(settings.get("tokenized")),
            longest_source=lengths.get("source"),
            max_extra=lengths.get("max_extra", EXTRA_TOKENS),
        )
