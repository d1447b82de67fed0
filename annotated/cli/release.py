"""`annotated reproduce`: train as a recipe says; release the run with half the bytes, its scores, a card."""

import argparse
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import torch

from annotated.cli.main import main, parse
from annotated.cli.recipes import Card, read_recipe, recipe_path
from annotated.cli.train import choose_device, training_corpus
from annotated.data import load_corpus
from annotated.files import creating_folder, read_json, write_json
from annotated.training.distributed import is_first, say
from annotated.training.run_folder import LOG, RunFolder
from annotated.translation.evaluate import Results, score_split
from annotated.translation.model_folder import SETTINGS, WEIGHTS, load_model, save_model
from annotated.translation.tensor_files import read_tensors
from annotated.translation.translator import Translator

SCORES, CARD = "scores.json", "README.md"
MAX_BLEU_CHANGE = 0.05  # by which half precision may move a score


def reproduce(args: argparse.Namespace) -> int:
    """Train and release what a recipe describes; see `annotated reproduce --help`."""
    recipe = Path(args.name) if args.name.endswith(".toml") else recipe_path(args.name)
    run = args.out or Path("runs") / recipe.stem
    seed = [] if args.seed is None else [f"--seed={args.seed}"]
    machine = [f"--device={args.device}", f"--threads={args.threads}", *seed]
    training = ["train", f"--config={recipe}", f"--out={run}", "--resume", *machine]
    check_recipe(recipe, parse(training))
    if (status := main(training)) or not is_first():
        return status
    for split, results in release(run, recipe, run / "release", choose_device(args)).items():
        print(f"{split}\n{results}")
    say(f"the model, its scores and its card are in {run / 'release'}")
    return 0


def check_recipe(path: Path, args: argparse.Namespace) -> None:
    """Raise ValueError naming what would fail after a training with `args`, which may take hours."""
    card = read_recipe(path).card
    if args.src or args.val_src:
        own = "for your own --src there are train and evaluate"
        raise ValueError(f"{path}: a recipe takes a corpus by its name; {own}")
    corpus = training_corpus(args)
    for split in card.splits:
        if split not in corpus.splits:
            known = ", ".join(corpus.splits)
            raise ValueError(f"{path}: {corpus.name} has no split {split!r}; its splits are {known}")
    if card.published and card.published.score == "bleu" and args.variant == "tok":
        raise ValueError(f"{path}: published.score must be tokenized_bleu for text that is tokenised")


def release(run: Path, recipe: Path, out: Path, device: torch.device | str = "cpu") -> dict[str, Results]:
    """Write the model folder `out` from the run's weights, in half precision, and score what was written.

    Returns the scores by split; the recipe says which splits, and how to search. Where half precision
    changes the BLEU of the first of them by more than `MAX_BLEU_CHANGE`, the weights stay as they are. A
    model that is at `out` already gives way once the new one is whole. Raises as `read_recipe`, `load_model`
    and `load_corpus` do.
    """
    says = read_recipe(recipe)
    settings = read_json(run / SETTINGS)
    corpus = load_corpus(settings["corpus"], settings["pair"], settings["path"], settings["variant"])
    search = {"tokenized": settings["variant"] == "tok", **dataclasses.asdict(says.evaluate)}

    def score(model: Path, split: str) -> Results:
        return score_split(Translator.load(model, device), corpus, split, **search, progress=True)[0]

    first, *others = says.card.splits
    with RunFolder(run).locked(), creating_folder(out, replace=True) as folder:
        for name in (SETTINGS, LOG):
            shutil.copyfile(run / name, folder / name)
        model, *tokenizers = load_model(run)
        save_model(folder, model.half(), *tokenizers)
        whole, half = score(run, first), score(folder, first)
        moved = one_bleu(half) - one_bleu(whole)
        if abs(moved) > MAX_BLEU_CHANGE:
            say(f"half precision moves BLEU on {first} by {moved:+.2f}: float32 is kept")
            save_model(folder, *load_model(run))
            half = whole
        scores = {first: half, **{split: score(folder, split) for split in others}}
        write_json(folder / SCORES, {split: dataclasses.asdict(found) for split, found in scores.items()})
        (folder / CARD).write_text(card(recipe.stem, folder, says.card), encoding="utf-8")
    return scores


def one_bleu(found: Results) -> float:
    """Return the BLEU that has been published of others: on tokenised words, where there is that."""
    return next(score.value for score in (found.tokenized_bleu, found.bleu) if score)


def read_scores(folder: Path) -> dict[str, Results]:
    """Read the scores of a released model, by split. Raises as `read_json` does."""
    return {split: Results.from_json(found) for split, found in read_json(folder / SCORES).items()}


def card(name: str, folder: Path, texts: Card) -> str:
    """Write what a user should know of a released model, in Markdown: the recipe's words, our figures."""
    settings = read_json(folder / SETTINGS)
    src, tgt = settings["pair"].split("-")
    parts = [
        f"---\nlanguage: [{src}, {tgt}]\nlibrary_name: annotated\npipeline_tag: translation\n---",
        f"# {name}\n\n{texts.summary}",
        usage(name, settings["variant"] == "tok"),
        "## Scores\n\n" + score_lines(name, read_scores(folder), texts),
        f"## Data and terms\n\n{texts.data.strip()}",
        "## Training\n\n" + training_lines(folder, settings),
        "## Known failures\n\n" + "\n".join(f"- {line}" for line in texts.failures),
    ]
    return "\n\n".join(parts) + "\n"


def usage(name: str, tokenized: bool) -> str:
    """Show how to call the model."""
    if tokenized:
        return f"```bash\nannotated translate --model {name} --tokenized < tokenised.en > tokenised.de\n```"
    python = f'from annotated import load_pretrained\n\nprint(load_pretrained("{name}")("..."))'
    shell = f"annotated translate --model {name} < source.txt > target.txt"
    return f"```python\n{python}\n```\n\n```bash\n{shell}\n```"


def score_lines(name: str, scores: dict[str, Results], texts: Card) -> str:
    """Write a section for each split: the command that gives its scores, and the lines that it prints.

    Below stand the published figure beside ours, and the remark; each only if there is one.
    """
    parts = ["Without flags a search is the paper's: a beam of 4, its length penalty, alpha 0.6."]
    for split, found in scores.items():
        flags = f"--split {split} --beam {found.beam} --penalty {found.penalty} --alpha {found.alpha}"
        command = f"$ annotated evaluate --model {name} {flags}"
        parts.append(f"`{split}`, {found.sentences:,} sentences:\n\n```\n{command}\n{found}\n```")
    if published := texts.published:
        ours = getattr(scores[published.split], published.score)
        parts.append(
            f"Published on `{published.split}`: BLEU {published.value:.2f} ({published.what}). "
            f"This model: {ours.value:.2f}, 95% interval {ours.low:.2f} to {ours.high:.2f}."
        )
    if texts.remark:
        parts.append(texts.remark.strip())
    return "\n\n".join(parts)


def training_lines(folder: Path, settings: dict[str, Any]) -> str:
    """Tell how much training it took, and list every setting of it."""
    log = [json.loads(line) for line in (folder / LOG).read_text(encoding="utf-8").splitlines()]
    seen = max(line.get("tokens", 0) for line in log)
    size = sum(tensor.numel() for tensor in read_tensors(folder / WEIGHTS).values())
    table = "\n".join(f"| {name} | {value} |" for name, value in settings.items() if value is not None)
    return (
        f"{size:,} parameters; {log[-1]['step']:,} updates on {seen:,} "
        f"target tokens took {log[-1]['seconds'] / 60:.0f} minutes, validation not counted. The log is in "
        f"`{LOG}`.\n\n"
        f"| setting | value |\n| --- | --- |\n{table}"
    )
