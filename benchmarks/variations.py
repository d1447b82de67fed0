"""What does each choice of the paper's Table 3 do, at the size of a laptop?

    python benchmarks/variations.py --estimate        how long one model takes here, and how long all
    python benchmarks/variations.py                   every variation, a seed each
    python benchmarks/variations.py --seeds 3 --only base "smoothing 0" "smoothing 0.2"    these with three

Each model is trained on the built-in German-English corpus for as many updates on the same batches. Each
variation has the peak of the learning rate that suits it: of three models with the first seed, the one with
the best perplexity on the validation text decides. The other seeds are trained at that rate. What counts are
the scores of those at that rate on the test text. What is done already is read from the file that is
written, and not done again; two processes with other variations may write the same file.
"""

import argparse
import json
import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import torch
from report import print_table
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from annotated.data import Corpus, TokenBatches, encode_corpus, load_corpus
from annotated.files import read_json, write_json
from annotated.metrics import greedy_bleu, score_tokens
from annotated.tokenizers import SentencePieceTokenizer
from annotated.training.config import TrainingConfig
from annotated.training.trainer import Trainer
from annotated.transformer.attention import Mask, MultiHeadedAttention
from annotated.transformer.model import EncoderDecoder, TransformerConfig
from annotated.transformer.parts import Parts, variant
from annotated.transformer.schedule import rate
from annotated.translation.evaluate import RECORDED

UPDATES = 1000  # after 500, models with dropout and with four layers had hardly begun to learn
BASE = {"N": 2, "d_model": 128, "d_ff": 256, "h": 4, "dropout": 0.1}
FACTORS = (0.35, 0.7, 1.4)  # of equation 3: half the base model's, that, and twice that


class Variation(NamedTuple):
    """A row of Table 3, a name, and what differs from the base model."""

    row: str
    name: str
    settings: dict[str, object]


VARIATIONS = [
    Variation("base", "base", {}),
    Variation("A", "h = 1", {"h": 1}),
    Variation("A", "h = 2", {"h": 2}),
    Variation("A", "h = 8", {"h": 8}),
    Variation("A", "h = 16", {"h": 16}),
    Variation("B", "d_k = 16", {"d_k": 16}),
    Variation("B", "d_k = 8", {"d_k": 8}),
    Variation("C", "N = 1", {"N": 1}),
    Variation("C", "N = 4", {"N": 4}),
    Variation("C", "d_model = 64", {"d_model": 64}),
    Variation("C", "d_model = 256", {"d_model": 256}),
    Variation("C", "d_ff = 128", {"d_ff": 128}),
    Variation("C", "d_ff = 512", {"d_ff": 512}),
    Variation("D", "dropout 0", {"dropout": 0.0}),
    Variation("D", "dropout 0.2", {"dropout": 0.2}),
    Variation("D", "smoothing 0", {"smoothing": 0.0}),
    Variation("D", "smoothing 0.2", {"smoothing": 0.2}),
    Variation("E", "learned positions", {"positions": "learned", "max_len": 128}),
    Variation("not in Table 3", "pre-norm", {"norm_first": True}),
    Variation("not in Table 3", "three matrices", {"tied_embeddings": "none"}),
]


class WideAttention(MultiHeadedAttention):
    """Attention whose heads have keys of any width d_k and values of any width d_v, not d_model / h.

    The decoder's cache has one width for both, so the narrower are filled up with zeros, which change no
    product of query and key.
    """

    def __init__(self, h: int, d_model: int, dropout: float, d_k: int, d_v: int):
        super().__init__(h, d_model, dropout)
        self.d_k, self.d_v = d_k, d_v
        maps = [nn.Linear(d_model, h * width) for width in (d_k, d_k, d_v)]
        self.linears = nn.ModuleList([*maps, nn.Linear(h * d_v, d_model)])

    def split(self, x: Tensor) -> Tensor:
        """(B, T, h d_k or h d_v) -> (B, h, T, the wider of the two)."""
        heads = x.unflatten(-1, (self.h, -1)).transpose(-3, -2)
        return F.pad(heads, (0, max(self.d_k, self.d_v) - heads.size(-1)))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """Equation 1, which divides by the root of the width that it sees."""
        return super().attend(q * math.sqrt(q.size(-1) / self.d_k), k, v, mask)[..., : self.d_v]


def parts_with(d_k: int, d_v: int) -> str:
    """Register parts with such heads; returns their name."""

    @variant(name := f"d_k {d_k}, d_v {d_v}")
    class Wide(Parts):
        def attention(self) -> nn.Module:
            c = self.config
            return WideAttention(c.h, c.d_model, c.attention_dropout, d_k, d_v)

    return name


class Task(NamedTuple):
    """What every variation is trained and scored on."""

    tokenizer: SentencePieceTokenizer
    train: TokenBatches
    held_out: TokenBatches
    test: TokenBatches


def prepare(max_tokens: int) -> Task:
    """The built-in corpus in 2,000 joint subwords."""
    corpus: Corpus = load_corpus("grammar", "de-en")
    tokenizer = SentencePieceTokenizer.train([*corpus["train"].src, *corpus["train"].tgt], vocab_size=2000)
    train, *others = (encode_corpus(corpus[name], tokenizer, tokenizer) for name in ("train", "val", "test"))
    held_out = (TokenBatches(pairs, 4096, shuffle=False) for pairs in others)
    return Task(tokenizer, TokenBatches(train, max_tokens), *held_out)


def build(size: int, settings: dict[str, object]) -> EncoderDecoder:
    """A new model: the base with these settings."""
    settings = {**BASE, **settings}
    if "d_k" in settings or "d_v" in settings:
        width = settings["d_model"] // settings["h"]
        settings["parts"] = parts_with(settings.pop("d_k", width), settings.pop("d_v", width))
    return EncoderDecoder.from_config(TransformerConfig.tiny(size, size, **settings))


def train(task: Task, settings: dict[str, object], updates: int, factor: float, seed: int) -> EncoderDecoder:
    """Train one model; its rate rises for a third of the updates."""
    settings = dict(settings)
    smoothing, warmup = settings.pop("smoothing", 0.1), updates // 3
    torch.manual_seed(seed)
    model = build(len(task.tokenizer), settings)
    training = TrainingConfig(
        max_steps=updates,
        max_tokens=task.train.max_tokens,
        warmup=warmup,
        learning_rate=rate(warmup, model.config.d_model, factor, warmup),
        smoothing=smoothing,
        average=0,
        keep=1,
        seed=seed,
    )
    tokenizers = (task.tokenizer, task.tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        Trainer(model, tokenizers, lambda _: task.train, None, training, Path(folder) / "run").train()
    return model


def score(task: Task, model: EncoderDecoder) -> dict[str, float]:
    """Perplexity without smoothing on both texts, and BLEU of greedy search on the test text."""
    return {
        "val_perplexity": score_tokens(model, task.held_out.epoch(0)).perplexity,
        "perplexity": score_tokens(model, task.test.epoch(0)).perplexity,
        "bleu": greedy_bleu(model, task.test.epoch(0), task.tokenizer).value,
    }


def best(runs: list[dict]) -> float:
    """The factor of the rate with the best perplexity on the validation text, for the first seed."""
    first = [run for run in runs if run["seed"] == 0]
    return min(first, key=lambda run: run["val_perplexity"])["factor"]


def left(runs: list[dict], seeds: int) -> Iterator[tuple[float | None, int]]:
    """What is left to train of a variation: factor and seed; None for the factor that is chosen by then."""
    tried = {run["factor"] for run in runs if run["seed"] == 0}
    done = {run["seed"] for run in runs}
    yield from ((factor, 0) for factor in FACTORS if factor not in tried)
    yield from ((None, seed) for seed in range(1, seeds) if seed not in done)


def run(task: Task, updates: int, settings: dict[str, object], factor: float, seed: int) -> dict:
    """Train and score a model."""
    started = time.perf_counter()
    model = train(task, settings, updates, factor, seed)
    peak = rate(updates // 3, model.config.d_model, factor, updates // 3)
    size = sum(p.numel() for p in model.parameters())
    how = {"seed": seed, "factor": factor, "peak": peak, "parameters": size}
    return {**how, **score(task, model), "minutes": (time.perf_counter() - started) / 60}


def read(path: Path, how: dict) -> dict:
    """The record as it is by now. Raises ValueError for one with other settings."""
    record = read_json(path) if path.exists() else {**how, "variations": {}}
    if {name: record.get(name) for name in how} != how:
        raise ValueError(f"{path} was recorded with other settings: name another file with --json")
    return record


def keep(path: Path, how: dict, each: Variation, found: dict) -> None:
    """Add what was found to the file, which another process may have written since."""
    record = read(path, how)
    known = record["variations"].setdefault(
        each.name, {"row": each.row, "settings": each.settings, "runs": []}
    )
    known["runs"].append(found)
    known["factor"] = best(known["runs"])
    names = [one.name for one in VARIATIONS]
    record["variations"] = dict(sorted(record["variations"].items(), key=lambda item: names.index(item[0])))
    write_json(path, record)


def show(record: dict) -> None:
    """A table of what is recorded: means over seeds, and the validation perplexity of each rate."""
    rows = []
    for name, each in record["variations"].items():
        runs = [run for run in each["runs"] if run["factor"] == each["factor"]]
        tried = (
            f"{run['factor']:g}: {run['val_perplexity']:.3f}" for run in each["runs"] if run["seed"] == 0
        )
        scores = [f"{mean(run[what] for run in runs):.2f}" for what in ("perplexity", "bleu")]
        size = f"{runs[0]['parameters']:,}"
        rows.append((name, each["row"], size, *scores, len(runs), ", ".join(tried)))
    head = ("", "row", "parameters", "perplexity", "BLEU", "seeds", "factors of the rate, on val")
    print_table(head, rows)


def minutes_for(task: Task, updates: int) -> float:
    """How long the base model takes for so many updates, by a probe of 40, the first ten for nothing."""
    seconds = []
    for few in (10, 40):
        started = time.perf_counter()
        train(task, {}, few, FACTORS[0], 0)
        seconds.append(time.perf_counter() - started)
    return (seconds[1] - seconds[0]) / 30 * updates / 60


def main() -> None:
    """Train what is not recorded yet, and write the record after each model."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--only", nargs="+", metavar="NAME", help="these variations")
    options.add_argument("--updates", type=int, default=UPDATES, help="of each model (default %(default)s)")
    options.add_argument("--max-tokens", type=int, default=768, help="in a batch (default %(default)s)")
    options.add_argument("--seeds", type=int, default=1, help="of each (default %(default)s)")
    options.add_argument("--threads", type=int, default=1, help="default %(default)s")
    options.add_argument("--estimate", action="store_true", help="tell the time that is left, and train none")
    options.add_argument(
        "--json", type=Path, default=RECORDED / "variations.json", metavar="FILE", help="default %(default)s"
    )
    asked = options.parse_args()
    torch.set_num_threads(asked.threads)
    how = {
        "updates": asked.updates,
        "max_tokens": asked.max_tokens,
        "corpus": "grammar de-en",
        "base": BASE,
        "factors": list(FACTORS),
    }
    try:
        record = read(asked.json, how)
    except ValueError as error:
        options.error(str(error))
    task = prepare(asked.max_tokens)
    todo = [
        (each, factor, seed)
        for each in VARIATIONS
        if asked.only is None or each.name in asked.only
        for factor, seed in left(record["variations"].get(each.name, {"runs": []})["runs"], asked.seeds)
    ]
    each_takes = minutes_for(task, asked.updates) if todo else 0
    hours = each_takes * len(todo) / 60
    print(
        f"{len(todo)} models: {each_takes:.1f} minutes for the base, {hours:.1f} hours if all are like it",
        flush=True,
    )
    for each, factor, seed in [] if asked.estimate else tqdm(todo, unit="model"):
        known = read(asked.json, how)["variations"].get(each.name, {"runs": []})["runs"]
        found = run(task, asked.updates, each.settings, factor or best(known), seed)
        keep(asked.json, how, each, found)
        print(each.name, json.dumps(found), flush=True)
    show(read(asked.json, how))


if __name__ == "__main__":
    main()
