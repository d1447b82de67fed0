"""How many subwords should a small translator have?

    python benchmarks/vocabulary.py                       all, three seeds each: ten minutes
    python benchmarks/vocabulary.py --only 500 --seeds 0  this one
    python benchmarks/vocabulary.py --updates 2400 --json annotated/recorded/vocabulary-long.json

The model is the paper's with two layers of width 64, trained as in since_2017.py on the built-in
German-English corpus. A batch is filled by words, not by tokens, so with the same seed all vocabularies read
the same sentences in the same batches. What a token is differs from one to another: what is compared are the
bits that a character of the test text costs, the ends of sentences among them, and BLEU of greedy
translations.
"""

import math
from collections.abc import Sequence
from itertools import product

from records import Found, Record
from report import long_parser, parse_long
from since_2017 import Contestant, train
from tqdm import tqdm
from workload import Task, grammar_task

from annotated.metrics import bleu
from annotated.perplexity import score_tokens
from annotated.translation.data import EncodedPairs, TokenBatches, load_corpus
from annotated.translation.training.validation import translate_greedily

FULL = {
    "updates": 600,
    "max_words": 400,
    "peak": 0.005,  # about the best of the three of "d_model = 64" in the record "variations": 2,000 subwords
    "corpus": "grammar de-en",
    "base": {"N": 2, "d_model": 64, "d_ff": 128, "h": 4, "dropout": 0.0},
}
SHORT = {**FULL, "updates": 3}
SIZES = (500, 1000, 2000, 6000)


def task_of(size: int, max_words: int, short: bool) -> Task:
    """The corpus in so many subwords, its training batches filled by words."""
    task = grammar_task(4096, short, size)
    text = load_corpus("grammar", "de-en")["train"].take(range(len(task.train.pairs)))
    src, tgt = ([[0] * (len(line.split()) + 1) for line in side] for side in (text.src, text.tgt))
    batches = TokenBatches(EncodedPairs(src, tgt, text.lines, text.name), max_words)
    batches.pairs = task.train.pairs  # the same batches, of subwords
    return task._replace(train=batches)


def train_and_score(task: Task, how: Found, seed: int) -> Found:
    """Train one model; its scores on the test text."""
    model = train(task, how, Contestant({}), seed)
    scores = score_tokens(model, task.test.epoch(0))
    translations, references = translate_greedily(model, task.test.epoch(0), task.tokenizer)
    return {
        "seed": seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "tokens_per_word": scores.ntokens / sum(len(line.split()) for line in references),
        "bits": scores.loss * scores.ntokens / math.log(2) / sum(map(len, references)),
        "bleu": bleu(translations, references).value,
    }


def run(arguments: Sequence[str] | None = None) -> Found:
    """Train what is not recorded yet, and write the record after each model."""
    options = long_parser(__doc__, "vocabulary")
    options.add_argument("--only", nargs="+", type=int, metavar="SIZE", help="these vocabularies")
    options.add_argument(
        "--updates", type=int, help=f"other than {FULL['updates']}, in a record of their own"
    )
    options.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="(default 0 1 2)")
    options = parse_long(options, arguments)
    how = SHORT if options.short else {**FULL, "updates": options.updates or FULL["updates"]}
    record = Record(options.json, how)
    sizes, seeds = ((400, 500), (0,)) if options.short else (options.only or SIZES, options.seeds)
    tasks = {size: task_of(size, how["max_words"], options.short) for size in sizes}
    for seed, size in tqdm([*product(seeds, sizes)], unit="model"):
        if any(run["seed"] == seed for run in record.found().get("sizes", {}).get(str(size), [])):
            continue
        result = train_and_score(tasks[size], how, seed)
        with record.change() as found:
            found.setdefault("sizes", {}).setdefault(str(size), []).append(result)
    return record.found()


if __name__ == "__main__":
    run()
