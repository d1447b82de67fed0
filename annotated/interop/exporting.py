"""`annotated export`: a trained model for another engine."""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from annotated.interop.ctranslate2 import INT8, QUANTIZATIONS, to_ctranslate2
from annotated.interop.marian_saving import to_marian
from annotated.interop.onnx import to_onnx
from annotated.translation.translator import Translator

FORMATS: dict[str, Callable[..., None]] = {
    "ctranslate2": to_ctranslate2,
    "onnx": to_onnx,
    "marian": to_marian,
}


def add_export(add: Callable[..., argparse.ArgumentParser], **options: object) -> None:
    """Describe the command to the parser; `options` are those that all commands have."""
    parser = add(
        "export",
        help="write a model for another engine",
        description="Write a model for CTranslate2, as ONNX, or as Hugging Face's MarianMTModel, "
        'into a new folder.\nWhat that takes comes with pip install "annotated-transformer[interop]".',
        epilog="examples:\n"
        "  annotated export --model runs/first --to ctranslate2 --quantization int8 --out first-int8\n"
        "  annotated export --model runs/first --to onnx --out first-onnx",
        **options,
    )
    which = "a model folder, or a shipped model's name"
    parser.add_argument("--model", required=True, metavar="MODEL", help=which)
    parser.add_argument("--to", choices=FORMATS, required=True, help="for which engine")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where to write it")
    parser.add_argument("--quantization", choices=QUANTIZATIONS, help="of the matrices, for CTranslate2 only")
    parser.set_defaults(run=export)


def export(args: argparse.Namespace) -> None:
    """Do what `annotated export` was asked to. Raises ValueError and ImportError as the writers do."""
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
