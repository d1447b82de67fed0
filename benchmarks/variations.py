"""What does each choice of the paper's Table 3 do, at the size of a laptop?

    python benchmarks/variations.py                                    every variation: two hours of one core
    python benchmarks/variations.py --only base "h = 1" --seeds 1      these, with one seed

Each model is trained on the built-in German-English corpus for as many updates on the same batches. Each
variation has the peak of the learning rate that suits it: of models with the first seed, the one with the
best perplexity on the validation text decides; where the lowest rate is the best, half of it is tried, too.
What counts are the scores at that rate on the test text.
"""

import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from records import Found, Record
from report import long_parser, parse_long
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm
from workload import Task, grammar_task

from annotated.metrics import bleu
from annotated.perplexity import score_tokens
from annotated.schedule import rate
from annotated.transformer.attention import Mask, MultiHeadedAttention
from annotated.transformer.config import TransformerConfig
from annotated.transformer.model import EncoderDecoder
from annotated.transformer.variants import Parts, variant
from annotated.translation.training.config import TrainingConfig
from annotated.translation.training.trainer import Trainer
from annotated.translation.training.validation import translate_greedily

FULL = {
    "updates": 1000,  # after 500, models with dropout and with four layers had hardly begun to learn
    "max_tokens": 768,
    "corpus": "grammar de-en",
    "base": {"N": 2, "d_model": 128, "d_ff": 256, "h": 4, "dropout": 0.1},
    "factors": [0.175, 0.35, 0.7, 1.4],  # of equation 3; the first is for rows where the second is the best
}
SHORT = {**FULL, "updates": 3, "max_tokens": 256, "base": {**FULL["base"], "d_model": 32, "d_ff": 32}}
SEVERAL = ("base", "smoothing 0", "smoothing 0.2")  # that have three seeds
VARIATIONS: dict[str, tuple[str, dict[str, Any]]] = {  # a row of Table 3, and what differs from the base
    "base": ("base", {}),
    "h = 1": ("A", {"h": 1}),
    "h = 2": ("A", {"h": 2}),
    "h = 8": ("A", {"h": 8}),
    "h = 16": ("A", {"h": 16}),
    "d_k = 16": ("B", {"d_k": 16}),
    "d_k = 8": ("B", {"d_k": 8}),
    "N = 1": ("C", {"N": 1}),
    "N = 4": ("C", {"N": 4}),
    "d_model = 64": ("C", {"d_model": 64}),
    "d_model = 256": ("C", {"d_model": 256}),
    "d_ff = 128": ("C", {"d_ff": 128}),
    "d_ff = 512": ("C", {"d_ff": 512}),
    "dropout 0": ("D", {"dropout": 0.0}),
    "dropout 0.2": ("D", {"dropout": 0.2}),
    "smoothing 0": ("D", {"smoothing": 0.0}),
    "smoothing 0.2": ("D", {"smoothing": 0.2}),
    "learned positions": ("E", {"positions": "learned", "max_len": 128}),
    "pre-norm": ("not in Table 3", {"norm_first": True}),
    "three matrices": ("not in Table 3", {"tied_embeddings": "none"}),
}


class NarrowKeys(MultiHeadedAttention):
    """Attention whose queries and keys are narrower than its values.

    The decoder's cache has one width for keys and values, so queries and keys are filled up with zeros, which
    change no product.
    """

    def __init__(self, h: int, d_model: int, dropout: float, width: int):
        super().__init__(h, d_model, dropout)
        self.width = width
        for i in (0, 1):
            self.linears[i] = nn.Linear(d_model, h * width)

    def split(self, x: Tensor) -> Tensor:
        """(B, T, h width or d_model) -> (B, h, T, d_k)."""
        heads = x.unflatten(-1, (self.h, -1)).transpose(-3, -2)
        return F.pad(heads, (0, self.d_k - heads.size(-1)))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """Equation 1, which divides by the root of the width that it sees."""
        return super().attend(q * math.sqrt(self.d_k / self.width), k, v, mask)


def variant_with(width: int) -> str:
    """Register a variant with keys of this width; returns its name."""

    @variant(name := f"d_k {width}")
    class Narrow(Parts):
        def attention(self) -> nn.Module:
            c = self.config
            return NarrowKeys(c.h, c.d_model, c.attention_dropout, width)

    return name


def train_and_score(task: Task, how: Found, changed: Found, factor: float, seed: int) -> Found:
    """Train a model whose rate rises for a third of the updates; perplexity is without smoothing."""
    started = time.perf_counter()
    changed, updates, size = dict(changed), how["updates"], len(task.tokenizer)
    smoothing, warmup = changed.pop("smoothing", 0.1), max(1, how["updates"] // 3)
    if "d_k" in changed:
        changed["variant"] = variant_with(changed.pop("d_k"))
    torch.manual_seed(seed)
    model = EncoderDecoder.from_config(TransformerConfig.tiny(size, size, **{**how["base"], **changed}))
    peak = rate(warmup, model.config.d_model, factor, warmup)
    config = TrainingConfig(
        max_steps=updates,
        max_tokens=how["max_tokens"],
        warmup=warmup,
        learning_rate=peak,
        smoothing=smoothing,
        average=0,
        keep=1,
        seed=seed,
    )
    tokenizers = task.tokenizer, task.tokenizer
    with tempfile.TemporaryDirectory() as folder:
        Trainer(model, tokenizers, task.train, None, config, Path(folder) / "run").fit()
    return {
        "seed": seed,
        "factor": factor,
        "peak": peak,
        "parameters": sum(p.numel() for p in model.parameters()),
        "val_perplexity": score_tokens(model, task.val.epoch(0)).perplexity,
        "perplexity": score_tokens(model, task.test.epoch(0)).perplexity,
        "bleu": bleu(*translate_greedily(model, task.test.epoch(0), task.tokenizer)).value,
        "minutes": (time.perf_counter() - started) / 60,
    }


def best(runs: list[Found]) -> float:
    """The factor of the rate with the best perplexity on the validation text, for the first seed."""
    first = [run for run in runs if run["seed"] == 0]
    return min(first, key=lambda run: run["val_perplexity"])["factor"]


def next_run(runs: list[Found], factors: list[float], seeds: int) -> tuple[float, int] | None:
    """The factor and the seed to train with next; None where all is done."""
    tried = [run["factor"] for run in runs if run["seed"] == 0]
    lowest, *usual = factors
    for factor in usual:
        if factor not in tried:
            return factor, 0
    if best(runs) == usual[0] and lowest not in tried:
        return lowest, 0
    done = {run["seed"] for run in runs if run["factor"] == best(runs)}
    return next(((best(runs), seed) for seed in range(1, seeds) if seed not in done), None)


def run(arguments: Sequence[str] | None = None) -> Found:
    """Train what is not recorded yet, and write the record after each model."""
    options = long_parser(__doc__, "variations")
    options.add_argument("--only", nargs="+", metavar="NAME", choices=VARIATIONS, help="these variations")
    options.add_argument("--seeds", type=int, default=3, help=f"of {', '.join(SEVERAL)} (default 3)")
    options = parse_long(options, arguments)
    how = SHORT if options.short else FULL
    record, task = Record(options.json, how), grammar_task(how["max_tokens"], options.short)
    names = options.only or (["base", "d_k = 8"] if options.short else list(VARIATIONS))
    for name in tqdm(names, unit="variation"):
        row, changed = VARIATIONS[name]
        seeds = options.seeds if name in SEVERAL and not options.short else 1
        while todo := next_run(runs_of(record, name), how["factors"], seeds):
            found = train_and_score(task, how, changed, *todo)
            with record.change() as known:
                each = known.setdefault("variations", {}).setdefault(
                    name, {"row": row, "settings": changed, "runs": []}
                )
                each["runs"].append(found)
                each["factor"] = best(each["runs"])
    return record.found()


def runs_of(record: Record, name: str) -> list[Found]:
    """The runs of a variation that are recorded by now."""
    return record.found().get("variations", {}).get(name, {"runs": []})["runs"]


if __name__ == "__main__":
    run()
