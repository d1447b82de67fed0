"""`annotated average`."""

import argparse

from annotated.files import creating_folder, write_json
from annotated.training.devices import say
from annotated.translation.model_folder import (
    SETTINGS,
    average_checkpoints,
    load_model,
    load_weights,
    save_model,
    training_settings,
)


def average(args: argparse.Namespace) -> None:
    """Average checkpoints; see `annotated average --help`."""
    settings, *others = map(training_settings, args.checkpoints)
    for folder, other in zip(args.checkpoints[1:], others, strict=True):
        for name in ("pair", "variant"):  # two directions may share settings and tokenizer
            if settings.get(name) != other.get(name):
                here, there = other.get(name), settings.get(name)
                raise ValueError(
                    f"{folder} was trained with {name} {here!r}, but {args.checkpoints[0]} {there!r}"
                )
    with creating_folder(args.out) as folder:
        model, *tokenizers = load_model(args.checkpoints[0])
        load_weights(model, average_checkpoints(args.checkpoints), args.out)
        if settings:
            write_json(folder / SETTINGS, settings)  # they tell what text the model reads
        save_model(folder, model, *tokenizers)
    say(f"the mean of {len(args.checkpoints)} checkpoints is in {args.out}")
