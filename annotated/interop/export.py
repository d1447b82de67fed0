"""What the exports share: optional libraries, checks, vocabularies, and the README.md."""

from collections import Counter
from importlib import import_module
from pathlib import Path
from types import ModuleType

from annotated.files import write_json
from annotated.tokenizers import (
    CharacterTokenizer,
    MarianTokenizer,
    SentencePieceTokenizer,
    Tokenizer,
    WordTokenizer,
    save_tokenizer,
)
from annotated.transformer.config import TransformerConfig
from annotated.transformer.model import EncoderDecoder
from annotated.translation.model_folder import check_whole

Subwords = SentencePieceTokenizer | MarianTokenizer  # tokenizers that are SentencePiece files
POSITIONS = 1024  # rows of an exported table of sinusoids; ours grows as needed
README = """# A translation model for {engine}

Written by annotated-transformer. Without that package, after `pip install {packages}`, this uses it:

```python
{imports}

sentence = " ".join(unicodedata.normalize("NFC", "A dog runs.").split())
{code}
```

Text must be normalized (NFC, one space between words), as in the line that sets `sentence`.
"""
# The code that uses an export with each engine.
CODE = {
    "CTranslate2": """\
engine = ctranslate2.Translator(".", "cpu")
pieces = {split}
[result] = engine.translate_batch([pieces], beam_size=4, length_penalty=0.6)  # it adds the symbols itself
pieces = result.hypotheses[0]
print({join})""",
    "ONNX": """\
src_names = json.load(open("src_vocabulary.json", encoding="utf-8"))
tgt_names = json.load(open("tgt_vocabulary.json", encoding="utf-8"))
encoder = onnxruntime.InferenceSession("encoder.onnx")
decoder = onnxruntime.InferenceSession("decoder.onnx")
pieces = {split}
tokens = [src_names.index(piece) if piece in src_names else 3 for piece in pieces]
memory, src_mask = encoder.run(None, {{"src": numpy.array([[{source}]])}})
past, tokens = memory[..., :0, :], [0]  # 0 begins a translation, 1 ends it
while tokens[-1] != 1 and len(tokens) < memory.shape[4] + 50:
    inputs = {{"token": numpy.array([tokens[-1:]]), "past": past, "memory": memory, "src_mask": src_mask}}
    log_probs, past = decoder.run(None, inputs)  # the keys and values of what the decoder has read so far
    tokens.append(int(log_probs[0].argmax()))
pieces = [tgt_names[token] for token in tokens if token >= 3]
print({join})""",
    "Marian": """\
tokenizer = transformers.MarianTokenizer.from_pretrained(".")
model = transformers.MarianMTModel.from_pretrained(".")
tokens = model.generate(**tokenizer(sentence, return_tensors="pt"), num_beams=4, length_penalty=0.6)
print(tokenizer.decode(tokens[0], skip_special_tokens=True))""",
}
# Modules that the code may use; those of Python itself need not be installed.
MODULES = {"ctranslate2", "json", "numpy", "onnxruntime", "regex", "sentencepiece", "spacy", "transformers"}


def import_library(name: str) -> ModuleType:
    """Import an optional library. Raises ImportError that names the extra to install."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ImportError(f'{name} is missing: pip install ".[interop]" in the clone') from None


def check_parts(config: TransformerConfig) -> None:
    """Raise ValueError for a variant, whose weights other libraries would compute with as the paper does."""
    if config.parts != "paper":
        raise ValueError(f"parts {config.parts!r} are a variant's; the other library knows the paper's alone")


def check_exportable(model: EncoderDecoder, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer) -> None:
    """Raise ValueError for a variant, or tokenizers that do not fit the model."""
    check_parts(model.config)
    check_whole(model, src_tokenizer, tgt_tokenizer)


def vocabulary(tokenizer: Tokenizer) -> list[str]:
    """Return the tokens by number, as strings. Raises ValueError where two are spelled alike."""
    tokens = tokenizer.vocabulary
    if duplicates := [token for token, count in Counter(tokens).items() if count > 1]:
        raise ValueError(f"the token {duplicates[0]!r} is in the vocabulary twice")
    return tokens


def write_tokenizers(folder: Path, engine: str, src: Tokenizer, tgt: Tokenizer) -> None:
    """Save both tokenizers in an exported folder, and a README.md with code for one of `CODE`'s engines."""
    source = ", ".join(map(str, [*src.before, "*tokens", *src.after]))
    lines = [CODE[engine].format(split=split_code(src), join=join_code(tgt), source=source)]
    for side, tokenizer in (("tgt", tgt), ("src", src)) if engine != "Marian" else ():
        save_tokenizer(tokenizer, folder, f"{side}_tokenizer")
        if isinstance(tokenizer, Subwords):
            processor = f'sentencepiece.SentencePieceProcessor(model_file="{side}_tokenizer.model")'
            lines.insert(0, f"{side} = {processor}")
        if engine == "ONNX":
            write_json(folder / f"{side}_vocabulary.json", vocabulary(tokenizer))
    code = "\n".join(lines)
    modules = {name for name in MODULES if f"{name}." in code}
    packages = modules - {"json"} | ({"sentencepiece", "torch"} if engine == "Marian" else set())
    imports = "\n".join(f"import {name}" for name in sorted(modules | {"unicodedata"}))
    text = README.format(engine=engine, packages=" ".join(sorted(packages)), imports=imports, code=code)
    (folder / "README.md").write_text(text, "utf-8")


def join_code(tokenizer: Tokenizer) -> str:
    """Return code that joins pieces to text as a target tokenizer does."""
    if isinstance(tokenizer, CharacterTokenizer):
        return '"".join(pieces)'
    return '" ".join(pieces)' if isinstance(tokenizer, WordTokenizer) else "tgt.decode(pieces)"


def split_code(tokenizer: Tokenizer) -> str:
    """Return code that splits a sentence into pieces as a source tokenizer does."""
    if isinstance(tokenizer, CharacterTokenizer):
        return 'regex.findall(r"\\X", sentence)'
    if not isinstance(tokenizer, WordTokenizer):
        return "src.encode(sentence, out_type=str)"
    lower = ".lower()" if tokenizer.lower else ""
    if tokenizer.language is None:
        return f"sentence{lower}.split()"
    words = f"spacy.blank({tokenizer.language!r})(sentence)"
    return f"[word.text{lower} for word in {words} if not word.is_space]"
