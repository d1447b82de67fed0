"""Make a model to ship of a run: half the bytes, its scores and a card.

    python tools/ship_model.py RUN RECIPE.toml FOLDER

The recipe says which splits to score, how to search, and the words of the card. Where half precision changes
the BLEU of the first split by more than `MAX_BLEU_CHANGE`, the weights stay as they are.
"""

import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from annotated.search.config import SearchConfig
from annotated.translation.data import load_corpus
from annotated.translation.evaluation import Results, read_scores, score_split
from annotated.translation.files import creating_folder, read_json, read_toml, write_json
from annotated.translation.storage.model_folder import (
    SETTINGS,
    WEIGHTS,
    load_model,
    training_settings,
    write_model,
)
from annotated.translation.storage.tensor_files import read_tensors
from annotated.translation.training.run_folder import LOG, RunFolder
from annotated.translation.translator import Translator

CARD = "README.md"
MAX_BLEU_CHANGE = 0.05

Texts = dict[str, Any]  # the table [card] of a recipe


def release(run: Path, recipe: Path, out: Path) -> None:
    """Write the model folder `out`, which must not be there, and score what was written."""
    tables = read_toml(recipe)
    settings = training_settings(run)
    corpus = load_corpus(settings["corpus"], settings["pair"], settings["tokenized"])
    options = settings["tokenized"], SearchConfig(**tables["evaluate"])

    def score(model: Path, split: str) -> Results:
        return score_split(Translator.load(model, "auto"), corpus, split, *options, progress=True)[0]

    first, *others = tables["card"]["splits"]
    with RunFolder(run).locked(), creating_folder(out) as folder:
        model, *tokenizers = load_model(run)
        write_model(folder, model.half(), *tokenizers)
        for name in (SETTINGS, LOG):
            shutil.copyfile(run / name, folder / name)
        whole, half = score(run, first), score(folder, first)
        change = bleu_of(half) - bleu_of(whole)
        if abs(change) > MAX_BLEU_CHANGE:
            print(f"half precision changes BLEU on {first} by {change:+.2f}: float32 is kept")
            write_model(folder, *load_model(run))
            half = whole
        scores = {first: half, **{split: score(folder, split) for split in others}}
        write_json(folder / "scores.json", {name: dataclasses.asdict(one) for name, one in scores.items()})
        (folder / CARD).write_text(card(recipe.stem, folder, tables["card"]), encoding="utf-8")


def bleu_of(results: Results) -> float:
    """Return the BLEU that others have published: on tokenized words, where there is that."""
    return next(score.value for score in (results.tokenized_bleu, results.bleu) if score)


def card(name: str, folder: Path, texts: Texts) -> str:
    """Write what a user should know of a released model, in Markdown: the recipe's words, our figures."""
    settings = read_json(folder / SETTINGS)
    src, tgt = settings["pair"].split("-")
    parts = [
        f"---\nlanguage: [{src}, {tgt}]\nlibrary_name: annotated\npipeline_tag: translation\n---",
        f"# {name}\n\n{texts['summary']}",
        usage(name, training_settings(folder)["tokenized"]),
        "## Scores\n\n" + score_lines(name, read_scores(folder), texts),
        f"## Data and terms\n\n{texts['data'].strip()}",
        "## Training\n\n" + training_lines(folder, settings),
        "## Known failures\n\n" + "\n".join(f"- {line}" for line in texts["failures"]),
    ]
    return "\n\n".join(parts) + "\n"


def usage(name: str, tokenized: bool) -> str:
    """Show how to call the model."""
    if tokenized:
        return f"```bash\nannotated translate --model {name} < tokenized.en > tokenized.de\n```"
    python = f'from annotated import load_pretrained\n\nprint(load_pretrained("{name}")("..."))'
    shell = f"annotated translate --model {name} < source.txt > target.txt"
    return f"```python\n{python}\n```\n\n```bash\n{shell}\n```"


def score_lines(name: str, scores: dict[str, Results], texts: Texts) -> str:
    """Write a section for each split: the command that gives its scores, and the lines that it prints.

    Below stand the published figure beside ours, and the remark; each only if there is one.
    """
    parts = ["Without flags a search is the paper's: a beam of 4, its length penalty, alpha 0.6."]
    for split, found in scores.items():
        flags = f"--split {split} --beam {found.beam} --penalty {found.penalty} --alpha {found.alpha}"
        command = f"$ annotated evaluate --model {name} {flags}"
        parts.append(f"`{split}`, {found.sentences:,} sentences:\n\n```\n{command}\n{found}\n```")
    if published := texts.get("published"):
        ours = getattr(scores[published["split"]], published["score"])
        parts.append(
            f"Published on `{published['split']}`: BLEU {published['value']:.2f} ({published['what']}). "
            f"This model: {ours.value:.2f}, 95% interval {ours.low:.2f} to {ours.high:.2f}."
        )
    if remark := texts.get("remark"):
        parts.append(remark.strip())
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


if __name__ == "__main__":
    release(*map(Path, sys.argv[1:]))
