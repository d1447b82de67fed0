"""Break the package in several ways, each in a copy, and show that the notebook which teaches each fails.

    python tools/notebooks/mutants.py            all of them
    python tools/notebooks/mutants.py norm       those whose name holds this

A notebook that still runs to its end would teach something that it does not check. Exit code 1: one did.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[2]


class Mutant(NamedTuple):
    """A fault to put into the package: `old` stands once in `module`, and becomes `new`."""

    name: str
    module: str
    old: str
    new: str
    notebook: str


MUTANTS = (
    Mutant(
        "weights that do not sum to 1",
        "transformer/attention.py",
        "weights = scores.softmax(dim=-1)",
        "weights = scores.sigmoid()",
        "01_why_attention",
    ),
    Mutant(
        "mask flipped",
        "transformer/attention.py",
        "scores.masked_fill(~mask, torch.finfo",
        "scores.masked_fill(mask, torch.finfo",
        "02_attention",
    ),
    Mutant(
        "scale dropped",
        "transformer/attention.py",
        "key.transpose(-2, -1) / math.sqrt(query.size(-1))",
        "key.transpose(-2, -1)",
        "02_attention",
    ),
    Mutant(
        "heads cut without the transpose",
        "transformer/attention.py",
        "return x.view(*x.shape[:-1], -1, self.d_k).transpose(-3, -2)",
        "return x.reshape(x.size(0), self.h, x.size(1), self.d_k)",
        "03_multi_head_attention",
    ),
    Mutant(
        "embeddings unscaled",
        "transformer/layers.py",
        "return self.lut(tokens) * math.sqrt(self.d_model)",
        "return self.lut(tokens)",
        "04_feed_forward_and_embeddings",
    ),
    Mutant(
        "target unshifted",
        "data/batches.py",
        "self.tgt_y = tgt[:, 1:]",
        "self.tgt_y = tgt[:, :-1]",
        "07_batches_and_masks",
    ),
    Mutant(
        "norm moved",
        "transformer/layers.py",
        "return self.norm(x + self.dropout(sublayer(x)))",
        "return x + self.dropout(sublayer(self.norm(x)))",
        "06_the_full_model",
    ),
    Mutant(
        "positions off by one",
        "transformer/positions.py",
        "position = torch.arange(length, ",
        "position = torch.arange(1, length + 1, ",
        "05_positional_encoding",
    ),
    Mutant(
        "smoothing mass misplaced",
        "training/loss.py",
        "torch.full_like(x, self.smoothing / (self.size - 2)",
        "torch.full_like(x, self.smoothing / self.size",
        "08_training_recipe",
    ),
    Mutant(
        "dropout left on",
        "transformer/evaluating.py",
        "            module.training = False\n",
        "            module.training = True\n",
        "09_first_example",
    ),
    Mutant(
        "padding counted in the loss",
        "training/loss.py",
        "real = target != padding_idx",
        "real = target >= 0",
        "08_training_recipe",
    ),
    Mutant(
        "cache off by one",
        "transformer/model.py",
        "self.tgt_embed(tgt, before)",
        "self.tgt_embed(tgt, before + (cache is not None))",
        "11_search_and_averaging",
    ),
    Mutant(
        "penalty inverted",
        "search/beam.py",
        "score = log_prob / length_penalty(",
        "score = log_prob * length_penalty(",
        "11_search_and_averaging",
    ),
    Mutant(
        "hypotheses and references exchanged",
        "metrics.py",
        "scorer._extract_corpus_statistics(hypotheses, [references])",
        "scorer._extract_corpus_statistics(references, [hypotheses])",
        "10_translation",
    ),
    Mutant(
        "queries, keys and values in another order",
        "interop/torch_transformer.py",
        "zip(parts, state[name].chunk(len(parts)), strict=True)",
        "zip(reversed(parts), state[name].chunk(len(parts)), strict=True)",
        "14_nn_transformer",
    ),
    Mutant(
        "links that must be found not counted",
        "metrics.py",
        "links = len(predicted) + len(sure)",
        "links = len(predicted)",
        "13_reading_attention",
    ),
    Mutant(
        "a variant's norm forgotten",
        "transformer/model.py",
        '"norm_first": c.norm_first, "norm": parts.norm()}',
        '"norm_first": c.norm_first}',
        "evidence/which_changes_since_2017_pay",
    ),
    Mutant(
        "a variant's attention across forgotten",
        "transformer/model.py",
        "src_attn = parts.cross_attention() or src_attn",
        "src_attn = src_attn",
        "evidence/which_changes_since_2017_pay",
    ),
)


def apply(mutant: Mutant, package: Path) -> None:
    """Put the fault in. Raises ValueError where the code to change does not stand there exactly once."""
    path = package / mutant.module
    code = path.read_text(encoding="utf-8")
    if (found := code.count(mutant.old)) != 1:
        raise ValueError(f"{mutant.name}: {mutant.module} holds {mutant.old!r} {found} times, not once")
    path.write_text(code.replace(mutant.old, mutant.new), encoding="utf-8")


def run(mutant: Mutant, folder: Path) -> str | None:
    """Where the notebook failed in a copy of the project with this fault; None if it did not."""
    for name in ("annotated", "notebooks", "images", "tools/notebooks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    apply(mutant, folder / "annotated")
    found = subprocess.run(
        [sys.executable, "tools/notebooks/build.py", mutant.notebook],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in found.stderr.splitlines() if line.strip()]
    return None if found.returncode == 0 else next((ln for ln in lines if ", cell " in ln), lines[-1])


def main(wanted: Sequence[str]) -> int:
    """Try the mutants whose names hold one of `wanted`, or all; one line each."""
    survived = 0
    for mutant in tqdm([m for m in MUTANTS if not wanted or any(w in m.name for w in wanted)], disable=None):
        with tempfile.TemporaryDirectory() as folder:
            where = run(mutant, Path(folder))
        survived += where is None
        tqdm.write(f"{mutant.name}: {where or f'{mutant.notebook} did not notice'}")
    return min(1, survived)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
