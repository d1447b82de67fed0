"""What the exports share: optional libraries, checks, the vocabulary as a list, and the README.md."""

from collections import Counter
from importlib import import_module
from pathlib import Path
from types import ModuleType

from annotated.tokenizers import (
    SPECIALS,
    CharacterTokenizer,
    MarianTokenizer,
    SentencePieceTokenizer,
    Tokenizer,
    WordTokenizer,
    save_tokenizer,
)
from annotated.transformer.config import TransformerConfig

Subwords = SentencePieceTokenizer | MarianTokenizer  # tokenizers that are SentencePiece files
POSITIONS = 1024  # rows of an exported table of sinusoids; ours grows as needed
README = """# A translation model for {engine}

Written by annotated-transformer. Without that package, after `pip install {packages}`, this uses it:

```python
{code}
```

Text must be normalised (NFC, one space between words), as in the line that sets `sentence`.{note}
"""
SENTENCE = 'sentence = " ".join(unicodedata.normalize("NFC", "A dog runs.").split())'
# The code that uses an export with each engine.
CODE = {
    "CTranslate2": """\
engine = ctranslate2.Translator(".", "cpu")
pieces = {split}
[result] = engine.translate_batch([pieces], beam_size=4, length_penalty=0.6)  # it adds the symbols itself
pieces = result.hypotheses[0]
print({join})""",
    "ONNX": """\
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
tokenizer, model = MarianTokenizer.from_pretrained("."), MarianMTModel.from_pretrained(".")
tokens = model.generate(**tokenizer(sentence, return_tensors="pt"), num_beams=4, length_penalty=0.6)
print(tokenizer.decode(tokens[0], skip_special_tokens=True))""",
}
MODULES = "ctranslate2", "json", "numpy", "onnxruntime", "regex", "sentencepiece", "spacy", "unicodedata"
BUILTIN = "json", "unicodedata"
MARIAN_NOTE = """
`pipeline("translation")` is not part of transformers 5. For CTranslate2, `annotated export --to ctranslate2`:
its own converter begins translations with zeros, this model with the embedding of `<s>`."""


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


def vocabulary(tokenizer: Tokenizer) -> list[str]:
    """Return the tokens by number, as strings. Raises ValueError where two are spelled alike."""
    tokens = tokenizer.vocabulary
    if duplicates := [token for token, count in Counter(tokens).items() if count > 1]:
        raise ValueError(f"the token {duplicates[0]!r} is in the vocabulary twice")
    return tokens


def write_tokenizers(folder: Path, engine: str, src: Tokenizer, tgt: Tokenizer) -> None:
    """Save both tokenizers in an exported folder, and its README.md."""
    save_tokenizer(src, folder, "src_tokenizer")
    save_tokenizer(tgt, folder, "tgt_tokenizer")
    write_readme(folder, engine, src, tgt)


def write_readme(folder: Path, engine: str, src: Tokenizer, tgt: Tokenizer) -> None:
    """Write the README.md of an exported folder, with code for one of the engines in `CODE`."""
    lines = [SENTENCE]
    for side, tokenizer in (("src", src), ("tgt", tgt)):
        if engine != "Marian" and isinstance(tokenizer, Subwords):
            processor = f'sentencepiece.SentencePieceProcessor(model_file="{side}_tokenizer.model")'
            lines.append(f"{side} = {processor}")
        if engine == "ONNX":
            lines.append(f"{side}_names = {names_code(tokenizer, side)}")
    use = CODE[engine].format(
        split=split_code(src),
        join=join_code(tgt),
        source=", ".join(map(str, [*src.before, "*tokens", *src.after])),
    )
    body = "\n".join([*lines, use])
    modules = [module for module in MODULES if f"{module}." in body]
    imports, packages = [f"import {module}" for module in modules], sorted({*modules}.difference(BUILTIN))
    if engine == "Marian":
        packages = ["sentencepiece", "torch", "transformers"]
        imports.append("from transformers import MarianMTModel, MarianTokenizer")
    code = "\n".join([*imports, "", body])
    note = MARIAN_NOTE if engine == "Marian" else ""
    text = README.format(engine=engine, packages=" ".join(packages), code=code, note=note)
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
    spacy = f"spacy.blank({tokenizer.language!r})"
    return f"[word.text{lower} for word in {spacy}(sentence) if not word.is_space]"


def names_code(tokenizer: Tokenizer, side: str) -> str:
    """Return code that lists a tokenizer's tokens by number."""
    if isinstance(tokenizer, SentencePieceTokenizer):
        return f"[{side}.id_to_piece(i) for i in range(len({side}))]"
    saved = f'json.load(open("{side}_tokenizer.json", encoding="utf-8"))'
    if isinstance(tokenizer, MarianTokenizer):
        return f'{saved}["vocabulary"]'
    key = "characters" if isinstance(tokenizer, CharacterTokenizer) else "words"
    return f'"{" ".join(SPECIALS)}".split() + {saved}["{key}"]'
