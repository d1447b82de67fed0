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

# For each engine: the packages to install, what to import, and the code. Names in braces are filled in.
USE = {
    "CTranslate2": (
        "ctranslate2",
        "import ctranslate2",
        """engine = ctranslate2.Translator(".", "cpu")  # symbols around the sentence are its own affair
[found] = engine.translate_batch([{pieces}], beam_size=4, length_penalty=0.6)
pieces = found.hypotheses[0]
print({text})""",
    ),
    "ONNX": (
        "numpy onnxruntime",
        "import numpy\nimport onnxruntime",
        """encoder = onnxruntime.InferenceSession("encoder.onnx")
decoder = onnxruntime.InferenceSession("decoder.onnx")
tokens = [src_names.index(piece) if piece in src_names else {unk} for piece in {pieces}]
memory, src_mask = encoder.run(None, {{"src": numpy.array([[{before}*tokens{after}]])}})
past, tokens = memory[..., :0, :], [{start}]  # what the decoder has seen of its translation, and has written
while tokens[-1] != {end} and len(tokens) < memory.shape[4] + 50:
    newest = {{"token": numpy.array([tokens[-1:]]), "past": past, "memory": memory, "src_mask": src_mask}}
    log_probs, past = decoder.run(None, newest)
    tokens.append(int(log_probs[0].argmax()))
pieces = [tgt_names[token] for token in tokens if token >= {unk}]
print({text})""",
    ),
    "Marian": (
        "transformers sentencepiece torch",
        "from transformers import MarianMTModel, MarianTokenizer",
        """tokenizer, model = MarianTokenizer.from_pretrained("."), MarianMTModel.from_pretrained(".")
found = model.generate(**tokenizer(sentence, return_tensors="pt"), num_beams=4, length_penalty=0.6)
print(tokenizer.decode(found[0], skip_special_tokens=True))""",
    ),
}
PAGE = """# A translation model for {engine}

Written by annotated-transformer. It needs `pip install {packages}`, and nothing of ours; in this folder:

```python
{code}
```
"""


def write_readme(folder: Path, engine: str, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer) -> None:
    """Write the README.md of a folder for one of the engines in `USE`, which has these tokenizers."""
    packages, imports, use = USE[engine]
    sides = {} if engine == "Marian" else {"src": src_tokenizer, "tgt": tgt_tokenizer}
    needed, set_up = set(), []
    for side, tokenizer in sides.items():
        if not isinstance(tokenizer, WordTokenizer):
            needed.add("sentencepiece")
            processor = f'sentencepiece.SentencePieceProcessor(model_file="{side}_tokenizer.model")'
            set_up.append(f"{side} = {processor}")
        elif side == "src" and tokenizer.language is not None:
            needed.add("spacy")
        if engine == "ONNX":
            set_up.append(f"{side}_names = {names(tokenizer, side)}")
            if not isinstance(tokenizer, SentencePieceTokenizer):
                needed.add("json")
    modules = [f"import {name}" for name in sorted(needed)]
    use = use.format(
        pieces=pieces(src_tokenizer),
        text='" ".join(pieces)' if isinstance(tgt_tokenizer, WordTokenizer) else "tgt.decode(pieces)",
        before="".join(f"{symbol}, " for symbol in src_tokenizer.before),
        after="".join(f", {symbol}" for symbol in src_tokenizer.after),
        start=START,
        end=END,
        unk=UNK,
    )
    code = "\n".join(
        [*sorted([*modules, *imports.split("\n")]), "", 'sentence = "A dog runs."', *set_up, use]
    )
    packages = " ".join([packages, *sorted(needed - {"json"})])
    page = PAGE.format(engine=engine, packages=packages, code=code)
    (folder / "README.md").write_text(page, encoding="utf-8")


def pieces(tokenizer: Tokenizer) -> str:
    """Code that cuts the sentence as a tokenizer of the source does."""
    if not isinstance(tokenizer, WordTokenizer):
        return "src.encode(sentence, out_type=str)"
    cut = "sentence.split()"
    if tokenizer.language is not None:
        cut = f"[word.text for word in spacy.blank({tokenizer.language!r})(sentence) if not word.is_space]"
    return f"[word.lower() for word in {cut}]" if tokenizer.lower else cut


def names(tokenizer: Tokenizer, side: str) -> str:
    """Code that lists a tokenizer's tokens by number."""
    if isinstance(tokenizer, SentencePieceTokenizer):
        return f"[{side}.id_to_piece(i) for i in range(len({side}))]"
    saved = f'json.load(open("{side}_tokenizer.json", encoding="utf-8"))'
    if isinstance(tokenizer, MarianTokenizer):
        return f'{saved}["vocabulary"]'
    return f'[{", ".join(map(repr, SPECIALS))}, *{saved}["words"]]'
