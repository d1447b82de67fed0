"""A corpus, a model and a run so small that a whole training takes a second, for several test files."""

import dataclasses
import functools
import json
import multiprocessing
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

import torch

from annotated.metrics import Score
from annotated.perplexity import TokenScores
from annotated.transformer.model import EncoderDecoder, TransformerConfig
from annotated.translation.data import EncodedPairs, TokenBatches, load_corpus
from annotated.translation.storage.model_folder import WEIGHTS
from annotated.translation.tokenizers import WordTokenizer
from annotated.translation.training.config import TrainingConfig
from annotated.translation.training.trainer import Trainer
from annotated.translation.training.validation import Validation

# New processes are forked from one that has imported already what takes long.
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(
    ["annotated.translation.training.trainer", "torch._dynamo", "altair", "seaborn"]
)

WORDS = [f"w{i}" for i in range(12)]
SETTINGS = {
    "epochs": 3,
    "max_tokens": 60,
    "learning_rate": 0.08,
    "warmup": 10,
    "average": 2,
    "keep": 2,
    "log_every": 2,
}


@contextmanager
def single_thread():
    """Compute in one thread: the same additions in the same order, so the same last bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def pairs(count=60, seed=0):
    """Sentences of 2 to 9 words, each to be translated into itself backwards."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 10, (count,), generator=generator).tolist()
    src = [torch.randint(4, 16, (n,), generator=generator).tolist() for n in lengths]
    tgt = [[0, *reversed(ids), 1] for ids in src]
    return EncodedPairs([[*ids, 1] for ids in src], tgt, [100 + i for i in range(count)], "tiny")


def make_trainer(
    out, seed=0, dtype=torch.float32, count=60, record=None, fingerprint="", model=None, device="cpu", **more
):
    """A trainer of a fresh model; the same arguments give the same run."""
    config = TrainingConfig(seed=seed, **{**SETTINGS, **more})
    torch.manual_seed(seed)
    shape = {"N": 1, "d_model": 16, "d_ff": 16, "h": 2, "dropout": 0.1, **(model or {})}
    words = WordTokenizer(WORDS, None)
    transformer = EncoderDecoder.from_config(TransformerConfig.base(16, 16, **shape)).to(dtype)
    train = TokenBatches(pairs(count), config.max_tokens, seed=seed)
    val = TokenBatches(pairs(10, seed=1), 60, shuffle=False)
    tokenizers = (words, words)
    return Trainer(transformer, tokenizers, train, val, config, out, device, record, fingerprint)


def weights(out):
    """The bytes of a run's weights."""
    return (Path(out) / WEIGHTS).read_bytes()


def steps(out):
    """The updates at which a run has checkpoints."""
    return [
        int(folder.name.removeprefix("step-")) for folder in sorted((Path(out) / "checkpoints").iterdir())
    ]


def log_of(out):
    """The log of a run, without the times."""
    lines = (Path(out) / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [{name: value for name, value in json.loads(line).items() if name != "seconds"} for line in lines]


def train_until(out, event, part, count, resume=False, **settings):
    """Train, and be killed at the `count`-th audit event of that name whose first argument holds `part`."""
    torch.set_num_threads(1)
    left = count

    def watch(name, arguments):
        nonlocal left
        if name == event and part in str(arguments[0]) and str(out) in str(arguments[0]):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    make_trainer(out, **settings).fit(resume)


def start(function, *args, **kwargs):
    """Run a function in a process of its own."""
    process = FORKED.Process(target=function, args=args, kwargs=kwargs, daemon=True)
    process.start()
    return process


def exit_code(process, seconds=300):
    """Wait for a process to end."""
    process.join(seconds)
    assert process.exitcode is not None, "the process hangs"
    return process.exitcode


def validate_as(monkeypatch, losses, scores=()):
    """Let validations return these losses, and these scores by the metric, one after the other."""
    losses, scores = iter(losses), iter(scores)
    monkeypatch.setattr(Validation, "score", lambda *_: TokenScores(next(losses), 0.5, 1))
    monkeypatch.setattr(Validation, "measure", lambda *_: Score("it", next(scores), ""))


CATS = [(f"the cat number {i} sees a dog", f"die Katze {i} sieht einen Hund") for i in range(60)]


def write_cats(folder):
    """Write those pairs into two files and into one; returns the folder."""
    folder.mkdir(exist_ok=True)
    for name, column in zip(("a.en", "a.de"), zip(*CATS, strict=True), strict=True):
        (folder / name).write_text("".join(line + "\n" for line in column), encoding="utf-8")
    (folder / "both.tsv").write_text("".join("\t".join(pair) + "\n" for pair in CATS), encoding="utf-8")
    return folder


TOY_TRAINING = """
[train]
corpus = "grammar"
pair = "de-en"
vocab = 400
N = 1
d_model = 16
d_ff = 16
h = 2
max_tokens = 2048
max_steps = 2
epochs = 1
warmup = 10
metric = "bleu"
log_every = 1

[evaluate]
beam = 1
"""


@functools.cache
def few_sentences():
    """The grammar corpus cut down to a few sentences, so that scoring them takes no time."""
    corpus = load_corpus("grammar", "de-en")
    splits = {name: corpus[name].take(range(size), name) for name, size in (("train", 300), ("val", 12))}
    return dataclasses.replace(corpus, splits=splits)
