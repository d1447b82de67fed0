"""The README.md of an exported folder: ten lines that use the model without us."""

from pathlib import Path

from annotated.tokenizers import (
    END,
    SPECIALS,
    START,
    UNK,
    MarianTokenizer,
    SentencePieceTokenizer,
    Tokenizer,
    WordTokenizer,
)

PAGE = """# A translation model for {engine}

Written by annotated-transformer. Without that, after `pip install {packages}`, this uses it in this folder:

```python
{code}
```
"""
# What each engine takes to install and to import, and the code that uses it; names in braces are filled in.
USE = {
    "CTranslate2": (
        {"ctranslate2"},
        ["import ctranslate2"],
        """\
engine = ctranslate2.Translator(".", "cpu")
pieces = {cut}
[found] = engine.translate_batch([pieces], beam_size=4, length_penalty=0.6)  # it adds the symbols itself
pieces = found.hypotheses[0]
print({joined})""",
    ),
    "ONNX": (
        {"numpy", "onnxruntime"},
        ["import numpy", "import onnxruntime"],
        """\
encoder = onnxruntime.InferenceSession("encoder.onnx")
decoder = onnxruntime.InferenceSession("decoder.onnx")
pieces = {cut}
tokens = [src_names.index(piece) if piece in src_names else {unk} for piece in pieces]
memory, src_mask = encoder.run(None, {{"src": numpy.array([[{before}*tokens{after}]])}})
past, tokens = memory[..., :0, :], [{start}]  # {start} begins a translation, {end} ends it
while tokens[-1] != {end} and len(tokens) < memory.shape[4] + 50:
    inputs = {{"token": numpy.array([tokens[-1:]]), "past": past, "memory": memory, "src_mask": src_mask}}
    log_probs, past = decoder.run(None, inputs)  # the past is what the decoder has read so far
    tokens.append(int(log_probs[0].argmax()))
pieces = [tgt_names[token] for token in tokens if token >= {unk}]
print({joined})""",
    ),
    "Marian": (
        {"sentencepiece", "torch", "transformers"},
        ["from transformers import MarianMTModel, MarianTokenizer"],
        """\
tokenizer, model = MarianTokenizer.from_pretrained("."), MarianMTModel.from_pretrained(".")
found = model.generate(**tokenizer(sentence, return_tensors="pt"), num_beams=4, length_penalty=0.6)
print(tokenizer.decode(found[0], skip_special_tokens=True))""",
    ),
}


def write_readme(folder: Path, engine: str, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer) -> None:
    """Write the README.md of a folder for one of the engines in `USE`, which has these tokenizers."""
    packages, imports, use = USE[engine]
    set_up = []
    for side, tokenizer in (("src", src_tokenizer), ("tgt", tgt_tokenizer)):
        if not isinstance(tokenizer, WordTokenizer):
            processor = f'sentencepiece.SentencePieceProcessor(model_file="{side}_tokenizer.model")'
            set_up.append(f"{side} = {processor}")
        if engine == "ONNX":
            set_up.append(f"{side}_names = {names(tokenizer, side)}")
    use = use.format(
        cut=cut(src_tokenizer),
        joined='" ".join(pieces)' if isinstance(tgt_tokenizer, WordTokenizer) else "tgt.decode(pieces)",
        before="".join(f"{symbol}, " for symbol in src_tokenizer.before),
        after="".join(f", {symbol}" for symbol in src_tokenizer.after),
        start=START,
        end=END,
        unk=UNK,
    )
    body = "\n".join(['sentence = "A dog runs."', *([] if engine == "Marian" else set_up), use])
    used = [module for module in ("json", "sentencepiece", "spacy") if f"{module}." in body]
    code = "\n".join([*sorted([*imports, *(f"import {module}" for module in used)]), "", body])
    installed = " ".join(sorted({*packages, *used} - {"json"}))
    (folder / "README.md").write_text(PAGE.format(engine=engine, packages=installed, code=code), "utf-8")


def cut(tokenizer: Tokenizer) -> str:
    """Code that cuts the sentence as a tokenizer of the source does."""
    if not isinstance(tokenizer, WordTokenizer):
        return "src.encode(sentence, out_type=str)"
    lower = ".lower()" if tokenizer.lower else ""
    if tokenizer.language is None:
        return f"sentence{lower}.split()"
    return (
        f'[word.text{lower} for word in spacy.blank("{tokenizer.language}")(sentence) if not word.is_space]'
    )


def names(tokenizer: Tokenizer, side: str) -> str:
    """Code that lists a tokenizer's tokens by number."""
    if isinstance(tokenizer, SentencePieceTokenizer):
        return f"[{side}.id_to_piece(i) for i in range(len({side}))]"
    saved = f'json.load(open("{side}_tokenizer.json", encoding="utf-8"))'
    if isinstance(tokenizer, MarianTokenizer):
        return f'{saved}["vocabulary"]'
    return f'"{" ".join(SPECIALS)}".split() + {saved}["words"]'
