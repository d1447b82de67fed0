"""What does int8 cost in BLEU, on processors with VNNI and without?

    python benchmarks/quantization.py

CTranslate2 translates with each shipped model in float32 and in int8, on the processor as it is, which must
have VNNI, and kept to AVX2. Without VNNI two products of 8-bit numbers are added in 16 bits, and a sum that
does not fit is cut off.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from processors import kept_to
from report import main, print_table, write

from annotated.data import load_corpus
from annotated.interop import CTranslate2Translator, to_ctranslate2
from annotated.translation.evaluation import bleu, tokenized_bleu
from annotated.translation.translator import load_pretrained

# The shipped models: direction and variant of their corpus, and their score.
MODELS = {
    "multi30k-en-de": ("en-de", "raw", bleu),
    "multi30k-de-en": ("de-en", "raw", bleu),
    "multi30k-en-de-lc": ("en-de", "tok", tokenized_bleu),
}
SPLITS = ("val", "test_2016_flickr")
FORMS = ("float32", "int8")


def scores(folder: Path, sentences: int | None) -> list[dict[str, object]]:
    """Translate in this process: BLEU of each model in `folder` on each split, in each form."""
    found = []
    for model, (pair, variant, score) in MODELS.items():
        engines = {form: CTranslate2Translator(folder / model / form) for form in FORMS}
        for split in SPLITS:
            text = load_corpus("multi30k", pair, variant=variant)[split]
            src, tgt = text.src[:sentences], text.tgt[:sentences]
            each = {form: score(engine.translate(src, 5, 0.0), tgt).value for form, engine in engines.items()}
            found.append({"model": model, "split": split, **each})
    return found


def apart(
    instructions: str, environment: dict[str, str], options: Sequence[object]
) -> list[dict[str, object]]:
    """Compute the scores in a process of its own."""
    command = [sys.executable, __file__, *map(str, options)]
    found = json.loads(subprocess.check_output(command, env=environment, text=True))
    return [{"instructions": instructions, **each} for each in found]


def run(arguments: Sequence[str] | None = None) -> dict[str, object] | None:
    """Measure, print and record; with `--one`, print the scores of this process and no more.

    Raises ValueError on a processor without VNNI.
    """
    raw = argparse.RawDescriptionHelpFormatter
    options = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    options.add_argument("--sentences", type=int, help="the first of each split (default: all)")
    options.add_argument("--one", type=Path, metavar="FOLDER", help="score the models in it, in this process")
    options.add_argument("--json", type=Path, metavar="FILE", help="also write the record here")
    options = options.parse_args(arguments)
    if options.one:
        print(json.dumps(scores(options.one, options.sentences)))
        return None
    if not torch.cpu.get_capabilities().get("avx512_vnni"):
        raise ValueError("this processor has no VNNI, so there is nothing to compare with")
    with TemporaryDirectory() as temporary:
        for model in MODELS:
            ours = load_pretrained(model)
            for form in FORMS:
                folder = Path(temporary) / model / form
                to_ctranslate2(folder, ours.model, ours.src_tokenizer, ours.tgt_tokenizer, form)
        few = ["--sentences", options.sentences] if options.sentences else []
        environments = {"VNNI": dict(os.environ), "AVX2": kept_to("avx2")}
        found = [
            each
            for name, environment in environments.items()
            for each in apart(name, environment, ["--one", temporary, *few])
        ]
    rows = [
        (
            f"{each['model']}, {each['split']}",
            each["instructions"],
            *(f"{each[form]:.2f}" for form in FORMS),
            f"{each['int8'] - each['float32']:+.2f}",
        )
        for each in sorted(found, key=lambda each: (each["model"], each["split"]))
    ]
    print_table(("BLEU", "instructions", *FORMS, "difference"), rows)
    return write("quantization", options, {}, [], scores=found)


if __name__ == "__main__":
    main(run)
