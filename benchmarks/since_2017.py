"""Which changes of the years since 2017 pay at the size of a laptop?

    python benchmarks/since_2017.py                           all, three seeds each: half an hour
    python benchmarks/since_2017.py --only paper "all parts"  these

The variants are those that stand in notebooks/17_since_2017.py. Each model is trained on the built-in
German-English corpus for as many updates on the same batches, and scored on sentences that it has not seen.
What is done already is read from the file that is written, and not done again.
"""

import argparse
import ast
import json
from itertools import chain, count, islice
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import Adam
from tqdm import tqdm
from variations import Task, prepare

from annotated.data import TokenBatches
from annotated.fast import CpuKernels
from annotated.files import read_json, write_json
from annotated.metrics import bleu, score_tokens
from annotated.training.update import SummedLoss
from annotated.transformer.config import TransformerConfig
from annotated.transformer.model import EncoderDecoder
from annotated.transformer.schedule import factor_for, noam_scheduler
from annotated.translation.evaluate import RECORDED

BASE = {"N": 2, "d_model": 128, "d_ff": 256, "h": 4, "dropout": 0.0}
NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "17_since_2017.py"
SENTENCES = 100  # that are translated; the loss is that of the whole split


class Contestant(NamedTuple):
    """What differs from the paper's model and training."""

    settings: dict[str, object]
    decoder_only: bool = False
    decay: float | None = None  # of AdamW with cosine, 0 is Adam; None for the paper's schedule


ALL = {"norm_first": True, "parts": "all four"}
CONTESTANTS = {
    "paper": Contestant({}),
    "pre-norm": Contestant({"norm_first": True}),
    "RMSNorm": Contestant({"parts": "rms norm"}),
    "rotary": Contestant({"parts": "rotary"}),
    "grouped queries": Contestant({"parts": "grouped queries"}),
    "SwiGLU": Contestant({"parts": "swiglu"}),
    "rotary and SwiGLU": Contestant({"parts": "rotary and swiglu"}),
    "Adam, cosine": Contestant({}, decay=0.0),
    "AdamW, cosine": Contestant({}, decay=0.1),
    "all parts": Contestant(ALL),
    # Five layers without encoder-decoder attention have as many parameters as 2 + 2 with it.
    "one stack, all parts": Contestant({**ALL, "N": 5}, decoder_only=True),
}
SAMPLED = "all parts"  # whose first model also samples, at these temperatures and shares
SAMPLINGS = {
    "temperature 1": {"temperature": 1.0},
    "temperature 0.5": {"temperature": 0.5},
    "top-p 0.9": {"top_p": 0.9},
}


def from_notebook() -> SimpleNamespace:
    """Run the imports, classes and functions of the notebook, and none of its other cells."""
    kinds = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef)
    tree = ast.parse(NOTEBOOK.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, kinds)]
    names: dict = {"__name__": NOTEBOOK.stem}
    exec(compile(tree, NOTEBOOK, "exec"), names)
    return SimpleNamespace(**names)


def train(found: SimpleNamespace, task: Task, who: Contestant, updates: int, peak: float, seed: int):
    """Train one model: the seed decides its first weights and the order of the batches."""
    torch.manual_seed(seed)
    size, kind = len(task.tokenizer), found.DecoderOnly if who.decoder_only else EncoderDecoder
    model = kind.from_config(TransformerConfig(size, size, **{**BASE, **who.settings}))
    warmup, width = updates // 3, model.config.d_model
    if who.decay is None:
        optimizer = Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
        schedule = noam_scheduler(optimizer, width, factor_for(peak, width, warmup), warmup)
    else:
        optimizer, schedule = found.adamw_with_cosine(model, peak, warmup, updates, who.decay)
    batches = TokenBatches(task.train.pairs, task.train.max_tokens, seed=seed)
    loss = SummedLoss(model, 0.1, task.tokenizer.pad)
    forever = chain.from_iterable(map(batches.epoch, count()))
    for batch in islice(forever, updates):
        with CpuKernels():
            total = loss(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask, batch.tgt_y)
        (total / batch.ntokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return model


def translations(found: SimpleNamespace, model: EncoderDecoder, task: Task, **sampling: float) -> list[str]:
    """Translate the first sentences of the held-out split: greedily, or sampled."""

    def likeliest(log_probs: Tensor) -> Tensor:
        return log_probs.argmax(dim=-1)

    def drawn(log_probs: Tensor) -> Tensor:
        return found.nucleus(log_probs, **sampling).multinomial(1).squeeze(1)

    batch = task.held_out.collate(list(range(SENTENCES)))
    ends = task.tokenizer.start, task.tokenizer.end
    choose = drawn if sampling else likeliest
    rows = found.generate(model, batch, batch.src.size(1) + 20, choose, ends)
    return [task.tokenizer.decode(row) for row in rows[:, 1:].tolist()]


def score(found: SimpleNamespace, model: EncoderDecoder, task: Task, sampling: bool) -> dict[str, object]:
    """Score the loss without smoothing, BLEU of greedy search and, if asked for, of sampling."""
    batch = task.held_out.collate(list(range(SENTENCES)))
    references = [task.tokenizer.decode(row) for row in batch.tgt_y.tolist()]
    greedy = translations(found, model, task)
    scores = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "loss": score_tokens(model, task.held_out.epoch(0), task.tokenizer.pad).loss,
        "bleu": bleu(greedy, references).value,
        "translations": list(zip(references, greedy, strict=True))[:5],
    }
    if sampling:
        samples = {how: translations(found, model, task, **each) for how, each in SAMPLINGS.items()}
        scores["sampled"] = {how: bleu(each, references).value for how, each in samples.items()}
    return scores


def main() -> None:
    """Train what is not recorded yet, and write the record after each model."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--only", nargs="+", metavar="NAME", help="these contestants")
    options.add_argument("--updates", type=int, default=300, help="of each model (default %(default)s)")
    options.add_argument("--max-tokens", type=int, default=512, help="in a batch (default %(default)s)")
    options.add_argument("--peak", type=float, default=0.003, help="learning rate (default %(default)s)")
    options.add_argument("--seeds", type=int, default=3, help="models a contestant (default %(default)s)")
    options.add_argument("--threads", type=int, default=1, help="default %(default)s")
    options.add_argument(
        "--json", type=Path, default=RECORDED / "since_2017.json", metavar="FILE", help="default %(default)s"
    )
    asked = options.parse_args()
    torch.set_num_threads(asked.threads)
    how = {
        "updates": asked.updates,
        "max_tokens": asked.max_tokens,
        "peak": asked.peak,
        "corpus": "grammar de-en",
        "base": BASE,
    }
    record = read_json(asked.json) if asked.json.exists() else {**how, "contestants": {}}
    if {name: record[name] for name in how} != how:
        options.error(f"{asked.json} was recorded with other settings: name another file with --json")
    found, task = from_notebook(), prepare(asked.max_tokens)
    wanted = [
        (name, seed)
        for seed in range(asked.seeds)
        for name in CONTESTANTS
        if asked.only is None or name in asked.only
    ]
    for name, seed in tqdm(wanted, unit="model"):
        runs = record["contestants"].setdefault(name, [])
        if all(done["seed"] != seed for done in runs):
            model = train(found, task, CONTESTANTS[name], asked.updates, asked.peak, seed)
            runs.append({"seed": seed, **score(found, model, task, name == SAMPLED and seed == 0)})
            write_json(asked.json, record)
            print(name, json.dumps(runs[-1]), flush=True)


if __name__ == "__main__":
    main()
