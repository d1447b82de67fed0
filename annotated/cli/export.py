"""`annotated export`."""

import argparse
import sys
from collections.abc import Callable
from functools import partial

from annotated.interop.ctranslate2 import INT8, to_ctranslate2
from annotated.interop.marian import to_marian
from annotated.interop.onnx import to_onnx
from annotated.translation.translator import Translator

FORMATS: dict[str, Callable[..., None]] = {
    "ctranslate2": to_ctranslate2,
    "onnx": to_onnx,
    "marian": to_marian,
}


def export(args: argparse.Namespace) -> None:
    """Write a model for another engine; see `annotated export --help`. Raises as the writers do."""
    write = FORMATS[args.to]
    if args.quantization is not None:
        if args.to != "ctranslate2":
            raise ValueError(f"--quantization is for --to ctranslate2, not {args.to}")
        write = partial(write, quantization=args.quantization)
    found = Translator.load(args.model)
    write(args.out, found.model, found.src_tokenizer, found.tgt_tokenizer)
    if found.lower_cased:
        print(
            f"{args.model} reads lower-cased, tokenised text; the other engine does not check",
            file=sys.stderr,
        )
    if args.quantization == "int8":
        print(INT8, file=sys.stderr)
    size = sum(file.stat().st_size for file in args.out.iterdir())
    print(f"{args.out}: {size / 1e6:.1f} MB for {args.to}", file=sys.stderr)
