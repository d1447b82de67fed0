"""What does int8 cost in BLEU, and win in speed, on processors with VNNI and without?

    python benchmarks/quantization.py

CTranslate2 translates with each shipped model in float32 and in int8, on the processor as it is, which must
have VNNI, and kept to AVX2. Without VNNI two products of 8-bit numbers are added in 16 bits, and a sum that
does not fit is cut off. The two forms race on the last split, from text to text, on one thread.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import torch
from processors import kept_to
from records import Found
from report import plain_parser, write
from timing import race
from workload import text_of

from annotated.metrics import bleu, tokenized_bleu
from annotated.translation.interop import to_ctranslate2
from annotated.translation.storage.model_folder import find_model, training_settings
from annotated.translation.translator import load_pretrained

# The shipped models, and how they are scored.
MODELS = {"multi30k-en-de": bleu, "multi30k-de-en": bleu, "multi30k-en-de-lc": tokenized_bleu}
SPLITS = ("val", "test_2016_flickr")
FORMS = ("float32", "int8")


def models(short: bool) -> list[str]:
    """Those to measure: in a short run one of them."""
    return [*MODELS][-1:] if short else [*MODELS]


def measure(minutes: float, short: bool) -> dict[str, list[Found]]:
    """Translate in this process: BLEU of each model on each split, and the forms' speeds."""
    scores, speeds = [], []
    for model in models(short):
        score, corpus = MODELS[model], text_of(training_settings(find_model(model)), short)
        engines = {form: load_pretrained(model, engine="ctranslate2", quantization=form) for form in FORMS}
        for split in SPLITS:
            text = corpus[split]
            runs = {form: partial(engine.translate, text.src, 5, 0.0) for form, engine in engines.items()}
            bleus = {form: score(runs[form](), text.tgt).value for form in FORMS}
            scores.append({"model": model, "split": split, **bleus})
        measured, [told] = race(runs, [("int8", "float32")], minutes / 2 / len(models(short)))
        speed = {form: len(text.src) / each.median for form, each in measured.items()}
        speeds.append({"model": model, **told.summary(), **speed})
    return {"scores": scores, "speeds": speeds}


def run(arguments: Sequence[str] | None = None) -> Found | None:
    """Measure, print and record; with `--one`, print what this process measures and no more.

    Raises ValueError on a processor without VNNI.
    """
    options = plain_parser(__doc__)
    options.add_argument("--minutes", type=float, default=10, help="of the races (default %(default)s)")
    options.add_argument("--short", action="store_true", help="show in seconds that it runs, with toys")
    options.add_argument("--one", action="store_true", help="measure in this process")
    options = options.parse_args(arguments)
    if options.one:
        print(json.dumps(measure(options.minutes, options.short)))
        return None
    if not torch.cpu.get_capabilities().get("avx512_vnni"):
        raise ValueError("this processor has no VNNI, so there is nothing to compare with")
    sizes: dict[str, dict[str, int]] = {}
    found: dict[str, list[Found]] = {"scores": [], "speeds": []}
    with TemporaryDirectory() as temporary:
        for model in models(options.short):
            ours = load_pretrained(model)
            for form in FORMS:
                folder = Path(temporary) / model / form
                to_ctranslate2(folder, ours.model, ours.src_tokenizer, ours.tgt_tokenizer, form)
                sizes.setdefault(model, {})[form] = sum(file.stat().st_size for file in folder.iterdir())
    command = [sys.executable, __file__, "--one", "--minutes", str(options.minutes)]
    command += ["--short"] if options.short else []
    for name, environment in (("VNNI", None), ("AVX2", kept_to("avx2"))):  # a process of its own each
        told = json.loads(subprocess.check_output(command, env=environment, text=True))
        for what, rows in told.items():
            found[what] += [{"instructions": name, **each} for each in rows]
    for rows in found.values():
        print(pd.DataFrame(rows).sort_values("model").to_string(index=False))
    return write("quantization", options, {}, [], bytes=sizes, **found)


if __name__ == "__main__":
    run()
