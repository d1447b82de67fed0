"""`annotated average`, `annotated export` and `annotated reproduce`."""

import argparse
import re
from pathlib import Path

from annotated.translation.cli.flags import recipes
from annotated.translation.cli.main import main
from annotated.translation.files import creating_folder, read_toml, write_json
from annotated.translation.messages import print_message
from annotated.translation.processes import is_first
from annotated.translation.storage import model_folder
from annotated.translation.training.checkpoint import average_checkpoints
from annotated.translation.translator import Translator


def average(args: argparse.Namespace) -> None:
    """Average checkpoints; see `annotated average --help`."""
    first, *others = args.checkpoints
    settings = model_folder.training_settings(model_folder.find_model(first))
    for folder in others:
        for name in ("pair", "tokenized", "tokenizer", "vocab"):  # two runs may share all other settings
            value = model_folder.training_settings(model_folder.find_model(folder)).get(name)
            expected = settings.get(name)
            if value != expected:
                raise ValueError(f"{folder} was trained with {name} {value!r}, but {first} {expected!r}")
    with creating_folder(args.out) as folder:
        model, *tokenizers = model_folder.load_model(first)
        model.load_state_dict(average_checkpoints(args.checkpoints))
        model_folder.save_model(folder, model, *tokenizers)
        if settings:
            write_json(folder / model_folder.SETTINGS, settings)  # they tell what text it reads
    print_message(f"the mean of {len(args.checkpoints)} checkpoints is in {args.out}")


def export(args: argparse.Namespace) -> None:
    """Write a model for another engine; see `annotated export --help`. Raises as the writers do."""
    from annotated.translation import interop  # takes longer to import than `average` takes to run

    if args.quantization is not None and args.to != "ctranslate2":
        raise ValueError(f"--quantization is for --to ctranslate2, not {args.to}")
    options = {"quantization": args.quantization} if args.quantization else {}
    translator = Translator.load(args.model)
    write = {"ctranslate2": interop.to_ctranslate2, "marian": interop.to_marian}[args.to]
    write(args.out, translator.model, translator.src_tokenizer, translator.tgt_tokenizer, **options)
    if translator.tokenized:
        print_message(f"{args.model} reads lower-cased, tokenized text; the other engine does not check")
    if args.quantization == "int8":
        print_message(interop.ctranslate2.INT8)
    print_message(f"{args.out} is for {args.to}")


def reproduce(args: argparse.Namespace) -> int:
    """Train and score as a recipe says; see `annotated reproduce --help`."""
    recipe = recipes().get(args.name, Path(args.name))
    if recipe.suffix != ".toml":
        raise ValueError(f"{args.name!r} is not a recipe; they are: {', '.join(recipes())}")
    tables = read_toml(recipe)
    own_text = "src" in tables.get("evaluate", tables)  # such text has no splits
    splits = ["own"] if own_text else tables.get("card", {}).get("splits", ["val"])
    if "train" in tables and "evaluate" not in tables:  # the training would end with no score
        raise ValueError(f"{recipe} has no table [evaluate]; an empty one takes the defaults")
    if not isinstance(splits, list):
        raise ValueError(f"{recipe}: splits must be a list of names, not {splits!r}")
    for split in splits:  # each becomes a file's name
        if not re.fullmatch(r"\w[\w.-]*", str(split)):
            raise ValueError(f"{recipe}: {split!r} is not the name of a split")
    run = args.out or Path("runs") / recipe.stem
    common = [f"--config={recipe}", f"--device={args.device}", f"--threads={args.threads}"]
    common += ["--traceback"] if args.traceback else []
    seed = [f"--seed={args.seed}"] if "seed" in args else []
    status = main(["train", f"--out={run}", "--resume", *common, *seed])
    for split in splits if is_first() else ():
        if status:
            break
        scores = run / f"{split}.json"
        scores.unlink(missing_ok=True)  # `evaluate` replaces no file of the model
        print(split, flush=True)
        status = main(["evaluate", f"--model={run}", f"--split={split}", f"--json={scores}", *common])
    return status
