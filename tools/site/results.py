"""Write the tables of results, from the shipped models' scores, and of speeds, from the records.

    python tools/site/results.py    into README.md and benchmarks/README.md

Each stands between two comments, such as `<!-- results -->` and `<!-- end of results -->`; a test compares.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from annotated.metrics import Score
from annotated.recorded import RECORDED, made, recorded
from annotated.translation.cli.flags import recipes
from annotated.translation.evaluation import read_scores
from annotated.translation.files import read_toml
from annotated.translation.storage.model_folder import WEIGHTS, shipped_model, shipped_models
from annotated.translation.storage.tensor_files import read_tensors

ROOT = Path(__file__).resolve().parents[2]
SPLIT = "test_2016_flickr"
RACES = {  # a record of benchmarks/, and what it is about
    "train-tiny": "training, d_model 128",
    "train-small": "training, d_model 256",
    "train-base": "training, the base model",
    "train-base-bf16": "training, the base model",
    "train-base-cuda": "training on a GPU, the base model",
    "train-base-bf16-cuda": "training on a GPU, the base model",
    "train-big-bf16-cuda": "training on a GPU, the big model",
    "decode": "translating, `multi30k-en-de`",
    "decode-cuda": "translating on a GPU, `multi30k-en-de`",
    "decode-base-cuda": "translating on a GPU, the base model with random weights",
    "memory": "memory in training, the base model",
    "memory-cuda": "memory of the GPU in training, the base model",
}
RIVALS = {  # those candidates of the races that are not ours; and ours, with which they are compared
    "torch.nn.Transformer": "`torch.nn.Transformer`",
    "torch.nn.Transformer with our loss": "`torch.nn.Transformer` with our loss",
    "x-transformers as it comes": "x-transformers as it comes",
    "x-transformers": "x-transformers with `attn_flash=True`",
    "Hugging Face Marian": "Hugging Face Marian",
    "Hugging Face Marian in our threads": "Hugging Face Marian in our threads",
    "CTranslate2": "CTranslate2 (C++, float32)",
    "annotated": "ours, in float32",
}
KINDS = {"train": "training", "decode": "translating", "memory": "memory", "quantization": "int8"}  # of races
# The three comparisons that the README tells: a record, the rival in it, what was raced, and a remark.
TOLD = (
    ("train-small", "torch.nn.Transformer", "training, d_model 256", ""),
    ("decode", "Hugging Face Marian, beam 5", "translating, beam 5", ""),
    ("decode", "CTranslate2, beam 5", "translating, beam 5", ", which `--engine ctranslate2` takes"),
)


def results_table() -> str:
    """The shipped models, a row each: BLEU with its 95% interval, beside what was published."""
    head = f"| model | parameters | BLEU on `{SPLIT}`, tokenized | cased, as written | published |"
    return table(head, map(model_row, shipped_models()))


def model_row(name: str) -> list[str]:
    """One model's cells."""
    folder = shipped_model(name)
    scores = read_scores(folder)[SPLIT]
    published = read_toml(recipes()[name])["card"].get("published")
    size = sum(tensor.numel() for tensor in read_tensors(folder / WEIGHTS).values())
    return [
        f"[`{name}`](annotated/translation/pretrained/{name}/README.md)",
        f"{size:,}",
        bounds(scores.tokenized_bleu),
        bounds(scores.bleu),
        f"{published['value']:.2f}, {published['what']}" if published else "",
    ]


def bounds(score: Score | None) -> str:
    """A score with its interval; nothing where there is none."""
    return "" if score is None else f"**{score.value:.2f}** ({score.low:.1f} to {score.high:.1f})"


def speed_table() -> str:
    """Every race that is recorded: how fast we are, how many times as fast as whom, and where that was."""
    there = [name for name in RACES if (RECORDED / f"{name}.json").exists()]
    rows = [row for name in there for row in race_rows(name)]
    return table("| what | ours | against | |", rows) + measured_on(there)


def three_speeds() -> str:
    """The three comparisons of `TOLD`, a line each, and where they were measured."""
    lines = []
    for name, peer, what, remark in TOLD:
        [each] = [each for each in recorded(name)["comparisons"] if each["peer"] == peer]
        rival, ratio = RIVALS[peer.partition(", ")[0]], times(each).replace(" x**", " times**")
        lines.append(f"- {what}: {ratio} the speed of {rival}{remark}\n")
    return "".join(lines) + measured_on([name for name, *_ in TOLD])


def table(head: str, rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown, below the line that heads it."""
    rule = "| --- " * (head.count("|") - 1) + "|"
    return "".join(f"{line}\n" for line in [head, rule, *(f"| {' | '.join(cells)} |" for cells in rows)])


def measured_on(records: Iterable[str]) -> str:
    """A line that says on which machine the records were made, or which of them on which."""
    found: dict[str, dict[str, None]] = {}  # the kinds of races of each machine, in order
    for name in records:
        facts = made(name)[-1]["machine"]
        gpu = f", {facts['gpu']}" if facts["gpu"] else ""
        where = f"{facts['cores']} cores, {facts['processor']}{gpu}, torch {facts['versions']['torch']}"
        found.setdefault(where, {})[KINDS[recorded(name)["question"]]] = None
    if len(found) == 1:
        return f"\nMeasured on {next(iter(found))}.\n"
    lines = [f"{' and '.join(kinds)} on {where}" for where, kinds in found.items()]
    return f"\nMeasured: {'; '.join(lines)}.\n"


def race_rows(name: str) -> Iterator[list[str]]:
    """One record's rows."""
    record = recorded(name)
    for (rival, detail), each in rivals(record).items():
        what = f"{RACES[name]}, {detail}" if detail else RACES[name]
        speed = amount(record, record["candidates"][each["ours"]]["median"])
        yield [what, speed, RIVALS[rival], times(each)]


def times(each: dict[str, Any]) -> str:
    """A ratio with its interval, bold where that says who is ahead."""
    ratio, within = f"{each['ratio']:.2f} x", f"({each['low']:.2f} to {each['high']:.2f})"
    if each["low"] <= 1 <= each["high"]:
        return f"{ratio} {within}, too close to tell"
    return f"**{ratio}** {within}"


def int8_table() -> str:
    """What int8 does to the shipped models in CTranslate2: bytes, BLEU and speed, with VNNI and without."""
    record = recorded("quantization")
    scores = {
        (each["instructions"], each["model"]): [f"{each[form]:.2f}" for form in ("float32", "int8")]
        for each in record["scores"]
        if each["split"] == SPLIT
    }
    rows = []
    for each in record["speeds"]:
        model, on = each["model"], each["instructions"]
        size = [f"{record['bytes'][model][form] / 1e6:.1f}" for form in ("float32", "int8")]
        rows.append([f"`{model}`", on, " → ".join(size), " → ".join(scores[on, model]), times(each)])
    head = f"| model | processor with | MB | BLEU on `{SPLIT}` | int8 is so many times as fast |"
    return table(head, rows) + measured_on(["quantization"])


def rivals(record: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """The comparisons to tell of, by the rival and by what of the task stands in its name, such as "beam 5".

    In bf16 they are ours in float32 and, of each other rival's ways of computing in bf16, the fastest.
    """
    half = record["settings"].get("precision") == "bf16"
    found: dict[tuple[str, str], dict[str, Any]] = {}
    medians = {name: summary["median"] for name, summary in record["candidates"].items()}
    for each in record["comparisons"]:
        rival, _, detail = each["peer"].partition(", ")
        if rival not in RIVALS or (half and rival != "annotated" and not detail):
            continue
        what = rival, "bf16" if half else detail
        if what not in found or medians[each["peer"]] < medians[found[what]["peer"]]:
            found[what] = each
    return found


def amount(record: dict[str, Any], median: float) -> str:
    """A candidate's speed, or its memory, with the unit."""
    if "unit" in record:
        return f"{median:,.0f} {record['unit']}"
    unit = "target_tokens" if "target_tokens" in record else "sentences"
    return f"{record[unit] / median:,.0f} {unit.replace('_', ' ')}/s"


TEXTS = {  # of benchmarks/own_data.py, with their scores
    "captions": "captions of photographs, BLEU",
    "interface": "strings of user interfaces, BLEU",
    "grammar": "the built-in grammar, BLEU",
    "emojis": "names of emojis, BLEU",
    "dates": "dates, % right",
    "numbers": "numbers in words, % right",
    "spelling": "French words and their phones, % right",
    "pronunciations": "English words and their phones, % right",
    "hyphens": "hyphens in English words, % right",
}


def own_data_table() -> str:
    """What is chosen for a text of one's own, beside random settings that had the same time, a row a text."""
    runs = [run for run in recorded("own_data")["runs"] if not run["pairs"]]
    rows = []
    for data, what in TEXTS.items():
        chosen, drawn = (
            [run for run in runs if (run["data"], run["kind"]) == (data, kind)]
            for kind in ("chosen", "random")
        )
        chosen = [run for run in chosen if run["commit"] == chosen[-1]["commit"]]  # of the latest rules
        if chosen:
            scores = ", ".join(map(with_interval, chosen))
            best = max(drawn, key=lambda run: run["score"])
            rows.append([what, shape(chosen[0]), scores, with_interval(best), f"{len(drawn)}"])
    head = "| text and score | chosen | two seeds, with 95% intervals | best of random settings | draws |"
    return table(head, rows)


def own_sizes_table() -> str:
    """What is chosen for more and more pairs of two texts, and the score that it has."""
    rows = []
    for data, what in (("interface", "user interfaces"), ("drawn-grammar", "grammar")):
        runs = [run for run in recorded("own_data")["runs"] if run["data"] == data]
        most = max(run.get("trained_on", 0) for run in runs)  # the oldest runs do not say
        chosen = {
            run["pairs"] or most: run
            for run in runs
            if (run["kind"], run["of"], run["seed"]) == ("chosen", 300, 0)
        }
        rows += [
            [what, f"{pairs:,}", shape(run), with_interval(run)] for pairs, run in sorted(chosen.items())
        ]
    return table("| text | pairs | chosen | BLEU |", rows)


def with_interval(run: dict[str, Any]) -> str:
    """A score and its 95% interval."""
    return f"{run['score']:.1f} ({run['low']:.1f} to {run['high']:.1f})"


def shape(run: dict[str, Any]) -> str:
    """The settings of a run, in short."""
    s = run["settings"]
    words = f", {s['vocab']:,} subwords" if s.get("vocab") else ""
    updates = f"{s['max_steps']:,} updates of {s['max_tokens']:,} tokens, rate {s['learning_rate']:.4f}"
    return f"{s['N']} layers of {s['d_model']}{words}, dropout {s['dropout']}; {updates}"


PAGES = {
    ROOT / "tools" / "site" / "pages" / "train.md": {
        "own_data": own_data_table,
        "own_sizes": own_sizes_table,
    },
    ROOT / "README.md": {"results": results_table, "speeds": three_speeds},
    ROOT / "benchmarks" / "README.md": {"speeds": speed_table, "int8": int8_table},
}


def render(page: str, tables: dict[str, Callable[[], str]]) -> str:
    """A page with the tables of now. Raises ValueError where the place of one is not marked."""
    for name, make in tables.items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        if not place.search(page):
            raise ValueError(f"the page has no place for the {name}: {place.pattern}")
        page = place.sub(lambda found, make=make: found[1] + make() + found[2], page)
    return page


if __name__ == "__main__":
    for path, tables in PAGES.items():
        path.write_text(render(path.read_text(encoding="utf-8"), tables), encoding="utf-8", newline="\n")
