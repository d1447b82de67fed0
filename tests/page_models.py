"""Models as the page has them, and a way to ask the page's script in Node."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from annotated.transformer.model import EncoderDecoder, TransformerConfig
from annotated.translation import watch as inside
from annotated.translation.tokenizers import SentencePieceTokenizer
from annotated.translation.translator import Translator

HERE = Path(__file__).parent
SCRIPT = HERE.parent / "annotated/translation/watch/watch.js"
TEXTS = ["A dog runs.", "Ein Hund rennt.", "Two dogs\u00a0run over the bridge.", "Zwei Hunde laufen."]
STRANGE = [
    "1 2 3 4 5 6 7 8 9 10",
    "Two people with the number 999999",
    "A\u00a0dog\u00a0runs.",
    "  Two   dogs ",
    "A \u2581 \U0001f600 \ue000e",
    "A DOG IS RUNNING.",
    "Ein Hund läuft über die Straße.",
    "<b>A dog</b> & \"a cat\"",
    "犬が走る。",
    "\ufeffA dog.",
    "</s> <s> <unk> <0x41>",
    "A lone \ud800 surrogate",
    "a\tb",
    "x" * 60,
    "A man and " * 12,
]  # fmt: skip


def small_translator(**settings: object) -> Translator:
    torch.manual_seed(0)
    tokenizer = SentencePieceTokenizer.train(TEXTS * 5, 300)
    sizes = {"N": 2, "d_model": 12, "d_ff": 20, "h": 3, **settings}
    config = TransformerConfig.base(len(tokenizer), len(tokenizer), **sizes)
    model = EncoderDecoder.from_config(config)
    with torch.no_grad():  # no bias is zero any more
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 8)
    return with_half_weights(Translator(model, tokenizer, tokenizer))


def with_half_weights(translator: Translator) -> Translator:
    """Round the weights, and nothing else, to half precision, as the page has them."""
    with torch.no_grad():
        for parameter in translator.model.parameters():
            parameter.copy_(parameter.half())
    return translator


Ask = Callable[..., list]


def page(translator: Translator, folder: Path) -> Ask:
    """Write what the page gets, and return a function that asks the page in Node: (what, of what) pairs."""
    model = folder / "model.json"
    model.write_text(json.dumps(inside.page_model(translator)), encoding="utf-8")
    return page_with(model)


def page_with(model: Path) -> Ask:
    """Return a function that asks the page with this model, the JSON of `page_model` or a model folder."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node to run the page's script in")

    def ask(*requests: tuple[str, object]) -> list:
        lines = "\n".join(json.dumps({"ask": what, "of": of}) for what, of in requests)
        found = subprocess.run(
            [node, HERE / "page.js", SCRIPT, model],
            input=lines,
            capture_output=True,
            encoding="utf-8",
            check=True,
        )
        return [json.loads(line) for line in found.stdout.splitlines()]

    return ask
