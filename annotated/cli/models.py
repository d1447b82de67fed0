"""`annotated average` and `annotated export`: models that are there, made into others."""

import argparse

from annotated.files import creating_folder, write_json
from annotated.training.checkpoint import average_checkpoints
from annotated.training.distributed import say
from annotated.translation.model_folder import (
    SETTINGS,
    load_model,
    load_weights,
    save_model,
    training_settings,
)
from annotated.translation.translator import Translator


def average(args: argparse.Namespace) -> None:
    """Average checkpoints; see `annotated average --help`."""
    first, *others = args.checkpoints
    settings = training_settings(first)
    for folder in others:
        for name in ("pair", "variant"):  # two directions may share settings and tokenizer
            here, there = training_settings(folder).get(name), settings.get(name)
            if here != there:
                raise ValueError(f"{folder} was trained with {name} {here!r}, but {first} {there!r}")
    with creating_folder(args.out) as folder:
        model, *tokenizers = load_model(first)
        load_weights(model, average_checkpoints(args.checkpoints), args.out)
        if settings:
            write_json(folder / SETTINGS, settings)  # they tell what text the model reads
        save_model(folder, model, *tokenizers)
    say(f"the mean of {len(args.checkpoints)} checkpoints is in {args.out}")


def export(args: argparse.Namespace) -> None:
    """Write a model for another engine; see `annotated export --help`. Raises as the writers do."""
    from annotated import interop  # takes longer to import than `average` takes to run

    options = {}
    if args.quantization is not None:
        if args.to != "ctranslate2":
            raise ValueError(f"--quantization is for --to ctranslate2, not {args.to}")
        options["quantization"] = args.quantization
    found = Translator.load(args.model)
    write = getattr(interop, f"to_{args.to}")
    write(args.out, found.model, found.src_tokenizer, found.tgt_tokenizer, **options)
    if found.lower_cased:
        say(f"{args.model} reads lower-cased, tokenised text; the other engine does not check")
    if args.quantization == "int8":
        say(interop.ctranslate2.INT8)
    size = sum(file.stat().st_size for file in args.out.iterdir())
    say(f"{args.out}: {size / 1e6:.1f} MB for {args.to}")
