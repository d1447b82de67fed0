"""What the ways in and out share: packages that may be missing, foreign tensors, README.md."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, cast
from zipfile import ZipFile

import torch
from torch import Tensor

from annotated.tokenizers import (
    SPECIALS,
    CharacterTokenizer,
    MarianTokenizer,
    SentencePieceTokenizer,
    Tokenizer,
    WordTokenizer,
)
from annotated.transformer.config import TransformerConfig
from annotated.transformer.layers import sinusoids

ALIASES = 4  # under so many names a file of torch.save may hold one matrix: Marian's of all embeddings
LONGEST = 1024  # positions of what is written, where they are sinusoids: ours grow, others are a table
Rows = Sequence[int | None]  # for each of our tokens its number elsewhere, or None where there is none


def foreign(package: str) -> ModuleType:
    """Import another library. Raises ImportError that names the extra to install."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ImportError(f'{package} is missing: pip install ".[interop]" in the clone') from None


# ---- in


def read_pickle(path: Path, recipe: str) -> dict[str, Tensor]:
    """Tensors by name from a file of torch.save, nothing else unpickled (`weights_only=True`).

    Raises FileNotFoundError, or ValueError with the `recipe` for exporting what may be read; ValueError too
    for a file that is damaged, and for tensors that claim more than the file holds.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    check_archive(path)
    try:
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # what is no such file ends in errors of every kind
        found = None
    named = isinstance(found, Mapping) and all(isinstance(name, str) for name in found)
    if not named or not all(map(is_plain, found.values())):
        raise ValueError(f"{path} is not a file of tensors by name, and nothing else is unpickled; {recipe}")
    claimed, size = sum(tensor.nbytes for tensor in found.values()), path.stat().st_size
    if claimed > ALIASES * size:
        raise ValueError(f"{path}: its tensors claim {claimed:,} bytes, but the file has {size:,}")
    return dict(found)


def check_archive(path: Path) -> None:
    """Raise ValueError for a damaged archive of torch.save, or one that unpacks to more than it holds.

    torch.load compares no checksum. Files from before PyTorch 1.6 are no archives, and have none.
    """
    whole = True
    with suppress(Exception), ZipFile(path) as archive:  # what is no archive ends in errors of every kind
        whole = sum(record.file_size for record in archive.infolist()) <= path.stat().st_size
        whole = whole and archive.testzip() is None
    if not whole:
        raise ValueError(f"{path} is damaged: what is in it is not what was saved, by its checksums")


def is_plain(tensor: Any) -> bool:
    """Whether this is a tensor of numbers that are all there."""
    whole = isinstance(tensor, Tensor) and tensor.layout is torch.strided
    return whole and not tensor.is_meta and not tensor.is_nested


def taken(
    tensors: Mapping[str, Tensor],
    names: Iterable[tuple[str, str]],
    source: object,
    ignored: Collection[str] = (),
) -> dict[str, Tensor]:
    """Foreign tensors under our names; `names` gives each of ours and theirs.

    Raises ValueError naming one that is missing, or that is neither asked for nor `ignored`.
    """
    found, used = {}, set(ignored)
    for ours, theirs in names:
        if theirs not in tensors:
            raise ValueError(f"{source}: tensor {theirs} is missing")
        found[ours] = tensors[theirs]
        used.add(theirs)
    if surplus := sorted(tensors.keys() - used):
        raise ValueError(f"{source}: tensor {surplus[0]} has no place in our model")
    return found


def check_sinusoids(
    waves: Tensor, d_model: int, name: str, atol: float, order: Tensor | slice = slice(None)
) -> None:
    """Raise ValueError unless `waves` (positions, d_model) are the sinusoids, dimensions in that `order`."""
    waves = torch.atleast_1d(waves)[: TransformerConfig.max_len].float().cpu()  # further rows are not used
    expected = sinusoids(len(waves), d_model)[:, order]
    if waves.shape != expected.shape or not torch.allclose(waves, expected, atol=atol):
        raise ValueError(f"{name} does not hold the sinusoids of section 3.5")


def renumbered(tensor: Tensor, rows: Rows, fill: float = 0.0) -> Tensor:
    """The rows of `tensor` in the order of our tokens; a token without one gets a row of `fill`."""
    chosen = tensor[[row or 0 for row in rows]]
    missing = torch.tensor([row is None for row in rows], device=tensor.device)
    return chosen.masked_fill(missing.view(-1, *[1] * (tensor.dim() - 1)), fill)


# ---- out

PAGE = """# A translation model for {engine}

Written by annotated-transformer. Without that, after `pip install {packages}`, this uses it in this folder:

```python
{code}
```
"""
# The code that uses an exported folder with each engine; names in braces are filled in.
USE = {
    "CTranslate2": """\
engine = ctranslate2.Translator(".", "cpu")
pieces = {cut}
[found] = engine.translate_batch([pieces], beam_size=4, length_penalty=0.6)  # it adds the symbols itself
pieces = found.hypotheses[0]
print({joined})""",
    "ONNX": """\
encoder = onnxruntime.InferenceSession("encoder.onnx")
decoder = onnxruntime.InferenceSession("decoder.onnx")
pieces = {cut}
tokens = [src_names.index(piece) if piece in src_names else 3 for piece in pieces]
memory, src_mask = encoder.run(None, {{"src": numpy.array([[{framed}]])}})
past, tokens = memory[..., :0, :], [0]  # 0 begins a translation, 1 ends it
while tokens[-1] != 1 and len(tokens) < memory.shape[4] + 50:
    inputs = {{"token": numpy.array([tokens[-1:]]), "past": past, "memory": memory, "src_mask": src_mask}}
    log_probs, past = decoder.run(None, inputs)  # the past is what the decoder has read so far
    tokens.append(int(log_probs[0].argmax()))
pieces = [tgt_names[token] for token in tokens if token >= 3]
print({joined})""",
    "Marian": """\
tokenizer, model = MarianTokenizer.from_pretrained("."), MarianMTModel.from_pretrained(".")
found = model.generate(**tokenizer(sentence, return_tensors="pt"), num_beams=4, length_penalty=0.6)
print(tokenizer.decode(found[0], skip_special_tokens=True))""",
}
MODULES = (
    "ctranslate2",
    "json",
    "numpy",
    "onnxruntime",
    "regex",
    "sentencepiece",
    "spacy",
)  # that such code may import


def check_parts(config: TransformerConfig) -> None:
    """Raise ValueError for a variant of the model: under its weights' names, others compute the paper's."""
    if config.parts != "paper":
        raise ValueError(f"parts {config.parts!r} are a variant's; the other library knows the paper's alone")


def vocabulary(tokenizer: Tokenizer) -> list[str]:
    """The tokens by number, spelled as they are. Raises ValueError where two are spelled alike."""
    if isinstance(tokenizer, WordTokenizer | CharacterTokenizer | MarianTokenizer):
        tokens = tokenizer.vocabulary
    else:
        tokens = [piece for piece, _ in cast(Any, tokenizer).scored_pieces()]
    if twice := [token for token, count in Counter(tokens).items() if count > 1]:
        raise ValueError(f"the token {twice[0]!r} is in the vocabulary twice, so its name tells no number")
    return tokens


def write_readme(folder: Path, engine: str, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer) -> None:
    """Write the README.md of a folder for one of the engines in `USE`, which has these tokenizers."""
    lines = ['sentence = "A dog runs."']
    for side, tokenizer in (("src", src_tokenizer), ("tgt", tgt_tokenizer)):
        if engine != "Marian" and not isinstance(tokenizer, WordTokenizer | CharacterTokenizer):
            processor = f'sentencepiece.SentencePieceProcessor(model_file="{side}_tokenizer.model")'
            lines.append(f"{side} = {processor}")
        if engine == "ONNX":
            lines.append(f"{side}_names = {names(tokenizer, side)}")
    use = USE[engine].format(
        cut=cut(src_tokenizer),
        joined=joined(tgt_tokenizer),
        framed=", ".join(map(str, [*src_tokenizer.before, "*tokens", *src_tokenizer.after])),
    )
    body = "\n".join([*lines, use])
    packages = [module for module in MODULES if f"{module}." in body]
    imports = [f"import {module}" for module in packages]
    if engine == "Marian":
        packages = ["sentencepiece", "torch", "transformers"]
        imports = ["from transformers import MarianMTModel, MarianTokenizer"]
    code = "\n".join([*imports, "", body])
    installed = " ".join(package for package in packages if package != "json")
    (folder / "README.md").write_text(PAGE.format(engine=engine, packages=installed, code=code), "utf-8")


def joined(tokenizer: Tokenizer) -> str:
    """Return code that joins pieces as a tokenizer of the target does."""
    if isinstance(tokenizer, CharacterTokenizer):
        return '"".join(pieces)'
    return '" ".join(pieces)' if isinstance(tokenizer, WordTokenizer) else "tgt.decode(pieces)"


def cut(tokenizer: Tokenizer) -> str:
    """Code that cuts the sentence as a tokenizer of the source does."""
    if isinstance(tokenizer, CharacterTokenizer):
        return 'regex.findall(r"\\X", sentence)'
    if not isinstance(tokenizer, WordTokenizer):
        return "src.encode(sentence, out_type=str)"
    lower = ".lower()" if tokenizer.lower else ""
    if tokenizer.language is None:
        return f"sentence{lower}.split()"
    spacy = f'spacy.blank("{tokenizer.language}")'
    return f"[word.text{lower} for word in {spacy}(sentence) if not word.is_space]"


def names(tokenizer: Tokenizer, side: str) -> str:
    """Code that lists a tokenizer's tokens by number."""
    if isinstance(tokenizer, SentencePieceTokenizer):
        return f"[{side}.id_to_piece(i) for i in range(len({side}))]"
    saved = f'json.load(open("{side}_tokenizer.json", encoding="utf-8"))'
    if isinstance(tokenizer, MarianTokenizer):
        return f'{saved}["vocabulary"]'
    key = "characters" if isinstance(tokenizer, CharacterTokenizer) else "words"
    return f'"{" ".join(SPECIALS)}".split() + {saved}["{key}"]'
