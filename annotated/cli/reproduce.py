"""`annotated reproduce`."""

import argparse
from pathlib import Path

from annotated.cli.common import choose_device
from annotated.cli.parser import main, parse
from annotated.cli.recipes import read_recipe, recipe_path
from annotated.cli.release import release
from annotated.cli.train import training_corpus
from annotated.training.devices import is_first, say


def reproduce(args: argparse.Namespace) -> int:
    """Train and release what a recipe describes; see `annotated reproduce --help`."""
    recipe = Path(args.name) if args.name.endswith(".toml") else recipe_path(args.name)
    out = args.out or Path("runs") / recipe.stem
    machine = [f"--device={args.device}", f"--threads={args.threads}"]
    seed = [] if args.seed is None else [f"--seed={args.seed}"]
    training = ["train", f"--config={recipe}", f"--out={out}", "--resume", *machine, *seed]
    check_recipe(recipe, parse(training))
    return main(training) or publish(args, out, recipe)


def check_recipe(path: Path, args: argparse.Namespace) -> None:
    """Raise ValueError naming what would fail after a training with `args`, which may take hours."""
    card = read_recipe(path).card
    if args.src or args.val_src:
        raise ValueError(
            f"{path}: a recipe takes a corpus by its name; for your own --src there are train and evaluate"
        )
    corpus = training_corpus(args)
    for split in card.splits:
        if split not in corpus.splits:
            raise ValueError(
                f"{path}: {corpus.name} has no split {split!r}; its splits are {', '.join(corpus.splits)}"
            )
    if card.published and card.published.score == "bleu" and args.variant == "tok":
        raise ValueError(f"{path}: published.score must be tokenized_bleu for text that is tokenised")


def publish(args: argparse.Namespace, run: Path, recipe: Path) -> int:
    """Score a finished run and write it as a model with a card; see `annotated reproduce --help`."""
    if not is_first():
        return 0
    for split, results in release(run, recipe, run / "release", choose_device(args)).items():
        print(f"{split}\n{results}")
    say(f"the model, its scores and its card are in {run / 'release'}")
    return 0
