"""Write the README's table of results, from what was recorded with the shipped models.

    python docs/results.py            write it
    python docs/results.py --check    exit code 1 if the README says something else

The table stands between two comments, `<!-- results -->` and `<!-- end of results -->`.
"""

import argparse
import re
from pathlib import Path

from annotated.checkpoints import WEIGHTS, read_tensors, shipped_model, shipped_models
from annotated.evaluation import Score
from annotated.files import read_toml
from annotated.recipes import recipe_path
from annotated.release import read_scores

README = Path(__file__).resolve().parents[1] / "README.md"
PLACE = re.compile(r"(<!-- results -->\n).*?(<!-- end of results -->)", re.DOTALL)
SPLIT = "test_2016_flickr"


def results_table() -> str:
    """The shipped models, a row each: BLEU with its 95% interval, beside what was published."""
    head = [
        f"| model | parameters | BLEU on `{SPLIT}`, tokenised | cased, as written | published |",
        "| --- | --- | --- | --- | --- |",
    ]
    return "\n".join([*head, *map(row, shipped_models())]) + "\n"


def row(name: str) -> str:
    """One model's row."""
    folder = shipped_model(name)
    scores = read_scores(folder)[SPLIT]
    published = read_toml(recipe_path(name))["card"].get("published")
    size = sum(tensor.numel() for tensor in read_tensors(folder / WEIGHTS).values())
    theirs = f"{published['value']:.2f}, {published['what']}" if published else ""
    cells = [
        f"[`{name}`](annotated/pretrained/{name}/README.md)",
        f"{size:,}",
        bounds(scores.tokenized_bleu),
        bounds(scores.bleu),
        theirs,
    ]
    return f"| {' | '.join(cells)} |"


def bounds(score: Score | None) -> str:
    """A score with its interval; nothing where there is none."""
    return "" if score is None else f"**{score.value:.2f}** ({score.low:.1f} to {score.high:.1f})"


def render(readme: str) -> str:
    """The README with the table of now. Raises ValueError where its place is not marked."""
    if not PLACE.search(readme):
        raise ValueError(f"{README.name} has no place for the results: {PLACE.pattern}")
    return PLACE.sub(lambda found: found[1] + results_table() + found[2], readme)


def main() -> int:
    """Write the README, or compare it."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--check", action="store_true", help="write nothing; tell whether it is up to date")
    check = options.parse_args().check
    before = README.read_text(encoding="utf-8")
    after = render(before)
    if not check:
        README.write_text(after, encoding="utf-8", newline="\n")
    elif before != after:
        print("README.md: the results are others now: python docs/results.py")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
