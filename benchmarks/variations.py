"""What does each choice of the paper's Table 3 do, at the size of a laptop?

    python benchmarks/variations.py                       every variation, three seeds each: most of an hour
    python benchmarks/variations.py --only base "h = 1"   these

Each model is trained on the built-in German-English corpus for as many updates on the same batches,
and scored on sentences that it has not seen. What is done already is read from the file that is written, and
not done again.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch
from tqdm import tqdm

from annotated.data import Corpus, TokenBatches, encode_corpus, load_corpus
from annotated.files import read_json, write_json
from annotated.tokenizers import SentencePieceTokenizer
from annotated.training.config import TrainingConfig
from annotated.training.trainer import Trainer
from annotated.transformer.model import EncoderDecoder, TransformerConfig
from annotated.transformer.schedule import rate
from annotated.translation.evaluation import greedy_bleu, score_tokens
from annotated.translation.scoring import RECORDED

BASE = {"N": 2, "d_model": 128, "d_ff": 256, "h": 4, "dropout": 0.0}
# Rows are named as in Table 3. Row B (d_k alone) is not there: in this package d_k is d_model / h.
ROWS: dict[str, dict[str, dict]] = {
    "base": {"base": {}},
    "A": {"h = 1": {"h": 1}, "h = 2": {"h": 2}, "h = 8": {"h": 8}, "h = 16": {"h": 16}},
    "C": {
        "N = 1": {"N": 1},
        "N = 4": {"N": 4},
        "d_model = 64": {"d_model": 64, "h": 2},
        "d_model = 256": {"d_model": 256, "h": 8},
        "d_ff = 128": {"d_ff": 128},
        "d_ff = 512": {"d_ff": 512},
    },
    "D": {
        "dropout 0.1": {"dropout": 0.1},
        "dropout 0.3": {"dropout": 0.3},
        "smoothing 0": {"smoothing": 0.0},
        "smoothing 0.2": {"smoothing": 0.2},
    },
    "E": {"learned positions": {"positions": "learned", "max_len": 128}},
    "not in Table 3": {"pre-norm": {"norm_first": True}, "three matrices": {"tied_embeddings": "none"}},
}


class Task(NamedTuple):
    """What every variation is trained and scored on."""

    tokenizer: SentencePieceTokenizer
    train: TokenBatches
    held_out: TokenBatches


def prepare(max_tokens: int) -> Task:
    """The built-in corpus in 2,000 joint subwords."""
    corpus: Corpus = load_corpus("grammar", "de-en")
    tokenizer = SentencePieceTokenizer.train([*corpus["train"].src, *corpus["train"].tgt], vocab_size=2000)
    pairs = {name: encode_corpus(corpus[name], tokenizer, tokenizer) for name in ("train", "val")}
    return Task(
        tokenizer, TokenBatches(pairs["train"], max_tokens), TokenBatches(pairs["val"], 4096, shuffle=False)
    )


def run(task: Task, settings: dict, updates: int, seed: int) -> dict[str, float]:
    """Train one model and score it: parameters, perplexity without smoothing, greedy BLEU."""
    settings = {**BASE, **settings}
    warmup = updates // 3
    training = TrainingConfig(
        max_steps=updates,
        max_tokens=task.train.max_tokens,
        warmup=warmup,
        learning_rate=rate(warmup, settings["d_model"], 0.7, warmup),
        smoothing=settings.pop("smoothing", 0.1),
        average=0,
        keep=1,
        seed=seed,
    )
    torch.manual_seed(seed)
    size = len(task.tokenizer)
    model = EncoderDecoder.from_config(TransformerConfig.tiny(size, size, **settings))
    with tempfile.TemporaryDirectory() as folder:
        tokenizers = (task.tokenizer, task.tokenizer)
        Trainer(model, tokenizers, lambda epoch: task.train, None, training, Path(folder) / "run").train()
    return {
        "seed": seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "perplexity": score_tokens(model, task.held_out.epoch(0)).perplexity,
        "bleu": greedy_bleu(model, task.held_out.epoch(0), task.tokenizer).value,
    }


def main() -> None:
    """Train what is not recorded yet, and write the record after each model."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--only", nargs="+", metavar="NAME", help="these variations")
    options.add_argument("--updates", type=int, default=500, help="of each model (default %(default)s)")
    options.add_argument("--max-tokens", type=int, default=768, help="in a batch (default %(default)s)")
    options.add_argument("--seeds", type=int, default=3, help="models a variation (default %(default)s)")
    options.add_argument("--threads", type=int, default=1, help="default %(default)s")
    options.add_argument(
        "--json", type=Path, default=RECORDED / "variations.json", metavar="FILE", help="default %(default)s"
    )
    asked = options.parse_args()
    torch.set_num_threads(asked.threads)
    how = {"updates": asked.updates, "max_tokens": asked.max_tokens, "corpus": "grammar de-en", "base": BASE}
    record = read_json(asked.json) if asked.json.exists() else {**how, "variations": {}}
    if {name: record[name] for name in how} != how:
        options.error(f"{asked.json} was recorded with other settings: name another file with --json")
    task = prepare(asked.max_tokens)
    wanted = [
        (row, name, settings, seed)
        for seed in range(asked.seeds)
        for row, variations in ROWS.items()
        for name, settings in variations.items()
        if asked.only is None or name in asked.only
    ]
    for row, name, settings, seed in tqdm(wanted, unit="model"):
        kept = record["variations"].setdefault(name, {"row": row, "settings": settings, "runs": []})
        if all(done["seed"] != seed for done in kept["runs"]):
            kept["runs"].append(run(task, settings, asked.updates, seed))
            write_json(asked.json, record)
            print(name, json.dumps(kept["runs"][-1]), flush=True)


if __name__ == "__main__":
    main()
